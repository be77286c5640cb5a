"""A large trace that gets late spans: only these are read, and only what they change is written."""

import json
import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.deliveries import single_requests, tables
from support.examples import examples

from otel_lightning.collector.derive.batches import large_traces
from otel_lightning.collector.derive.batches.batch import Batch
from otel_lightning.collector.derive.batches.large_traces import LargeTraces
from otel_lightning.collector.derive.batches.parsed_traces import ParsedTraces
from otel_lightning.collector.derive.batches.rows_by_trace import KEYS, change, rows_by_key
from otel_lightning.collector.derive.parse import ParsedRows
from otel_lightning.collector.derive.rows import LlmCall, ToolCall
from otel_lightning.collector.derive.span_tree import Node
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.retention import forget
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.refresh.closed_set import late_spans
from otel_lightning.collector.refresh.closed_set.closed_set import ClosedSet, size_new
from otel_lightning.collector.refresh.refresh import rebuild, refresh
from otel_lightning.collector.refresh.time_ranges.recent_traces import RecentTraces, recent_traces
from otel_lightning.collector.store import Store, open_store
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

COMPARED = (
    "llm_calls", "tool_calls", "agent_runs", "retrievals", "rewards", "reward_events", "arms",
    "rollouts", "rollout_rows", "rollout_tasks", "trace_keys", "unread_spans",
)  # fmt: skip
SECOND_NS = 1_000_000_000
REWARD = "gen_ai.evaluation.result"
OTHER_TRACE = (11, 12)
"""The numbers of the spans of a second trace."""
CAPTURES = (
    "js_otel_openai/tool", "agentlightning/tool", "openinference_openai/tool", "mastra_0/tasks",
    "langsmith_wrapped/parallel", "logfire/stream_tool", "traceloop_anthropic/error_gather",
    "claude_agent_sdk/session", "judgment/growing", "ms_agent_framework/handoff",
    "logfire_openai_agents/failed",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _all_traces_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_traces, "LARGE_SPANS", 1)
    monkeypatch.setattr(late_spans, "GROWN", 1_000)


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def request(span: Span) -> Request:
    sent = ExportTraceServiceRequest()
    scope = sent.resource_spans.add().scope_spans.add()
    scope.spans.append(span)
    return Request("traces", 1, sent.SerializeToString())


def span(number: int, parent: int | None, **attributes: Any) -> Span:
    made = Span(
        trace_id=(2 if number in OTHER_TRACE else 1).to_bytes(16),
        span_id=number.to_bytes(8), name=f"span {number}",
        parent_span_id=b"" if parent is None else parent.to_bytes(8),
        start_time_unix_nano=number * SECOND_NS, end_time_unix_nano=(number + 1) * SECOND_NS - 1,
    )  # fmt: skip
    for key, value in attributes.items():
        text = value if isinstance(value, str) else json.dumps(value)
        made.attributes.add(key=key.replace("__", ".")).value.string_value = text
    return made


def call(number: int, parent: int, history: Sequence[Any], answer: Any, **more: Any) -> Span:
    facts = {
        "gen_ai__operation__name": "chat", "gen_ai__request__model": "m",
        "gen_ai__response__id": f"response-{number}", "gen_ai__input__messages": [*history],
        "gen_ai__output__messages": [answer],
    }  # fmt: skip
    return span(number, parent, **facts, **more)


def tool(number: int, parent: int, name: str, call_id: str | None) -> Span:
    facts = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": name}
    named = {"gen_ai__tool__call__id": call_id} if call_id else {}
    given = {"gen_ai__tool__call__arguments": {"q": name}, "gen_ai__tool__call__result": name}
    return span(number, parent, **facts, **named, **given)


