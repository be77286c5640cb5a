"""`lightning-ingest show`: what it finds, what it prints, and what it never prints."""

import json
import os
import pty
import re
import select
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_rollouts import NOW, deliver, judged, make, trace_of
from support.page_source import DirectSource, Page
from support.running import LIMIT_S, Ingester, background, cli, cli_here, eventually
from support.sending import post
from support.stores import unpacked

from otel_lightning.collector.show import text as text_module
from otel_lightning.collector.show.conversation import ShownMessages
from otel_lightning.collector.show.find import find_rollout
from otel_lightning.collector.show.print_rollouts import ids_in
from otel_lightning.collector.show.rollout import Window, read_rollout
from otel_lightning.collector.show.text import TextStyle, as_text, strip
from otel_lightning.collector.store import Sql, Store, StoreError, open_store, statement
from otel_lightning.collector.store.clients.bounded import is_bounded
from otel_lightning.collector.store.print_rows import Layout, as_table
from otel_lightning.collector.store.syntax_tree import serialize

ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\x08"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
LONG = TextStyle(width=100)
QUERIES = Path(find_rollout.__code__.co_filename).parent / "sql"
BEGUN = "2027-01-15 08:00:00"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "t.duckdb") as opened:
        deliver(
            opened,
            tmp_path,
            make(),
            make("ticket-78", error="timeout", at=100),
            make("other", agent="coder", at=50),
            judged("ticket-77", 1.0, why="It said when."),
            judged("ticket-77", 0.25, step=0),
        )
        yield opened


def shown(store: Store, name: str, window: Window | None = None, look: TextStyle = LONG) -> str:
    return as_text(read_rollout(store, find_rollout(store, name), window or Window()), look)


def test_each_step_shows_what_is_new_with_tools_and_rewards(store: Store) -> None:
    lines = [line.strip() for line in shown(store, "ticket-77").splitlines()]
    assert lines == [
        "rollout ticket-77  support  2 calls  1 tool  3.0 s  terminated  reward 1  " + BEGUN,
        "no transitions: not built yet (`lightning-learn transitions` builds them)",
        "reward    1 ← solved (log) 2027-01-15 09:00:00  It said when.",
        "",
        "0  support  model-7  100→10 tok  1.0 s",
        "system     Be kind.",
        "user       Where is my parcel?",
        "assistant  I look it up.",
        '→ search {"order": 70}',
        "← due Friday" + " " * 80 + "0.5 s",
        "reward  0.25 ← solved (log) 2027-01-15 09:00:00",
        "",
        "1  support  model-7  200→10 tok  1.0 s",
        "… 3 earlier messages (--all)",
        "assistant  It is due Friday.",
    ]


def test_a_large_reward_is_written_whole_everywhere(store: Store, tmp_path: Path) -> None:
    deliver(store, tmp_path, judged("other", 12345.0), judged("other", -999.7, step=0))
    rollout = read_rollout(store, "other")
    page = Page(DirectSource(store).get("/ui/rollouts/other")).text.replace("\N{MINUS SIGN}", "-")
    for text in (as_text(rollout, LONG), rollout._repr_html_(), page):
        assert "12,345" in text
        assert "-1,000" in text


def test_what_was_retrieved_is_shown_with_the_step_that_used_it(store: Store) -> None:
    store.execute("""
        INSERT INTO retrievals BY NAME
        SELECT trace_id, span_id || 'r' AS span_id, rollout_id, 'retriever' AS kind,
            'parcel 70' AS query, start_time, start_time + INTERVAL 300 MILLISECOND AS end_time,
            '[{"id": "7", "score": 0.75, "content": "Due on\\nFriday."}, {"id": "8"}]' AS documents,
            if(step = 0, span_id, NULL) AS llm_span_id
        FROM llm_calls WHERE rollout_id = 'ticket-77'
    """)
    text = shown(store, "ticket-77")
    lines = [line.strip() for line in text.splitlines()]
    asked = re.compile(r"retriever  parcel 70 → 2 documents +0\.3 s")
    place = next(number for number, line in enumerate(lines) if asked.fullmatch(line))
    assert lines[place - 1].startswith("0  support")
    assert lines[place + 1 : place + 3] == ["0.75  Due on Friday.", "8"]
    assert text.count("parcel 70") == 2  # no step used the second one: it is at the end
    assert "parcel 70" in read_rollout(store, "ticket-77")._repr_html_()
    assert shown(store, "ticket-77", Window(1, 1)).count("parcel 70") == 0
    page = Page(DirectSource(store).get("/ui/rollouts/ticket-77"))
    assert page.text.count("parcel 70") == 2
    assert "Retrieved, and used by no step" in page.text
    assert "0.75  Due on\nFriday." in page.text


