"""`lightning-ingest forget`: what is erased is in no table and in no byte of any file."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.examples import first_quick
from support.running import LIMIT_S, cli, cli_here, running

from otel_lightning.collector.check.deep import check_deep
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.maintain.erase import Selection, erase
from otel_lightning.collector.maintain.erase_served import erase_by_path
from otel_lightning.collector.receive.feedback import read_feedback
from otel_lightning.collector.spool.folder import dead_letters, spool_folder
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import Store, StoreError, open_store, quote_literal

SECRET = b"Ada Lovelace, 12 St James's Square"
ADDRESS = {"address": SECRET.decode()}
TRACES = [bytes([number]) * 16 for number in (1, 2, 3, 4)]


def call(number: int) -> bytes:
    """A model call of trace `number`: traces 1 and 2 are one conversation, all others their own."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    span = spans.add(name="chat", trace_id=TRACES[number - 1], span_id=bytes([number]) * 8)
    text = SECRET.decode() if number <= 2 else "hello"
    for key, value in (
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.conversation.id", f"c{max(number, 2)}"),
        ("gen_ai.response.id", f"resp{number}"),
        ("user.id", "ada" if number <= 2 else f"user {number}"),
        (
            "gen_ai.input.messages",
            f'[{{"role":"user","parts":[{{"type":"text","content":"{text}"}}]}}]',
        ),
    ):
        span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three stored traces with feedback and scores, a fourth one on the spool, judges' answers."""
    path = tmp_path / "t.duckdb"
    said = [
        {"id": "1", "response_id": "resp1", "value": 1, "explanation": SECRET.decode()},
        {"id": "2", "response_id": "resp3", "value": 1},
    ]
    feedback = read_feedback(json.dumps(said).encode(), 1)
    with open_store(path) as store:
        requests = [Request("traces", n, call(n)) for n in (1, 2, 3)]
        requests.append(Request("logs", 4, feedback.request.SerializeToString()))
        load(store, requests, dead_letters=tmp_path)
        derive_all(store, path)
        store.execute(
            "INSERT INTO scores BY NAME SELECT 'judge:q' AS source, 'q' AS name, 0.5 AS value,"
            " 's' || rollout_id AS reward_id, rollout_id, explanation FROM"
            " (SELECT DISTINCT rollout_id, input_messages AS explanation FROM llm_calls)"
        )
        store.execute(
            "INSERT INTO task_messages SELECT DISTINCT state_hash, state_hash FROM llm_calls"
        )
        store.execute(
            "INSERT INTO prompts BY NAME SELECT 'p' AS run_id, 'k' AS key, 0 AS call,"
            " 'a' AS parent, input_messages AS text, [rollout_id] AS records,"
            " now()::TIMESTAMP_NS AS created FROM llm_calls"
        )
        other = str(tmp_path / "other.judge")
        for command, config in (
            ("judge", {"cache": other}), ("prompts", {"seed": 1}), ("rft", {"steps": 1}),
        ):  # fmt: skip
            store.execute(
                "INSERT INTO runs (run_id, command, config) VALUES"
                f" ('{command}', '{command}', {quote_literal(json.dumps(config))})"
            )
    Path(other).write_bytes(SECRET)
    spool = Spool(spool_folder(path))
    for number in (2, 4):  # the second for the second time
        spool.append("traces", call(number)).result(LIMIT_S)
    spool.close()
    with closing(sqlite3.connect(f"{path}.judge")) as answers:
        answers.execute("CREATE TABLE answers AS SELECT ? AS text", [SECRET])
        answers.commit()
    spilled = Path(f"{path}.tmp")  # by a process that was killed
    spilled.mkdir()
    (spilled / "duckdb_temp_storage_DEFAULT-0.tmp").write_bytes(SECRET)
    return path


def texts(store: Store) -> Iterator[str]:
    """Every row of every table and view as text."""
    names = store.query("SELECT table_name AS n FROM information_schema.tables")["n"].to_pylist()
    for name in names:
        rows = store.query(f"SELECT to_json(t)::VARCHAR AS row FROM (FROM {name}) t")
        yield from rows["row"].to_pylist()