def made() -> list[Request]:
    """Return a trace with agents, calls, tools, duplicates, rewards, arms and log records."""
    asks = {
        "role": "assistant",
        "parts": [
            {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "search"}}
        ],
    }
    told = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "x"}]}
    said, final = message("user", "hello"), message("assistant", "bye")
    agent = {"gen_ai__operation__name": "invoke_agent", "gen_ai__agent__name": "a"}
    spans = [
        span(1, None, lightning__task__id="task", **agent),
        call(2, 1, [said], asks),
        call(3, 2, [said], asks, gen_ai__conversation__id="talk"),  # the same call, recorded twice
        tool(4, 1, "search", "c1"),
        tool(5, 1, "order", None),
        call(6, 1, [said, asks, told], final),
        span(7, 1, **agent | {"gen_ai__agent__name": "b"}),
        call(8, 7, [message("user", "apart")], message("assistant", "so")),
        span(9, 1, gen_ai__operation__name="retrieval"),
        call(10, 7, [message("user", "bad")], message("assistant", "x"), error__type="timeout"),
        span(11, None, gen_ai__conversation__id="talk", **agent),
        span(12, 11),
    ]
    event = spans[3].events.add(name="gen_ai.evaluation.result", time_unix_nano=5 * SECOND_NS)
    event.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = 0.5
    event = spans[5].events.add(name="feature_flag.evaluation", time_unix_nano=6 * SECOND_NS)
    event.attributes.add(key="feature_flag.key").value.string_value = "prompt"
    event.attributes.add(key="feature_flag.result.variant").value.string_value = "short"
    return [*map(request, spans), *logs()]


def logs() -> list[Request]:
    """Return log records: what a call was asked, a reward of a span and one of the whole trace."""
    found = []
    for number, name in ((8, "gen_ai.user.message"), (6, REWARD), (None, REWARD)):
        sent = ExportLogsServiceRequest()
        record = sent.resource_logs.add().scope_logs.add().log_records.add()
        record.event_name, record.time_unix_nano = name, 20 * SECOND_NS
        record.trace_id = (1).to_bytes(16)
        record.span_id = number.to_bytes(8) if number else b""
        record.body.string_value = json.dumps({"role": "user", "content": "from a log"})
        record.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = number or 0
        found.append(Request("logs", 1, sent.SerializeToString()))
    return found


def at(sent: Request, seconds: int) -> Request:
    return sent._replace(received_ns=seconds * SECOND_NS)


def derive(store: Store) -> None:
    while refresh(store):
        pass


def all_at_once(sent: Sequence[Request]) -> dict[str, list[str]]:
    with TemporaryDirectory() as folder, open_store(Path(folder) / "t.duckdb") as store:
        load(store, sent, dead_letters=Path(folder))
        derive(store)
        return tables(store, COMPARED)


@cache
def made_at_once(_large_spans: int) -> dict[str, list[str]]:
    """Return the tables of `made` while traces of this size are large ones."""
    return all_at_once(made())


def in_portions(sent: Sequence[Request], chance: random.Random) -> dict[str, list[str]]:
    """Deliver requests in any order and in portions, some twice, while the clock is set back."""
    with TemporaryDirectory() as folder, open_store(Path(folder) / "t.duckdb") as store:
        known, left, now = SeenIds(store), chance.sample(sent, len(sent)), 100
        while left:
            size = chance.choice([1, 1, 2, 5])
            some, left, now = left[:size], left[size:], now + 1
            twice = [chance.choice(some)] if chance.random() < 0.2 else []
            received = [at(one, now - chance.choice([0, 0, 50])) for one in (*some, *twice)]
            load(store, received, known, dead_letters=Path(folder))
            if chance.random() < 0.7:
                refresh(store)
            if chance.random() < 0.05:  # as after a rollback
                recent_traces(store).clear()
        derive(store)
        return tables(store, COMPARED)


@examples(8)
@given(st.randoms(use_true_random=False))
def test_any_order_and_any_portions_give_the_tables_of_all_at_once(chance: random.Random) -> None:
    assert in_portions(made(), chance) == made_at_once(large_traces.LARGE_SPANS)


@pytest.mark.parametrize("size", [1, 1_000], ids=["large", "small"])
@examples(8)
@given(chance=st.randoms(use_true_random=False))
def test_spans_that_were_also_sent_while_they_ran_give_the_tables_of_whole_ones(
    size: int, chance: random.Random
) -> None:
    sent = made()
    states = [one for whole in sent for one in while_running(whole, chance)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_traces, "LARGE_SPANS", size)
        assert in_portions([*sent, *states], chance) == made_at_once(size)


def while_running(sent: Request, chance: random.Random) -> Iterator[Request]:
    """Yield states in which a span was sent before it ended, with some of its attributes."""
    for _ in range(chance.choice([0, 1, 2]) if sent.signal == "traces" else 0):
        state = ExportTraceServiceRequest.FromString(sent.body)
        (one,) = state.resource_spans[0].scope_spans[0].spans
        one.end_time_unix_nano = chance.choice([0, one.start_time_unix_nano])
        del one.attributes[chance.randint(0, len(one.attributes)) :]
        del one.events[:]
        yield sent._replace(body=state.SerializeToString())


