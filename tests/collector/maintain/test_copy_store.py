"""`lightning-ingest copy`: what a store received, in a new one, whatever its schema was."""

import shutil
from pathlib import Path

import pytest
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, cli
from support.stores import DATA, PRIMARY_TABLES, RELEASED, UNRELEASED, ask, counts, unpacked

from otel_lightning.collector.check.deep import check_deep
from otel_lightning.collector.derive.tables import TABLES
from otel_lightning.collector.load.from_files import derive_all, load_file
from otel_lightning.collector.maintain.copy_store import copy_store
from otel_lightning.collector.spool.folder import SET_ASIDE, spool_folder
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import StoreError, open_file, open_store


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RELEASED, *UNRELEASED])
def test_a_store_of_any_schema_is_copied_and_derived(name: str, tmp_path: Path) -> None:
    old, new = unpacked(name, tmp_path), tmp_path / "new.duckdb"
    before = old.read_bytes()
    result = cli("copy", str(old), str(new))
    assert (result.returncode, result.stderr) == (0, "")
    assert old.read_bytes() == before
    with open_file(old, read_only=True) as was, open_store(new) as store:
        waiting = 1 if name == "unreleased-e033f44" else 0  # a request on its spool
        received = counts(was)
        assert counts(store) == received | {"spans": received["spans"] + waiting}
        scores = counts(store, ("scores",))["scores"]
        assert scores == (0 if name == "unreleased-9a6e502" else 1)
        assert [one for one in check_deep(store, new) if not one.is_fine] == []


def test_a_copy_has_the_rows_that_loading_the_same_recordings_gives(tmp_path: Path) -> None:
    old, new = unpacked("unreleased-9a6e502", tmp_path), tmp_path / "new.duckdb"
    fresh = tmp_path / "fresh.duckdb"
    copy_store(old, new)
    # Those that the old store was made of; more recordings come to these folders.
    names = ("embed", "error500", "reasoning", "responses_prev", "token_ids_stream", "tool")
    files = [
        *(DATA / "openinference_openai" / f"{name}.otlp.pb" for name in names),
        *sorted((DATA / "js_otel_openai").glob("*.pb")),
        DATA / "traceloop_openai" / "tool.otlp.pb",
    ]
    rows = []
    for path in (new, fresh):
        with open_store(path) as store:
            for file in files if path == fresh else []:
                load_file(store, file)
            derive_all(store, path)
            tables = ("spans", "logs", "llm_calls", "tool_calls", "agent_runs")
            times = {"spans": "EXCLUDE (received_at)", "logs": "EXCLUDE (received_at)"}
            rows.append(
                {
                    table: store.query(
                        f"SELECT sum(hash(t)::HUGEINT)::VARCHAR AS n"
                        f" FROM (SELECT * {times.get(table, '')} FROM {table}) t"
                    )["n"].to_pylist()
                    for table in tables
                }
            )
    assert rows[0] == rows[1]


def test_nothing_is_overwritten_and_nothing_half_made_stays(tmp_path: Path) -> None:
    old, new = unpacked("0.1.0", tmp_path), tmp_path / "new.duckdb"
    new.write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        copy_store(old, new)
    assert new.read_text() == "mine"
    with pytest.raises(StoreError, match="is not a DuckDB file"):
        copy_store(new, tmp_path / "other.duckdb")
    theirs = tmp_path / "theirs" / "sales.duckdb"
    theirs.parent.mkdir()
    open_file(theirs, read_only=False).close()
    with pytest.raises(StoreError, match="no store of otel-lightning: it has no table 'spans'"):
        copy_store(theirs, theirs.with_name("other.duckdb"))
    assert [path.name for path in theirs.parent.iterdir()] == ["sales.duckdb"]
    shutil.rmtree(theirs.parent)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.duckdb", "old.duckdb"]


def test_a_store_that_is_served_is_not_copied(ingester: Ingester, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Stop it first"):
        copy_store(ingester.store, tmp_path / "new.duckdb")


def test_every_table_of_a_new_store_can_be_copied(tmp_path: Path) -> None:
    """The old and the new store have one schema: the plain case for whoever compacts a store."""
    old, new = tmp_path / "old.duckdb", tmp_path / "new.duckdb"
    with open_store(old) as store:
        load_file(store, DATA / "agentops" / "tool.otlp.pb")
        before = counts(store)
    copy_store(old, new)
    with open_store(new) as store:
        assert counts(store) == before
    assert set(PRIMARY_TABLES) <= set(before)


def test_rows_that_are_derived_are_not_copied(tmp_path: Path) -> None:
    """A row that no trace gives any more, as when a reader was mended, must not outlive a copy."""
    old, new = tmp_path / "old.duckdb", tmp_path / "new.duckdb"
    with open_store(old) as store:
        load_file(store, DATA / "agentops" / "tool.otlp.pb")
        derive_all(store, old)
        filled = counts(store, (*TABLES, "rollout_rows"))
        derived = tuple(table for table, rows in filled.items() if rows)
        store.execute("UPDATE rollout_rows SET rollout_id = 'of an older reader'")
    assert "rollout_rows" in derived
    copy_store(old, new)
    with open_store(new) as store:
        assert counts(store, derived) == dict.fromkeys(derived, 0)


def with_damaged_spool(path: Path) -> bytes:
    """Make a store with three requests on its spool, the second one damaged; return its bytes."""
    with open_store(path) as store:
        load_file(store, DATA / "agentops" / "tool.otlp.pb")
    spool = Spool(spool_folder(path))
    for name in ("first", "second", "third"):
        spool.append("traces", trace_request(name).SerializeToString()).result(LIMIT_S)
    spool.close()
    (segment,) = spool_folder(path).glob("*.spool")
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"second", b"sec0nd"))
    return b"sec0nd"


@pytest.mark.parametrize("command", ["copy", "forget"])
def test_damage_on_the_spool_is_reported_and_set_aside(command: str, tmp_path: Path) -> None:
    """As the loader of a running ingester does."""
    path = tmp_path / "old.duckdb"
    damaged = with_damaged_spool(path)
    if command == "copy":
        result = cli("copy", str(path), str(tmp_path / "new.duckdb"))
        path = tmp_path / "new.duckdb"
        said = "2 requests that were not stored yet, 1 damaged part that is set aside"
        assert said in result.stdout
    else:
        result = cli("forget", "--where", "name = 'first'", "--store", str(path))
    assert result.returncode == 0
    (aside,) = (spool_folder(path) / SET_ASIDE).glob("*.damaged")
    assert damaged in aside.read_bytes()
    assert f"are damaged; they are kept in '{aside}'." in result.stderr
    assert ask(path, "SELECT file FROM rejected") == [{"file": str(aside)}]
    names = ask(path, "SELECT name FROM spans WHERE name IN ('first', 'second', 'third')")
    kept = {"first", "third"} if command == "copy" else {"third"}
    assert {row["name"] for row in names} == kept