def test_steps_after_others_show_the_same_as_in_the_whole(store: Store) -> None:
    whole = read_rollout(store, "ticket-77")
    part = read_rollout(store, "ticket-77", Window(1, 1))
    assert part.steps == whole.steps[1:]


def test_all_shows_the_whole_history_and_errors_only_failed_steps(store: Store) -> None:
    whole = shown(store, "ticket-78", Window(1, 1, whole_history=True))
    assert "Where is my parcel?" in whole
    assert "earlier" not in whole
    failed = read_rollout(store, "ticket-78", Window(only_errors=True))
    assert [step.step for step in failed.steps] == [1]
    assert "failed     timeout" in as_text(failed, LONG)
    assert read_rollout(store, "ticket-77", Window(only_errors=True)).steps == []


def test_what_shows_no_step_says_how_many_there_are(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    store.close()
    for arguments, expected in {
        ("--steps", "100"): "No step 100: this rollout has 2 steps: 0 to 1.",
        ("--steps", "2-"): "No step 2: this rollout has 2 steps: 0 to 1.",
        ("--errors",): "None of the steps that were asked for failed; this rollout has 2 steps.",
    }.items():
        answer = cli_here("show", "ticket-77", *arguments, "--store", path)
        assert (answer.returncode, answer.stdout.splitlines()[-1]) == (0, expected)
    assert "No step" not in cli_here("show", "ticket-77", "--steps", "1-", "--store", path).stdout


def test_who_names_no_rollout_is_told_that_there_are_others(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    store.close()
    newest = cli_here("show", "--store", path)
    assert newest.stdout.startswith("rollout ticket-78")
    told = "The newest of 3 rollouts. To show another one: lightning-ingest show ID"
    assert newest.stderr.startswith(told)
    ids = shlex.split(newest.stderr.partition("Their ids: lightning-ingest ")[2])
    assert ids_in(cli_here(*ids).stdout) == ["ticket-78", "other", "ticket-77"]
    assert cli_here("show", "last", "--store", path).stderr == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("last", "ticket-78"),
        ("ticket-77", "ticket-77"),
        ("oth", "other"),
        (trace_of("other").hex(), "other"),
        ("response-ticket-77-1", "ticket-77"),
    ],
)
def test_a_rollout_is_found_by_what_one_has_of_it(store: Store, name: str, expected: str) -> None:
    assert find_rollout(store, name) == expected


def test_what_means_none_or_several_is_an_error_with_the_nearest_ids(store: Store) -> None:
    with pytest.raises(StoreError, match=r"'ticket' matches several.*: ticket-78, ticket-77\.$"):
        find_rollout(store, "ticket")
    with pytest.raises(StoreError, match=r"named 'tickt-77'. The nearest ids: ticket-77, ticket-7"):
        find_rollout(store, "tickt-77")


def test_an_empty_and_an_old_store_say_what_to_do(tmp_path: Path) -> None:
    with (
        open_store(tmp_path / "empty.duckdb") as store,
        pytest.raises(StoreError, match="lightning-ingest load FILE --store "),
    ):
        find_rollout(store, "last")
    old = unpacked("0.1.0", tmp_path)
    with (
        open_store(old, read_only=True) as store,
        pytest.raises(StoreError, match="lightning-ingest derive --store "),
    ):
        find_rollout(store, "last")


def hostile(text: str) -> str:
    return f"{text}{ESCAPES}"