@pytest.mark.slow
@examples(20)
@given(st.sampled_from(CAPTURES), st.randoms(use_true_random=False))
def test_recordings_in_any_portions_give_the_tables_of_all_at_once(
    capture: str, chance: random.Random
) -> None:
    sent = list(single_requests(capture))
    assert in_portions(sent, chance) == all_at_once(sent)


@pytest.mark.parametrize("size", [1, 1_000], ids=["large", "small"])
@pytest.mark.parametrize("has_calls", [True, False], ids=["calls", "no calls"])
def test_a_rollout_that_gets_another_id_leaves_no_task_behind(
    size: int, *, has_calls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_traces, "LARGE_SPANS", size)
    named = {"lightning__task__id": "task"}
    first = call(2, 1, [], message("assistant", "a"), **named) if has_calls else span(2, 1, **named)
    root = span(1, None, lightning__rollout__id="another")
    with open_store(tmp_path / "t.duckdb") as store:
        for sent in (first, root):
            load(store, [at(request(sent), 5)], dead_letters=tmp_path)
            derive(store)
        rows = store.query("FROM rollout_tasks").to_pylist()
    trace_id = (1).to_bytes(16).hex()
    assert rows == [{"rollout_id": "another", "task_id": "task", "stated_by": trace_id}]


@pytest.mark.parametrize("kind", ["gen_ai.user.message", REWARD])
@pytest.mark.parametrize("comes_first", ["span", "log record"])
def test_a_log_record_may_come_before_the_span_that_it_names_and_after_it(
    kind: str, comes_first: str, tmp_path: Path
) -> None:
    bare = span(8, 1, gen_ai__operation__name="chat", gen_ai__request__model="m")
    root, named = request(span(1, None)), request(bare)
    (said,) = (one for one in logs()[:2] if kind.encode() in one.body)
    said = of_span(said, 8)
    order = [named, said] if comes_first == "span" else [said, named]
    with open_store(tmp_path / "t.duckdb") as store:
        for number, some in enumerate(([root, order[0]], [order[1]])):
            load(store, [at(one, 5 + number) for one in some], dead_letters=tmp_path)
            derive(store)
        assert tables(store, COMPARED) == all_at_once([root, named, said])


def test_a_tool_call_whose_execution_comes_late_is_replaced(tmp_path: Path) -> None:
    asks = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "search"}]}
    told = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "x"}]}
    first = [
        request(one)
        for one in (
            span(1, None),
            call(2, 1, [message("user", "hello")], asks),
            call(6, 1, [message("user", "hello"), asks, told], message("assistant", "bye")),
        )
    ]
    late = [request(tool(4, 1, "search", "c1"))]
    with open_store(tmp_path / "t.duckdb") as store:
        for number, some in enumerate((first, late)):
            load(store, [at(one, 5 + number) for one in some], dead_letters=tmp_path)
            derive(store)
            assert store.query("SELECT tool_call_id FROM tool_calls").num_rows == 1
        assert tables(store, COMPARED) == all_at_once([*first, *late])


