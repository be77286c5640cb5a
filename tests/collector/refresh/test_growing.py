"""A conversation that grows: earlier turns are neither parsed nor written again."""

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.deliveries import tables
from support.made_rollouts import deliver

from otel_lightning.collector.derive.batches.parsed_traces import ParsedTraces
from otel_lightning.collector.derive.links import Ties
from otel_lightning.collector.derive.parse import ParsedRows
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.load.batches import Request
from otel_lightning.collector.store import Store, open_store

TURNS = 12
TABLES = ("llm_calls", "tool_calls", "agent_runs", "reward_events", "trace_keys", "rollout_rows")


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def turn(number: int, *, talk: str | None) -> Request:
    """Return one turn: an agent, a call with the whole history, a tool and a reward."""
    history = [
        message(role, f"{role} {at}") for at in range(number) for role in ("user", "assistant")
    ]
    asked = [*history, message("user", f"user {number}")]
    facts: list[dict[str, str]] = [
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"},
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.response.id": f"response-{number}",
            "gen_ai.input.messages": json.dumps(asked),
            "gen_ai.output.messages": json.dumps([message("assistant", f"assistant {number}")]),
        },
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"},
    ]
    if talk:
        facts[0]["gen_ai.conversation.id"] = talk
    sent = ExportTraceServiceRequest()
    spans = sent.resource_spans.add().scope_spans.add().spans
    for place, attributes in enumerate(facts):
        span = spans.add(name=f"span {place}", trace_id=(number + 1).to_bytes(16))
        span.span_id = (10 * number + place + 1).to_bytes(8)
        span.parent_span_id = (10 * number + 1).to_bytes(8) if place else b""
        span.start_time_unix_nano = 1_000 * number + 10 * place + 1
        span.end_time_unix_nano = 1_000 * number + 10 * place + 9
        for key, value in attributes.items():
            span.attributes.add(key=key).value.string_value = value
    event = spans[0].events.add(name="gen_ai.evaluation.result", time_unix_nano=1_000 * number + 5)
    event.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = number
    return Request("traces", 1, sent.SerializeToString())


def late_span(number: int) -> Request:
    """Return a tool's span in the trace of an earlier turn."""
    sent = ExportTraceServiceRequest()
    span = sent.resource_spans.add().scope_spans.add().spans.add(name="late")
    span.trace_id, span.span_id = (number + 1).to_bytes(16), (10 * number + 9).to_bytes(8)
    span.parent_span_id = (10 * number + 1).to_bytes(8)
    span.start_time_unix_nano, span.end_time_unix_nano = 1_000 * number + 50, 1_000 * number + 60
    for key, value in (("operation.name", "execute_tool"), ("tool.name", "order")):
        span.attributes.add(key=f"gen_ai.{key}").value.string_value = value
    return Request("traces", 1, sent.SerializeToString())


def rows_ids(store: Store) -> dict[str, int]:
    rows = store.query("SELECT span_id, rowid AS place FROM llm_calls").to_pylist()
    return {row["span_id"]: row["place"] for row in rows}


@pytest.mark.slow
def test_turns_derived_one_by_one_give_the_tables_of_all_at_once(tmp_path: Path) -> None:
    for talk in ("talk", None):
        requests = [turn(number, talk=talk) for number in range(TURNS)]
        with open_store(tmp_path / f"{talk}-once.duckdb") as store:
            deliver(store, tmp_path, *requests, late_span(2))
            expected = tables(store, TABLES)
        with open_store(tmp_path / f"{talk}.duckdb") as store:
            for number, request in enumerate(requests):
                deliver(store, tmp_path, request)
                if number == TURNS // 2:
                    deliver(store, tmp_path, late_span(2))
            assert tables(store, TABLES) == expected