def test_control_characters_of_anybody_never_reach_a_terminal(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        deliver(
            store, tmp_path,
            make(hostile("id"), task=hostile("task"), agent=hostile("agent"), user=hostile("user"),
                 answers=[hostile("one"), hostile("two")], result=hostile("result")),
            make("failed", error=hostile("timeout")),
            judged(hostile("id"), 1.0, why=hostile("why")),
        )  # fmt: skip
        colored = TextStyle(width=100, in_color=True)
        texts = [
            shown(store, name, look=look) for name in ("id", "failed") for look in (LONG, colored)
        ]
        rows = store.query("SELECT * FROM llm_calls")
        texts += [as_table(rows, Layout(width=width)) for width in (None, 80)]
    assert all(STYLE.sub("", text).replace("\n", "").isprintable() for text in texts)
    assert all("\\x1b]0;title\\x07" in text for text in texts)


@given(st.text())
def test_any_text_is_printable_and_the_styles_are_ours(text: str) -> None:
    look = TextStyle(width=60, in_color=True, cut=False)
    lines = list(text_module._block(text, text, look))
    assert all(STYLE.sub("", line).isprintable() for line in lines)
    assert "".join(lines).count("\x1b") == 2


def test_a_message_that_is_said_twice_is_new_twice() -> None:
    shown = ShownMessages()
    hello = {"role": "user", "parts": [{"type": "text", "content": "Hi"}]}
    news = []
    for call in ([hello], [hello, hello], [hello, hello]):
        shown.begin_call()
        news.append([shown.is_new(message) for message in call])
    assert news == [[True], [False, True], [False, False]]


def test_a_strip_of_many_values_keeps_the_farthest() -> None:
    values = [0.0] * 1000
    values[777] = -5.0
    drawn = strip(values, 50)
    assert (len(drawn), drawn.index("▁")) == (50, 38)
    assert strip([None, None], 10) == ""


def test_a_long_text_is_cut_and_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        deliver(store, tmp_path, make(user="\n".join(f"line {n}" for n in range(500))))
        cut, whole = (shown(store, "last", look=TextStyle(cut=cut)) for cut in (True, False))
    assert "line 29" in cut
    assert "line 30" not in cut
    assert "… 470 more lines (--all)" in cut
    assert "line 499" in whole


@pytest.mark.slow
def test_a_pipe_of_ids_is_read_in_any_format_and_json_has_everything(
    store: Store, tmp_path: Path
) -> None:
    store.close()
    path = str(tmp_path / "t.duckdb")
    for form in ("csv", "json", "table"):
        query = "SELECT rollout_id, llm_calls FROM rollouts ORDER BY start_time"
        ids = cli("sql", query, "--store", path, "--format", form)
        printed = cli("show", "-", "--json", "--store", path, stdin=ids.stdout)
        rollouts = [json.loads(line) for line in printed.stdout.splitlines()]
        assert [one["rollout_id"] for one in rollouts] == ["ticket-77", "other", "ticket-78"]
    first = rollouts[0]
    assert first["steps"][0]["tools"][0]["result"] == "due Friday"
    assert first["steps"][0]["new_messages"][1]["parts"][0]["content"] == "Where is my parcel?"
    assert first["rewards"][0]["value"] == 1.0


def test_nothing_found_ends_with_1_and_a_wrong_range_with_2(store: Store, tmp_path: Path) -> None:
    store.close()
    path = str(tmp_path / "t.duckdb")
    none = cli_here("show", "tickt-77", "--store", path)
    assert (none.returncode, "ticket-77" in none.stderr) == (1, True)
    wrong = cli_here("show", "--steps", "x", "--store", path)
    assert (wrong.returncode, "is no range of steps" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ('[{"task": "t", "rollout_id": "a"}]', ["a"]),
        ('[{"id": "a", "n": 5}, {"id": "b", "n": 6}]', ["a", "b"]),
        ('{"id": "a"}', ["a"]),
        ('["a", "b", "a"]', ["a", "b"]),
        ("id,n\na,5\n", ["id", "a"]),
    ],
)
def test_the_id_may_have_another_name_in_a_pipe(text: str, ids: list[str]) -> None:
    assert ids_in(text) == ids


@pytest.mark.parametrize("text", ["", "[]", "{}", "[{}]", '[{"id": null}]', "null"])
def test_a_pipe_without_an_id_is_one_sentence(text: str) -> None:
    with pytest.raises(StoreError, match="The pipe holds no rollout id"):
        ids_in(text)