def late_spans_parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of spans that each parsing of late spans has read."""
    parsed: list[int] = []
    read = LargeTraces.with_late

    def note(kept: LargeTraces, trace_id: str, found: ParsedRows) -> ParsedRows:
        parsed.append(len(found.nodes))
        return read(kept, trace_id, found)

    monkeypatch.setattr(LargeTraces, "with_late", note)
    return parsed


def test_a_kept_trace_without_new_spans_is_not_read_again_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (
        request(call(number, 1, [], message("assistant", "a"), gen_ai__conversation__id="talk"))
        for number in (2, OTHER_TRACE[0])
    )
    parsed = late_spans_parsed(monkeypatch)
    with open_store(tmp_path / "t.duckdb") as store:
        for number, sent in enumerate((one, other)):
            load(store, [at(sent, 5 + number)], dead_letters=tmp_path)
            derive(store)
        assert parsed == [0]
        assert tables(store, COMPARED) == all_at_once([one, other])


def of_span(sent: Request, number: int) -> Request:
    """Return the request of a log record that names another span."""
    message = ExportLogsServiceRequest.FromString(sent.body)
    message.resource_logs[0].scope_logs[0].log_records[0].span_id = number.to_bytes(8)
    return sent._replace(body=message.SerializeToString())


@pytest.mark.parametrize(
    ("grown", "is_noted", "is_resumed"), [(3, True, True), (2, True, False), (3, False, False)]
)
def test_a_trace_that_grew_much_or_whose_late_spans_are_unknown_is_read_as_a_whole(
    grown: int, *, is_noted: bool, is_resumed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_spans, "GROWN", grown)
    trace_id, parsed = (1).to_bytes(16).hex(), ParsedTraces()
    node = Node((trace_id, ""), "span 1", 1, {})
    parsed.large.keep(trace_id, ParsedRows(nodes={(trace_id, (1).to_bytes(8).hex()): node}))
    parsed.large.note_stored(trace_id, rows_by_key({}))
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, [at(request(span(1, None)), 5)], dead_letters=tmp_path)
        load(store, [at(request(span(2, 1)), 6)], dead_letters=tmp_path)
        recent = recent_traces(store)
        recent.clear()
        if is_noted:
            recent.arrived([trace_id], [True], 5 * SECOND_NS)
            recent.derived([trace_id], [], {})
            recent.arrived([trace_id], [False], 6 * SECOND_NS)
        with store.transaction():
            size_new(store)
            closed = ClosedSet(store, 10, ())
            found = late_spans.resume(store, closed, Batch(parsed), parsed)
    assert (trace_id in found, trace_id in parsed.large) == (is_resumed, is_resumed)


def rows_ids(store: Store, table: str) -> dict[str, int]:
    rows = store.query(f"SELECT span_id, rowid AS place FROM {table}").to_pylist()
    return {row["span_id"]: row["place"] for row in rows}


def test_rows_that_a_late_span_does_not_change_stay_where_they_are(tmp_path: Path) -> None:
    history = [message("user", "one"), message("assistant", "two"), message("user", "three")]
    calls = [
        call(number, 1, history[:number], message("assistant", str(number)))
        for number in (2, 4, 6, 8)
    ]
    root = span(1, None, gen_ai__operation__name="invoke_agent", gen_ai__conversation__id="talk")
    late = call(5, 1, history[:1], message("assistant", "late"))
    with open_store(tmp_path / "t.duckdb") as store:
        for some in ([root, *calls], [tool(9, 1, "order", None)], [late]):
            load(store, [at(request(one), 7) for one in some], dead_letters=tmp_path)
            before = rows_ids(store, "llm_calls"), rows_ids(store, "agent_runs")
            derive(store)
        after = rows_ids(store, "llm_calls"), rows_ids(store, "agent_runs")
        steps = store.query("SELECT span_id, step FROM llm_calls ORDER BY step").to_pylist()
    # The late call is the third step, so only the rows of the two calls after it are new.
    assert [int(row["span_id"], 16) for row in steps] == [2, 4, 5, 6, 8]
    moved = {name for name, place in before[0].items() if after[0][name] != place}
    assert {int(name, 16) for name in moved} == {6, 8}
    assert after[1] == before[1]


def test_a_late_span_is_the_only_one_that_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, late = made()[:10], made()[10:]
    parsed = late_spans_parsed(monkeypatch)
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, [at(one, 5) for one in first], dead_letters=tmp_path)
        derive(store)
        load(store, [at(request(tool(13, 1, "late", None)), 6)], dead_letters=tmp_path)
        derive(store)
        assert parsed == [1]
        # A span, a log record that names another one, and a reward of the whole trace.
        load(
            store, [at(one, 7) for one in (request(span(14, 1)), *late[-3:])], dead_letters=tmp_path
        )
        derive(store)
        assert parsed == [1, 3]


@pytest.mark.parametrize("undo", ["forget", "rebuild"])
def test_a_trace_that_is_deleted_and_sent_again_has_nothing_of_what_was_kept(
    undo: str, tmp_path: Path
) -> None:
    sent = [request(span(1, None)), request(call(2, 1, [], message("assistant", "a")))]
    again = [sent[0], request(call(3, 1, [], message("assistant", "b")))]
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, [at(one, 5) for one in sent], dead_letters=tmp_path)
        derive(store)
        if undo == "forget":
            assert forget(store, LoaderSettings(retain_seconds=1), 100 * SECOND_NS) == 1
        load(store, [at(one, 99) for one in again], dead_letters=tmp_path)
        if undo == "rebuild":
            rebuild(store)
        derive(store)
        calls = store.query("SELECT span_id FROM llm_calls ORDER BY 1").column(0).to_pylist()
    assert [int(one, 16) for one in calls] == ([3] if undo == "forget" else [2, 3])


def reading(trace_id: str, text: str) -> ParsedRows:
    """Return what a trace of one call says."""
    made_call = LlmCall(trace_id, "s", None, 1, 2, "semconv")
    made_call.input_messages = [message("user", text)]
    node = Node((trace_id, ""), "call", 1, {})
    return ParsedRows(nodes={(trace_id, "s"): node}, calls=[made_call])


def test_the_traces_that_were_kept_first_are_dropped_first() -> None:
    for kept in (LargeTraces(most_spans=2), LargeTraces(most_text=16)):
        for trace_id in ("first", "second"):
            kept.keep(trace_id, reading(trace_id, "text"))
        kept.add("first", ParsedRows())
        kept.keep("third", reading("third", "more"))
        assert [one for one in ("first", "second", "third") if one in kept] == ["first", "third"]


def test_kept_rows_are_lent_in_copies_and_replaced_by_those_that_are_read_again() -> None:
    kept = LargeTraces()
    kept.keep("t", reading("t", "old"))
    kept.with_late("t", ParsedRows()).calls[0].rollout_id = "changed"
    (same,) = kept.with_late("t", ParsedRows()).calls
    assert (same.rollout_id, same.input_messages) == (None, [message("user", "old")])
    kept.add("t", reading("t", "new"))
    (replaced,) = kept.with_late("t", ParsedRows()).calls
    assert replaced.input_messages == [message("user", "new")]


def test_rows_with_one_key_are_replaced_together() -> None:
    one, other = ToolCall("a", "t", tool_call_id="c"), ToolCall("b", "t", tool_call_id="c")
    apart = ToolCall("a", "t", tool_call_id="d")
    before, rows = rows_by_key({"tool_calls": [one, apart]}), {"tool_calls": [one, other, apart]}
    found = change(before, rows_by_key(rows), rows)
    assert found.new["tool_calls"] == [one, other]
    assert found.same["tool_calls"] == [apart]
    assert found.gone["tool_calls"] == [(None, None, "c")]


def test_several_rows_with_one_key_are_compared_each() -> None:
    first, last = ToolCall("a", "t", tool_call_id="c"), ToolCall("b", "t", tool_call_id="c")
    other = ToolCall("A", "t", tool_call_id="c")
    rows = {"tool_calls": [other, last]}
    assert change(rows_by_key({"tool_calls": [first, last]}), rows_by_key(rows), rows).new == {
        **{key: [] for key in KEYS},
        **rows,
    }


def test_what_came_late_is_searched_from_its_smallest_time_on() -> None:
    recent = RecentTraces()
    recent.arrived(["a"], [True], 7)
    recent.derived(["a"], [], {})
    assert recent.late_since("a") is None
    for received_ns in (9, 8, 10):
        recent.arrived(["a"], [False], received_ns)
    assert recent.late_since("a") == 8
    recent.derived([], [], {}, in_part=["a"])
    assert recent.late_since("a") is None


def test_a_span_whose_arrival_was_not_noted_is_derived_with_the_next_one(tmp_path: Path) -> None:
    first, unnoted, last = (
        at(request(tool(number, 1, "order", None)), number) for number in (4, 5, 6)
    )
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, [first], dead_letters=tmp_path)
        derive(store)
        load(store, [unnoted], dead_letters=tmp_path, derives=False)
        load(store, [last], dead_letters=tmp_path)
        derive(store)
        assert store.count("tool_calls") == 3


def test_a_log_record_that_came_before_its_span_is_read_with_it(tmp_path: Path) -> None:
    asked_by_log = span(8, 1, gen_ai__operation__name="chat", gen_ai__request__model="m")
    with open_store(tmp_path / "t.duckdb") as store:
        for some in (request(span(1, None)), logs()[0], request(asked_by_log)):
            load(store, [at(some, 5 + store.count("spans"))], dead_letters=tmp_path)
            derive(store)
        (said,) = store.query("SELECT input_messages::VARCHAR FROM llm_calls").column(0).to_pylist()
    assert "from a log" in said


def test_a_trace_that_was_forgotten_and_is_sent_again_lacks_the_reward_of_a_log(
    tmp_path: Path,
) -> None:
    sent = [request(span(1, None)), request(call(6, 1, [], message("assistant", "a")))]
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, [at(one, 5) for one in (*sent, logs()[1])], dead_letters=tmp_path)
        derive(store)
        assert store.count("reward_events") == 1
        forget(store, LoaderSettings(retain_seconds=1), 100 * SECOND_NS)
        load(store, [at(one, 99) for one in sent], dead_letters=tmp_path)
        derive(store)
        assert (store.count("llm_calls"), store.count("reward_events")) == (1, 0)
