"""The derived tables of a store, whatever the order, the cut and the number of deliveries."""

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.deliveries import SENT, WITH_REWARD, derived_from, expected, tables
from support.dialects_page import DATA
from support.made_rollouts import deliver, make, trace_of

from otel_lightning.collector.derive.passes.rollouts import conversations
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh.closed_set.closed_set import CROWD
from otel_lightning.collector.refresh.refresh import rebuild, refresh
from otel_lightning.collector.refresh.stale import find_stale, mark_underived
from otel_lightning.collector.store import open_store

NAMES_A_ROLLOUT = ("lightning.rollout.id", "gen_ai.conversation.id", "session.id")


@pytest.mark.parametrize("key", [*NAMES_A_ROLLOUT, "in a former release"])
def test_a_trace_whose_conversation_has_an_empty_id_is_derived(key: str, tmp_path: Path) -> None:
    """It waited for ever, and after --max-lag all senders were refused for it."""
    request = make("chat")
    for span in request.resource_spans[0].scope_spans[0].spans:
        others = [one for one in span.attributes if one.key not in NAMES_A_ROLLOUT]
        del span.attributes[:]
        span.attributes.extend(others)
        span.attributes.add(key=key).value.string_value = ""
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, [Request("traces", 7, request.SerializeToString())], dead_letters=tmp_path)
        if key == "in a former release":
            store.execute("UPDATE stale SET near = '', spans = 1, first_time = received_at")
        stale = find_stale(store)
        assert (stale.new_ids, stale.oldest_ns, stale.put_off_ns) == (1, 7, None)
        while refresh(store):
            pass
        assert not store.rows("FROM stale")
        assert store.count("llm_calls")


def test_lost_marks_are_written_again_though_the_clock_was_ahead_before(tmp_path: Path) -> None:
    now_ns, month_ns = 1_790_000_000_000_000_000, 30 * 86_400_000_000_000
    received = {"older": now_ns - month_ns, "ahead": now_ns + month_ns, "last": now_ns}
    with open_store(tmp_path / "t.duckdb") as store:
        for name, received_ns in received.items():
            body = make(name).SerializeToString()
            load(store, [Request("traces", received_ns, body)], dead_letters=tmp_path)
        store.execute("DELETE FROM stale")
        assert mark_underived(store) == 2
        marked = {trace_of("ahead").hex(), trace_of("last").hex()}
        assert set(store.column("SELECT id FROM stale")) == marked


def test_a_trace_that_breaks_deriving_affects_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd, sound = (trace_of(name).hex() for name in ("odd", "sound"))
    mark = conversations.mark_held

    def breaks_on_a_trace(calls: Sequence[LlmCall]) -> None:
        if any(call.trace_id == odd for call in calls):
            raise TypeError("unhashable")
        mark(calls)

    monkeypatch.setattr(conversations, "mark_held", breaks_on_a_trace)
    with open_store(tmp_path / "t.duckdb") as store:
        for name in ("sound", "odd"):
            body = make(name).SerializeToString()
            load(store, [Request("traces", 1, body)], dead_letters=tmp_path)
        while refresh(store):
            pass
        rows = store.query("SELECT DISTINCT trace_id FROM llm_calls")
        assert rows.column(0).to_pylist() == [sound]
        unread = store.query("SELECT DISTINCT trace_id, reason FROM unread_spans").to_pylist()
        assert unread == [{"trace_id": odd, "reason": "TypeError: unhashable"}]
        assert not len(store.query("FROM stale"))


@pytest.mark.parametrize("count", [2**63 - 1, 1 - 2**63])
def test_counts_whose_sum_no_column_holds_stop_no_deriving(count: int, tmp_path: Path) -> None:
    odd, sound = make("odd"), make("sound")  # of two calls each
    for span in odd.resource_spans[0].scope_spans[0].spans:
        for attribute in span.attributes:
            if attribute.key.startswith("gen_ai.usage."):
                attribute.value.int_value = count
    with open_store(tmp_path / "t.duckdb") as store:
        deliver(store, tmp_path, Request("traces", 1, odd.SerializeToString()))
        deliver(store, tmp_path, Request("traces", 1, sound.SerializeToString()))
        sums = "SELECT rollout_id AS id, input_tokens, output_tokens FROM rollouts ORDER BY 1"
        assert store.query(sums).to_pylist() == [
            {"id": "odd", "input_tokens": None, "output_tokens": None},
            {"id": "sound", "input_tokens": 100 + 200, "output_tokens": 10 + 10},
        ]
        assert not len(store.query("FROM stale"))