def turn_that_names_the_last(number: int) -> Request:
    """Return a turn without history, which names the response before it."""
    facts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": f"response-{number}",
        "gen_ai.input.messages": json.dumps([message("user", f"user {number}")]),
        "gen_ai.output.messages": json.dumps([message("assistant", f"assistant {number}")]),
    }
    if number:
        facts["gen_ai.request.previous_response_id"] = f"response-{number - 1}"
    sent = ExportTraceServiceRequest()
    span = sent.resource_spans.add().scope_spans.add().spans.add(name="chat")
    span.trace_id, span.span_id = (number + 1).to_bytes(16), (number + 1).to_bytes(8)
    span.start_time_unix_nano, span.end_time_unix_nano = 1_000 * number + 1, 1_000 * number + 9
    for key, value in facts.items():
        span.attributes.add(key=key).value.string_value = value
    return Request("traces", 1, sent.SerializeToString())


def test_turns_that_name_the_one_before_are_one_rollout_in_any_order(tmp_path: Path) -> None:
    requests = [turn_that_names_the_last(number) for number in range(TURNS)]
    with open_store(tmp_path / "once.duckdb") as store:
        deliver(store, tmp_path, *requests)
        expected = tables(store, TABLES)
        assert store.column("SELECT DISTINCT rollout_id FROM llm_calls")[1:] == []
    for order in (requests, [*requests[::2], *requests[1::2]]):
        folder = tmp_path / str(order is requests)
        folder.mkdir()
        with open_store(folder / "t.duckdb") as store:
            for request in order:
                deliver(store, folder, request)
            assert tables(store, TABLES) == expected


@pytest.mark.slow
def test_the_rows_of_earlier_turns_stay_where_they_are(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        for number in range(TURNS - 1):
            deliver(store, tmp_path, turn(number, talk="talk"))
        before = rows_ids(store)
        deliver(store, tmp_path, turn(TURNS - 1, talk="talk"))
        after = rows_ids(store)
    assert len(after) == TURNS
    assert before.items() <= after.items()


def call(text: str) -> LlmCall:
    made = LlmCall("trace", "span", None, 1, 2, "semconv")
    made.input_messages = [message("user", text)]
    return made


def test_a_kept_trace_is_lent_in_copies() -> None:
    parsed = ParsedTraces()
    parsed.keep(ParsedRows(calls=[call("hello")]), Ties(["trace"], ["key"], ["key"]), ["trace"])
    lent, tied = parsed.of(["trace"])
    lent.calls[0].rollout_id = "changed"
    assert parsed.of(["trace"])[0].calls == [call("hello")]
    assert tied == (["trace"], ["key"], ["key"])


def test_more_text_than_allowed_is_not_kept() -> None:
    parsed = ParsedTraces(most_text=10)
    parsed.keep(ParsedRows(calls=[call("hello")]), Ties([], [], []), ["trace"])
    assert "trace" in parsed
    parsed.keep(ParsedRows(calls=[call("hello again, at length")]), Ties([], [], []), ["trace"])
    assert len(parsed) == 0


def keep(parsed: ParsedTraces, trace_id: str, text: str) -> None:
    """Keep a trace with one call, which shares its message with all calls of the same text."""
    sent = call(text)
    sent.trace_id = trace_id
    sent.input_messages = [parsed.memory.one_copy(message("user", text))]
    parsed.keep(ParsedRows(calls=[sent]), Ties([], [], []), [trace_id])


def test_text_of_a_dropped_trace_is_no_longer_counted() -> None:
    parsed = ParsedTraces(most_text=14)
    for _ in range(3):
        keep(parsed, "first", "8 letter")
        parsed.drop(["first"])
    keep(parsed, "second", "eight ch")
    assert "second" in parsed


def test_text_that_another_trace_shares_is_counted_until_both_are_dropped() -> None:
    parsed = ParsedTraces(most_text=14)
    keep(parsed, "first", "eight ch")
    keep(parsed, "second", "eight ch")
    assert len(parsed) == 2
    parsed.drop(["first"])
    keep(parsed, "third", "more")
    assert len(parsed) == 0
    for name in ("first", "second"):
        keep(parsed, name, "eight ch")
    parsed.drop(["first", "second"])
    keep(parsed, "third", "more")
    assert "third" in parsed