@pytest.mark.parametrize("no_color", [False, True])
def test_colors_are_for_a_terminal_and_no_color_turns_them_off(
    store: Store, tmp_path: Path, *, no_color: bool
) -> None:
    store.close()
    command = [sys.executable, "-m", "otel_lightning.collector", "show", "ticket-77", "--no-pager"]
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    environment |= {"LIGHTNING_STORE": str(tmp_path / "t.duckdb"), "TERM": "xterm"}
    if no_color:
        environment["NO_COLOR"] = "1"
    read = in_a_terminal(command, environment)
    assert b"It is due Friday." in read
    assert (b"\x1b[" in read) is not no_color


@pytest.mark.parametrize(("lines", "arguments", "paged"), [
    (5, (), True), (500, (), False), (5, ("--no-pager",), False),
])  # fmt: skip
def test_what_is_longer_than_the_terminal_goes_through_the_pager(
    store: Store, tmp_path: Path, lines: int, arguments: tuple[str, ...], *, paged: bool
) -> None:
    store.close()
    pager, got = tmp_path / "pager", tmp_path / "got"
    pager.write_text(f'#!/bin/sh\necho "$LESS" > "{got}"\ncat >> "{got}"\n')
    pager.chmod(0o755)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "LESS"},
        "LIGHTNING_STORE": str(tmp_path / "t.duckdb"), "TERM": "xterm", "PAGER": str(pager),
        "LINES": str(lines), "COLUMNS": "100",
    }  # fmt: skip
    command = [sys.executable, "-m", "otel_lightning.collector", "show", "ticket-77", *arguments]
    read = in_a_terminal(command, environment)
    assert (b"It is due Friday." in read) is not paged
    assert got.exists() is paged
    if paged:
        assert got.read_text().startswith("-RFX\n")
        assert "It is due Friday." in got.read_text()


def in_a_terminal(command: list[str], environment: dict[str, str]) -> bytes:
    """Run a program in a terminal to its end, and return what it shows."""
    main, terminal = pty.openpty()
    read, deadline = b"", time.monotonic() + 120
    with background(*command, stdout=terminal, stdin=terminal, env=environment) as process:
        os.close(terminal)
        with suppress(OSError):  # the program closed its side
            while select.select([main], [], [], max(deadline - time.monotonic(), 0))[0]:
                read += os.read(main, 65536)
        os.close(main)
        assert process.wait(LIMIT_S) == 0, read
    return read


def test_follow_prints_new_steps_of_a_served_store(
    starter: Callable[..., Ingester], tmp_path: Path
) -> None:
    ingester = starter()
    first, more = (make(answers=["One.", "Two."]) for _ in range(2))
    del first.resource_spans[0].scope_spans[0].spans[1:]
    del more.resource_spans[0].scope_spans[0].spans[:1]
    post(ingester.http, first.SerializeToString())
    path = str(tmp_path / "traces.duckdb")
    eventually(lambda: cli_here("show", "ticket-77", "--store", path).returncode == 0)
    command = [sys.executable, "-m", "otel_lightning.collector", "show", "ticket-77", "--follow"]
    output = tmp_path / "followed.txt"
    with (
        output.open("w") as file,
        background(*command, "--store", path, stdout=file, stderr=file) as process,
    ):
        eventually(lambda: "One." in output.read_text())
        post(ingester.http, more.SerializeToString())
        eventually(lambda: "Two." in output.read_text())
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)
    assert output.read_text().count("One.") == 1
    assert str(NOW) not in output.read_text()


def test_rows_outside_the_rollouts_time_or_without_a_time_are_shown_too(store: Store) -> None:
    whole = read_rollout(store, "ticket-77")
    store.execute("UPDATE tool_calls SET start_time = start_time + INTERVAL 3 days")
    store.execute("UPDATE llm_calls SET start_time = NULL WHERE step = 1")
    moved = read_rollout(store, "ticket-77")
    assert [step.answer for step in moved.steps] == [step.answer for step in whole.steps]
    assert [tool.result for tool in moved.steps[0].tools] == ["due Friday"]


@pytest.mark.parametrize("name", [file.stem for file in sorted(QUERIES.glob("*.sql"))])
def test_a_served_store_answers_each_question_without_a_process_of_its_own(
    store: Store, name: str
) -> None:
    values = {"rollout": "r", "during": Sql("TRUE"), "chosen": Sql("TRUE"), "first": 1}
    sql = statement("otel_lightning.collector.show", name, **values, asked="r", most=5, task_hash=1)
    assert is_bounded(json.loads(serialize(store._connection, sql)))