SWAPPED = [0, 16, 10, 3, 4, 5, 2, 12, 1, 11, 6, 17, 7, 13, 14, 15, 9, 8]
"""An order in which two tool responses of one time come before and after each other's call."""


@settings(max_examples=5)
@example([*SWAPPED, *range(len(SWAPPED), len(WITH_REWARD))], 0, 0)
@given(
    st.permutations(range(len(WITH_REWARD))), st.integers(0, len(SENT)), st.integers(0, len(SENT))
)
def test_rows_do_not_depend_on_the_order_size_and_number_of_deliveries(
    order: list[int], cut: int, repeated: int
) -> None:
    sent = [WITH_REWARD[number] for number in order]
    assert derived_from([sent[:cut], sent[cut:], sent[repeated:]]) == expected()


def test_children_that_come_before_their_parents_wait_for_nothing() -> None:
    backwards = WITH_REWARD[::-1]
    in_parts = [backwards[at : at + 6] for at in range(0, len(backwards), 6)]
    assert derived_from(in_parts) == expected()


def test_a_rebuild_gives_what_was_there(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        deliver(store, tmp_path, *WITH_REWARD)
        rebuild(store)
        while refresh(store):
            pass
        assert tables(store) == expected()


@pytest.mark.slow
def test_spans_at_once_bounds_a_refresh_and_not_its_result(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, random.Random(1).sample(SENT, len(SENT)), dead_letters=tmp_path)  # noqa: S311
        dealt = []
        while done := refresh(store, spans_at_once=1):
            dealt.append(done)
        assert len(dealt) > 1
        assert tables(store) == derived_from([SENT])


def test_a_conversation_is_derived_again_when_another_trace_of_it_arrives(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        for number in (2, 0, 1):
            deliver(store, tmp_path, turn(number))
        rows = store.query("SELECT step, span_id FROM llm_calls ORDER BY step").to_pylist()
    assert [(row["step"], int(row["span_id"], 16)) for row in rows] == [(0, 1), (1, 2), (2, 3)]


def test_agents_that_send_each_other_messages_are_one_rollout_in_any_order_of_their_traces(
    tmp_path: Path,
) -> None:
    """AutoGen's runtime begins a trace for each message of a team."""
    recording = (DATA / "autogen_teams/tasks.otlp.pb").read_bytes()
    by_trace = list(parts_by_trace(ExportTraceServiceRequest.FromString(recording)))
    random.Random(1).shuffle(by_trace)  # noqa: S311
    with open_store(tmp_path / "t.duckdb") as store:
        for at in range(0, len(by_trace), 20):
            bodies = [one.SerializeToString() for one in by_trace[at : at + 20]]
            deliver(store, tmp_path, *(Request("traces", 1, body) for body in bodies))
        rows = store.query("SELECT llm_calls AS calls FROM rollouts ORDER BY 1").to_pylist()
    assert [row["calls"] for row in rows] == [1, 2, 2, 2, 3, 5]


def parts_by_trace(request: ExportTraceServiceRequest) -> Iterator[ExportTraceServiceRequest]:
    """Yield a request for each trace."""
    found: dict[bytes, ExportTraceServiceRequest] = defaultdict(ExportTraceServiceRequest)
    for group in request.resource_spans:
        for scope in group.scope_spans:
            for span in scope.spans:
                own = found[span.trace_id].resource_spans.add(resource=group.resource)
                own.scope_spans.add(scope=scope.scope, spans=[span])
    yield from found.values()


def test_what_is_known_of_a_growing_conversation_counts_into_a_refresh(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        talks = ("first", "second", "third")
        numbers = {talk: range(50 * at, 50 * at + 20) for at, talk in enumerate(talks)}
        deliver(store, tmp_path, *(turn(n, talk) for talk in talks for n in numbers[talk]))
        more = [turn(numbers[talk][-1] + 1, talk) for talk in talks]
        load(store, more, dead_letters=tmp_path)
        dealt = [refresh(store, spans_at_once=30) for _ in range(4)]
    assert dealt == [21, 21, 21, 0]


def test_a_response_id_that_a_server_gives_to_all_ties_a_bounded_number_of_traces(
    tmp_path: Path,
) -> None:
    sent = ExportTraceServiceRequest()
    spans = sent.resource_spans.add().scope_spans.add().spans
    for number in range(CROWD + 300):
        span = spans.add(
            name="chat", trace_id=(number + 1).to_bytes(16, "big"), span_id=b"\x01" * 8
        )
        span.start_time_unix_nano = span.end_time_unix_nano = number + 1
        span.attributes.add(key="gen_ai.response.id").value.string_value = "chatcmpl-0"
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, [Request("traces", 1, sent.SerializeToString())], dead_letters=tmp_path)
        dealt = [refresh(store, spans_at_once=250) for _ in range(6)]
        (calls,) = store.query("SELECT count(*) FROM llm_calls").column(0).to_pylist()
    assert (max(dealt), dealt[-1], calls) == (CROWD, 50, CROWD + 300)


@pytest.mark.slow
def test_a_tool_in_a_trace_of_its_own_finds_its_call_whichever_comes_first(tmp_path: Path) -> None:
    for order in permutations(one_by_one([ASKS, RAN, ANSWERS])):
        with TemporaryDirectory() as folder, open_store(Path(folder) / "t.duckdb") as store:
            for request in order:
                deliver(store, tmp_path, request)
            rows = store.query("SELECT rollout_id, source, llm_span_id FROM tool_calls").to_pylist()
            (rollout,) = store.query("SELECT DISTINCT rollout_id FROM llm_calls").to_pylist()
        assert rows == [rollout | {"source": "both", "llm_span_id": f"{1:016x}"}]


def test_calls_that_number_their_tool_calls_alike_are_derived_each_for_itself(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        dealt = []
        for request in one_by_one([ASKS, ASKS | {"input.messages": DONE}, RAN]):
            load(store, [request], dead_letters=tmp_path)
            dealt.append(refresh(store))
    assert dealt == [1, 1, 3]


ARGUMENTS = {"city": "Paris"}
ASKED = {"type": "tool_call", "id": "call_1", "name": "weather", "arguments": ARGUMENTS}
ANSWERED = {"type": "tool_call_response", "id": "call_1", "response": "sun"}
QUESTION = [{"role": "user", "parts": [{"type": "text", "content": "And in Paris?"}]}]
REQUEST = [{"role": "assistant", "parts": [ASKED]}]
RESPONSE = [{"role": "tool", "parts": [ANSWERED]}]
DONE = [{"role": "assistant", "parts": [{"type": "text", "content": "Sun."}]}]
ASKS = {"operation.name": "chat", "input.messages": QUESTION, "output.messages": REQUEST}
RAN = {"operation.name": "execute_tool", "tool.name": "weather", "tool.call.id": "call_1"}
HISTORY = [*QUESTION, *REQUEST, *RESPONSE]
ANSWERS = {"operation.name": "chat", "input.messages": HISTORY, "output.messages": DONE}


def one_by_one(spans: Sequence[dict[str, Any]]) -> list[Request]:
    """Return spans with these GenAI attributes, one after the other, each a trace of its own."""
    requests = []
    for number, attributes in enumerate(spans, 1):
        sent = ExportTraceServiceRequest()
        span = sent.resource_spans.add().scope_spans.add().spans.add(name="work")
        span.trace_id, span.span_id = bytes([number]) * 16, number.to_bytes(8, "big")
        span.start_time_unix_nano, span.end_time_unix_nano = number * 1_000, number * 1_000 + 500
        for key, value in attributes.items():
            text = value if isinstance(value, str) else json.dumps(value)
            span.attributes.add(key=f"gen_ai.{key}").value.string_value = text
        requests.append(Request("traces", 1, sent.SerializeToString()))
    return requests


def turn(number: int, talk: str = "talk") -> Request:
    """Return a call in a trace of its own, tied to the others by a conversation alone."""
    sent = ExportTraceServiceRequest()
    span = sent.resource_spans.add().scope_spans.add().spans.add(name="chat")
    span.trace_id, span.span_id = bytes([number + 1]) * 16, (number + 1).to_bytes(8, "big")
    span.start_time_unix_nano = span.end_time_unix_nano = 1_000 + number
    for key, value in (("operation.name", "chat"), ("conversation.id", talk)):
        span.attributes.add(key=f"gen_ai.{key}").value.string_value = value
    return Request("traces", 1, sent.SerializeToString())


def calls_with_rewards(values: Sequence[float | None], last: float | None = None) -> Request:
    """Return a trace of calls with equal prompts, some judged on their own span, and the whole."""
    sent = ExportTraceServiceRequest()
    spans = sent.resource_spans.add().scope_spans.add().spans
    for number, value in enumerate([last, *values]):
        span = spans.add(name="chat" if number else "run", trace_id=b"\x01" * 16)
        span.span_id = (number + 1).to_bytes(8, "big")
        span.parent_span_id = (1).to_bytes(8, "big") if number else b""
        span.start_time_unix_nano = span.end_time_unix_nano = 1_000 + number
        prompt = '[{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]'
        said = {"operation.name": "chat", "input.messages": prompt} if number else {}
        for key, text in said.items():
            span.attributes.add(key=f"gen_ai.{key}").value.string_value = text
        if value is not None:
            event = span.events.add(name="gen_ai.evaluation.result")
            event.time_unix_nano = 2_000 + number if number else 3_000
            event.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = value
    return Request("traces", 1, sent.SerializeToString())


def asked_of(request: Request, folder: Path, sql: str) -> list[dict[str, object]]:
    with open_store(folder / "t.duckdb") as store:
        deliver(store, folder, request)
        rows: list[dict[str, object]] = store.query(sql).to_pylist()
    return rows


BY_SPAN = "SELECT span_id, value FROM rewards ORDER BY time"


def test_the_last_reward_stays_with_its_own_span(tmp_path: Path) -> None:
    (row,) = asked_of(calls_with_rewards([None, None, 0.5]), tmp_path, BY_SPAN)
    assert (row["span_id"], row["value"]) == (f"{4:016x}", 0.5)


def test_a_reward_after_each_of_five_calls_and_one_of_the_whole_are_six(tmp_path: Path) -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    rows = asked_of(calls_with_rewards(values, last=1.0), tmp_path, BY_SPAN)
    assert [row["value"] for row in rows] == [*values, 1.0]
    assert len({row["span_id"] for row in rows}) == 6


def test_a_missing_reward_is_null_and_not_zero(tmp_path: Path) -> None:
    (row,) = asked_of(calls_with_rewards([None]), tmp_path, "SELECT final_reward FROM rollouts")
    assert row["final_reward"] is None


def test_calls_that_share_a_prompt_stay_separate_steps(tmp_path: Path) -> None:
    sql = "SELECT step, span_id FROM llm_calls ORDER BY step"
    rows = asked_of(calls_with_rewards([None] * 5), tmp_path, sql)
    assert [row["step"] for row in rows] == list(range(5))
    assert len({row["span_id"] for row in rows}) == 5


def carrier(judged: int) -> Request:
    """Return OpenInference's feedback on the call of a turn, in a trace of its own."""
    sent = ExportTraceServiceRequest()
    span = sent.resource_spans.add().scope_spans.add().spans.add(name="evaluation")
    span.trace_id, span.span_id = b"\xee" * 16, b"\xee" * 8
    span.start_time_unix_nano = span.end_time_unix_nano = 9_000
    fields = {"evaluations.0.evaluation.name": "right", "openinference.span.kind": "EVALUATOR"}
    for key, text in fields.items():
        span.attributes.add(key=key).value.string_value = text
    span.attributes.add(key="evaluations.0.evaluation.score").value.double_value = 0.5
    called = (judged + 1).to_bytes(8, "big")
    span.links.add(trace_id=bytes([judged + 1]) * 16, span_id=called)
    return Request("traces", 1, sent.SerializeToString())


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_feedback_with_a_link_judges_the_linked_call(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    """The feedback may come before the call, and what is derived again stays one reward."""
    requests = turn(0, "one"), turn(1, "two"), carrier(1)
    with open_store(tmp_path / "t.duckdb") as store:
        for number in order:
            deliver(store, tmp_path, requests[number])
        expected = {"name": "right", "value": 0.5, "rollout_id": "two", "span_id": f"{2:016x}"}
        sql = "SELECT name, value, rollout_id, span_id FROM rewards"
        assert store.query(sql).to_pylist() == [expected]
        judged = "SELECT final_reward FROM rollouts WHERE rollout_id = 'two'"
        assert store.column(judged) == [0.5]
        for number in order:
            for span in spans_of(requests[number]):
                deliver(store, tmp_path, late_sibling(span))
        assert store.query(sql).to_pylist() == [expected]


def spans_of(request: Request) -> list[Any]:
    sent = ExportTraceServiceRequest.FromString(request.body)
    return [span for scope in sent.resource_spans[0].scope_spans for span in scope.spans]


def late_sibling(span: Any) -> Request:
    """Return another span of the same trace, so that the trace is derived again."""
    sent = ExportTraceServiceRequest()
    late = sent.resource_spans.add().scope_spans.add().spans.add(name="late")
    late.trace_id, late.span_id = span.trace_id, b"\xab" * 8
    late.start_time_unix_nano = late.end_time_unix_nano = span.end_time_unix_nano
    return Request("traces", 1, sent.SerializeToString())