@pytest.mark.parametrize(
    "selection",
    first_quick(
        [
            ("--conversation", "c2"),
            ("--where", "attributes['user.id'] = 'ada'"),
            ("--trace", TRACES[0].hex(), "--trace", TRACES[1].hex()),
        ]
    ),
)
@pytest.mark.parametrize("served", [False, True])
def test_what_is_erased_is_in_no_table_and_no_byte(
    selection: tuple[str, ...], path: Path, *, served: bool
) -> None:
    kept = [path, *spool_folder(path).glob("*.spool"), Path(f"{path}.judge")]
    with path.open("rb") as old, kept[1].open("rb") as spool, kept[2].open("rb") as answers:
        assert SECRET in spool.read()
        assert SECRET in answers.read()
        path.chmod(0o640)
        with running(path) if served else nullcontext():
            result = cli("forget", *selection, "--store", str(path))
        assert (result.returncode, result.stderr) == (0, "")
        assert "Erased 2 traces and 1 rollout" in result.stdout
        assert path.stat().st_mode & 0o777 == 0o640
        # They have no name any more. The ingester may have stored and deleted the segment before.
        for file in (old, answers) if served else (old, spool, answers):
            file.seek(0)
            assert set(file.read()) <= {0}
    for file in path.parent.rglob("*"):
        assert not file.is_file() or SECRET not in file.read_bytes()
    with open_store(path) as store:
        for row in texts(store):
            assert SECRET.decode() not in row
            assert TRACES[0].hex() not in row
            assert "resp1" not in row
        assert sorted(store.query("FROM spans")["trace_id"].to_pylist()) == [
            TRACES[2].hex(), TRACES[3].hex(),
        ]  # fmt: skip
        assert store.query("SELECT value FROM reward_events")["value"].to_pylist() == [1]
        assert len(store.query("FROM llm_calls")) == 2
        assert len(store.query("FROM scores")) == 1
        assert len(store.query("FROM task_messages")) == 1  # traces 3 and 4 have the same text
        assert [one for one in check_deep(store, path) if not one.is_fine] == []


@pytest.mark.parametrize("served", first_quick([False, True]))
def test_a_store_whose_name_has_a_line_break_and_quotes_forgets(
    tmp_path: Path, *, served: bool
) -> None:
    path = tmp_path / """a\nb'c"d%#.duckdb"""
    with open_store(path) as store:
        load(store, [Request("traces", 1, call(1))], dead_letters=dead_letters(path))
        derive_all(store, path)
    with running(path) if served else nullcontext():
        assert erase_by_path(path, Selection(traces=[TRACES[0].hex()])).traces == 1
    assert SECRET not in path.read_bytes()


@pytest.mark.parametrize("served", first_quick([False, True]))
def test_a_link_to_a_store_has_the_spool_of_the_store_and_stays_a_link(
    path: Path, tmp_path: Path, *, served: bool
) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(path)
    with running(path) if served else nullcontext():
        assert cli("forget", "--conversation", "c2", "--store", str(link)).returncode == 0
        assert cli_here("check", "--store", str(link)).returncode == 0
    assert link.is_symlink()
    assert SECRET not in path.read_bytes()
    assert not spool_folder(link).exists()
    with open_store(link) as store:
        assert store.count("spans") == 2


def test_a_spool_that_was_left_beside_a_link_is_not_overlooked(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(path)
    spool_folder(path).rename(spool_folder(link))
    result = cli_here("check", "--store", str(link))
    assert result.returncode == 1
    assert f"move the spool to '{path}.spool'" in result.stderr


@pytest.mark.parametrize("served", first_quick([False, True]))
def test_what_load_could_not_store_is_erased_too(tmp_path: Path, *, served: bool) -> None:
    path, files = tmp_path / "t.duckdb", tmp_path / "files"
    files.mkdir()
    (files / "1.pb").write_bytes(call(1))
    repeated = ExportTraceServiceRequest.FromString(call(1))
    repeated.resource_spans[0].scope_spans[0].spans[0].name = "another"
    (files / "2.pb").write_bytes(repeated.SerializeToString())
    with running(path) if served else nullcontext():
        assert cli("load", str(files), "--store", str(path)).returncode == 0
        (letter,) = dead_letters(path).iterdir()
        assert SECRET in letter.read_bytes()
        assert {file.name for file in files.iterdir()} == {"1.pb", "2.pb"}
        assert erase_by_path(path, Selection(traces=[TRACES[0].hex()])).traces == 1
    assert list(dead_letters(path).iterdir()) == []


def tool_in_another_trace() -> list[bytes]:
    """A call that asks for a tool with the secret, and the tool's execution in a second trace."""
    asked = {"type": "tool_call", "id": "call_1", "name": "find", "arguments": ADDRESS}
    facts = [
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [asked]}]),
        },
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "find",
            "gen_ai.tool.call.id": "call_1",
        },
    ]
    requests = []
    for place, (trace, attributes) in enumerate(zip(TRACES, facts, strict=False)):
        request = ExportTraceServiceRequest()
        span = request.resource_spans.add().scope_spans.add().spans.add(trace_id=trace)
        span.span_id, span.start_time_unix_nano = trace[:8], place * 10**9
        span.end_time_unix_nano = span.start_time_unix_nano + 1
        for key, value in attributes.items():
            span.attributes.add(key=key).value.string_value = value
        requests.append(request.SerializeToString())
    return requests


