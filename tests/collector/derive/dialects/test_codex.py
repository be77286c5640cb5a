"""Codex's dialect."""

from support.captures import load
from support.dialects_page import DATA
from support.spans import log, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, LlmCall, Span, ToolCall

TURN = span(
    {"target": "codex_core::session::turn", "model": "m", "turn_id": "t"},
    id="turn",
    name="try_run_sampling_request",
    ends=9,
)


def below(name: str, module: str, attributes: dict[str, object], *events: Event) -> Span:
    """Return a span inside the turn."""
    told = {"target": f"codex_{module}", **attributes}
    return span(told, id=name, parent="turn", name=name, at=1, ends=2, events=events)


def request(*attempts: dict[str, str]) -> LlmCall:
    """Return the call of a turn whose request was sent with these outcomes."""
    events = tuple(
        Event("event x.rs:8", 0, {"event.name": "codex.api_request", **each}) for each in attempts
    )
    sent = below("endpoint_session.stream_encoded_json_with", "api::endpoint", {}, *events)
    (call,) = derive([TURN, sent], []).llm_calls
    return call


def test_each_conversation_is_a_rollout_with_its_requests_and_executions() -> None:
    capture = load(DATA / "codex" / "tasks.truth.json")
    derived = derive(capture.spans, capture.logs)
    steps = [(call.rollout_id, call.step) for call in derived.llm_calls]
    talks = {rollout: None for rollout, _ in steps}
    assert [sum(1 for rollout, _ in steps if rollout == talk) for talk in talks] == [4, 2, 1, 3]
    assert [call.error_type for call in derived.llm_calls if call.error_type] == ["400"]
    ran = [
        (tool.name, tool.tool_call_id, tool.arguments, tool.result) for tool in derived.tool_calls
    ]
    asked = {
        one["id"]: one
        for call in capture.truth["llm_calls"]
        for said in call["output_messages"]
        for one in said["tool_calls"]
    }
    assert len(ran) == len(asked)
    assert all(
        name == asked[own or ""]["name"] and given and told for name, own, given, told in ran
    )


def test_a_request_has_the_model_the_counts_and_the_time_of_its_turn() -> None:
    counts = {"gen_ai.usage.input_tokens": 31, "gen_ai.usage.output_tokens": 9}
    cached = {"gen_ai.usage.cache_read.input_tokens": 16, "codex.usage.reasoning_output_tokens": 4}
    received = below("handle_responses", "core::session::turn", {**counts, **cached})
    (call,) = derive([TURN, received], []).llm_calls
    assert (call.span_id, call.start_ns, call.request_model) == ("turn", TURN.start_ns, "m")
    assert (call.input_tokens, call.output_tokens) == (31, 9)
    assert (call.cached_input_tokens, call.reasoning_tokens) == (16, 4)


def test_a_request_that_was_refused_has_its_status_as_the_error_type() -> None:
    refused = {"http.response.status_code": "400", "error.message": "http 400"}
    call = request(refused)
    assert (call.error_type, call.error_message, call.finish_reason) == ("400", "http 400", "error")


def test_a_request_that_was_answered_at_the_second_attempt_has_no_error() -> None:
    call = request({"http.response.status_code": "500"}, {"http.response.status_code": "200"})
    assert call.error_type is None


def executed(success: str, **more: str) -> ToolCall:
    """Return the execution of a tool, with what the log record says of it."""
    asked = {"call_id": "c1", "tool_name": "sun", "tool_source": "direct", **more}
    around = below("sun", "core::tools::parallel", asked)
    named = {"event.name": "codex.tool_result", "call_id": "c1", "tool_name": "sun"}
    inner = span(
        {"target": "codex_core::tools::router"},
        id="inner",
        parent="sun",
        name="dispatch_tool_call_with_state",
        at=1,
        events=(Event("event x.rs:9", 0, {**named, "success": success}),),
    )
    whole = {**named, "arguments": '{"city":"Rome"}', "output": "It shines."}
    record = log("event x.rs:9", attributes=whole, trace=inner.trace_id, span_id="inner")
    (tool,) = derive([TURN, around, inner], [record]).tool_calls
    return tool


def test_an_execution_has_what_only_the_log_record_says() -> None:
    tool = executed("true")
    assert (tool.span_id, tool.name, tool.tool_call_id) == ("sun", "sun", "c1")
    assert (tool.arguments, tool.result, tool.error_type) == ({"city": "Rome"}, "It shines.", None)


def test_an_execution_that_failed_or_was_aborted_has_an_error() -> None:
    assert executed("false").error_type == "tool_error"
    assert executed("true", aborted="true").error_type == "aborted"