@pytest.mark.parametrize("served", [False, True])
def test_rows_of_kept_traces_lose_what_came_from_an_erased_one(
    tmp_path: Path, *, served: bool
) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as store:
        requests = [Request("traces", 1, one) for one in tool_in_another_trace()]
        load(store, requests, dead_letters=tmp_path)
        derive_all(store, path)
        (tool,) = store.query("FROM tool_calls").to_pylist()
    assert (tool["trace_id"], json.loads(tool["arguments"])) == (TRACES[1].hex(), ADDRESS)
    with running(path) if served else nullcontext():
        assert erase_by_path(path, Selection(traces=[TRACES[0].hex()])).traces == 1
        assert SECRET not in path.read_bytes()
    with open_store(path) as store:
        (tool,) = store.query("FROM tool_calls").to_pylist()
        assert (tool["trace_id"], tool["arguments"]) == (TRACES[1].hex(), None)


@pytest.mark.slow
@pytest.mark.parametrize("served", [False, True])
def test_a_rollout_that_keeps_a_trace_is_derived_again_without_the_erased_one(
    path: Path, *, served: bool
) -> None:
    with running(path) if served else nullcontext():
        erased = erase_by_path(path, Selection(traces=[TRACES[0].hex()]))
    assert (erased.traces, erased.rollouts) == (1, 0)
    with open_store(path) as store:
        assert sorted(store.query("FROM llm_calls")["step"].to_pylist()) == [0, 0, 0]
        assert [one for one in check_deep(store, path) if not one.is_fine] == []


@pytest.mark.parametrize("name", ["old", "main", "temp.x", "a'b \"c"])
def test_a_store_may_have_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.duckdb"
    with open_store(path) as store:
        load(store, [Request("traces", n, call(n)) for n in (1, 3)], dead_letters=tmp_path)
    assert erase(path, Selection(traces=[TRACES[0].hex()])).traces == 1


@pytest.mark.slow
def test_a_selection_of_nothing_erases_nothing(path: Path) -> None:
    result = cli("forget", "--rollout", "nobody", "--store", str(path))
    assert result.returncode == 1
    assert "nothing was erased" in result.stderr
    with open_store(path) as store:
        assert len(store.query("FROM spans")) == 4


@pytest.mark.parametrize("where", ["1; DROP TABLE spans", "true) OR (true; SELECT 1", "FROM"])
def test_a_condition_is_one_condition(where: str, path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not one condition over spans\. Write one such as"):
        erase(path, Selection(where=where))
    with pytest.raises(StoreError, match="Say what to forget"):
        erase(path, Selection())


@pytest.mark.parametrize(
    "made",
    [
        "CREATE SCHEMA mine; CREATE TABLE mine.notes (trace_id VARCHAR)",
        "CREATE SCHEMA mine; CREATE VIEW mine.notes AS SELECT 1 AS one",
        "CREATE MACRO notes(a) AS a + 1",
        "CREATE SEQUENCE notes",
        "CREATE TYPE notes AS ENUM ('good')",
    ],
)
def test_nothing_is_erased_if_something_of_a_user_would_be_lost(made: str, path: Path) -> None:
    with open_store(path) as store:
        store.execute(made)
    with pytest.raises(StoreError, match=r"notes' would be lost, so nothing was erased"):
        erase(path, Selection(traces=[TRACES[0].hex()]))
    with open_store(path) as store:
        assert len(store.query("FROM spans")) == 4


def test_tables_and_views_of_users_are_kept(path: Path) -> None:
    with open_store(path) as store:
        store.execute(
            "CREATE TABLE \"my notes\" (trace_id VARCHAR, note VARCHAR DEFAULT 'none');"
            f"INSERT INTO \"my notes\" (trace_id) VALUES ('{TRACES[0].hex()}'), ('other');"
            'CREATE VIEW noted AS SELECT count(*) AS n FROM "my notes"'
        )
    erase(path, Selection(traces=[TRACES[0].hex()]))
    with open_store(path) as store:
        assert store.rows('FROM "my notes"') == [{"trace_id": "other", "note": "none"}]
        store.execute("INSERT INTO \"my notes\" (trace_id) VALUES ('x')")
        assert store.rows("FROM noted") == [{"n": 2}]


@pytest.mark.parametrize("served", [False, True])
def test_an_interrupted_erasure_is_brought_to_its_end_by_the_next_one(
    path: Path, *, served: bool
) -> None:
    obstacle = path.with_name(f".{path.name}.partial")  # where the new file would be written
    (obstacle / "x").mkdir(parents=True)
    selection = ("--where", "attributes['user.id'] = 'ada'", "--store", str(path))
    with running(path) if served else nullcontext():
        assert cli("forget", *selection).returncode != 0
        shutil.rmtree(obstacle)
        result = cli("forget", *selection)
        assert (result.returncode, result.stderr) == (0, "")
        assert "had left" in result.stdout
    for file in path.parent.rglob("*"):
        assert not file.is_file() or SECRET not in file.read_bytes()
    assert cli("forget", *selection).returncode == 1  # nothing is left
