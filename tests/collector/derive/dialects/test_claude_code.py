"""Claude Code's dialect."""

import json
from typing import Any

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.spans import chat, log, span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.parse import read
from otel_lightning.collector.derive.rows import Event, Log, Span

REQUEST = {"span.type": "llm_request", "gen_ai.request.model": "m", "gen_ai.system": "anthropic"}
ASKED = "claude_code.llm_request"


def test_each_session_is_a_rollout_with_its_requests_and_executions() -> None:
    capture = load(DATA / "claude_code" / "tasks.truth.json")
    derived = derive(capture.spans, capture.logs)
    steps = [(call.rollout_id, call.step) for call in derived.llm_calls]
    first, second = {rollout: None for rollout, _ in steps}
    assert sorted(steps) == sorted([*((first, n) for n in range(4)), (second, 0), (second, 1)])
    ran = [(tool.name, tool.result, tool.error_type) for tool in derived.tool_calls]
    assert sorted(ran, key=str) == [
        ("rain", "It rains in Ostia until noon.", None),
        ("rain", "It rains in Rome until noon.", None),
        ("rain", None, "tool_error"),
    ]


def test_tokens_from_the_cache_count_as_input() -> None:
    counts = {"input_tokens": 3, "output_tokens": 9, "cache_read_tokens": 20}
    given = span(
        {**REQUEST, **counts, "cache_creation_tokens": 8, "stop_reason": "end_turn"},
        name="claude_code.llm_request",
    )
    (call,) = derive([given], []).llm_calls
    assert (call.input_tokens, call.output_tokens, call.cached_input_tokens) == (31, 9, 20)


def test_the_requests_of_a_sub_agent_are_not_the_main_agents() -> None:
    """Their spans are below that of the tool `Agent`, in version 2.1.332."""
    run = {"span.type": "interaction", "gen_ai.operation.name": "invoke_agent"}
    tool = {"span.type": "tool", "gen_ai.operation.name": "execute_tool", "tool_name": "Agent"}
    named = {"query_source_safe": "agent.custom", "agent_id": "a2de", "stop_reason": "end_turn"}
    spans = [
        span(run, id="run", name="claude_code.interaction"),
        span({**REQUEST, "query_source_safe": "sdk"}, id="main", parent="run", name=ASKED),
        span(tool, id="tool", parent="run", name="claude_code.tool", at=1),
        span({**REQUEST, **named}, id="sub", parent="tool", name=ASKED, at=1),
    ]
    calls = {call.span_id: call.agent_name for call in derive(spans, []).llm_calls}
    assert calls == {"main": "claude_code.interaction", "sub": "agent.custom"}


def test_a_request_that_failed_has_its_status_as_the_error_type() -> None:
    failed = {**REQUEST, "success": False, "status_code": 400, "error": "no weather in Nowhere"}
    given = span(failed, name="claude_code.llm_request", status="ERROR", message="no weather")
    (call,) = derive([given], []).llm_calls
    assert (call.error_type, call.finish_reason) == ("400", "error")


def test_detailed_tracing_has_answers_tool_names_and_arguments() -> None:
    tools = [{"name": "sun", "hash": "1"}]
    asked = span(
        {**REQUEST, "tools": tools, "response.model_output": "It shines."},
        id="call",
        name="claude_code.llm_request",
    )
    ran = span(
        {
            "span.type": "tool",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "sun",
            "tool_input": '[TOOL INPUT: sun]\n{"city":"Rome"}',
        },
        id="tool",
        name="claude_code.tool",
        events=(Event("tool.output", 0, {"output": "It shines."}),),
    )
    derived = derive([asked, ran], [])
    (call,), (tool,) = derived.llm_calls, derived.tool_calls
    assert [one["name"] for one in call.tool_definitions or []] == ["sun"]
    assert (call.output_messages or [])[0]["parts"][0]["content"] == "It shines."
    assert call.content == "truncated"
    assert (tool.arguments, tool.result) == ({"city": "Rome"}, "It shines.")


SENT = {
    "model": "m",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"name": "sun", "input_schema": {"type": "object"}}],
}
ANSWER = {
    "id": "msg_1",
    "model": "m-1",
    "role": "assistant",
    "type": "message",
    "content": [
        {"type": "thinking", "thinking": "<REDACTED>", "signature": "s"},
        {"type": "text", "text": "Hello"},
    ],
    "stop_reason": "end_turn",
}


def bodies(number: int, sent: Any, answer: Any, trace: str = "t1") -> list[Log]:
    body = {"request_body_id": f"body-{number}"}
    told = body | {"body": answer, "request_id": f"req-{number}"}
    place = {"trace": trace, "span_id": "interaction"}
    return [
        log("api_request_body", body | {"body": sent}, **place),
        log("api_response_body", told, **place),
    ]


def requested(number: int, trace: str = "t1") -> Span:
    own = REQUEST | {"request_id": f"req-{number}"}
    return span(own, trace=trace, id=f"s{number}", name="claude_code.llm_request", at=number)


def test_the_logged_bodies_are_those_of_the_request_that_they_name() -> None:
    again = SENT | {"messages": [{"role": "user", "content": "Bye"}]}
    logs = [*bodies(2, again, ANSWER | {"id": "msg_2"}), *bodies(1, SENT, ANSWER)]
    first, second = derive([requested(1), requested(2)], logs).llm_calls
    told = [
        (call.response_id, call.response_model, call.input_messages) for call in (first, second)
    ]
    assert told == [
        ("msg_1", "m-1", [{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]),
        ("msg_2", "m-1", [{"role": "user", "parts": [{"type": "text", "content": "Bye"}]}]),
    ]
    assert [one["name"] for one in first.tool_definitions or []] == ["sun"]
    assert first.request_params == {"max_tokens": 100}
    assert first.content == second.content == "full"


def test_reasoning_that_the_log_hides_is_left_out() -> None:
    (call,) = derive([requested(1)], bodies(1, SENT, ANSWER)).llm_calls
    (message,) = call.output_messages or []
    assert message["parts"] == [{"type": "text", "content": "Hello"}]
    history = [*SENT["messages"], {"role": "assistant", "content": ANSWER["content"]}]
    (call,) = derive([requested(1)], bodies(1, SENT | {"messages": history}, ANSWER)).llm_calls
    assert (call.input_messages or [])[1]["parts"] == [{"type": "text", "content": "Hello"}]


def test_bodies_of_another_trace_are_not_those_of_a_request() -> None:
    (call,) = derive([requested(1)], bodies(1, SENT, ANSWER, trace="t2")).llm_calls
    assert (call.input_messages, call.content) == (None, "absent")


def test_only_claude_codes_own_names_make_a_record_that_of_another_span() -> None:
    """Such a trace is not kept in memory if it is large, so each late span costs all of it."""
    body = {"body": "{}", "body_length": 2, "request_body_id": "body-1"}
    assert not read([], [log("http.request", body, trace="t1")]).mixed
    assert read([], bodies(1, SENT, ANSWER)).mixed == {"t1"}


def test_a_body_whose_end_is_missing_makes_the_content_truncated() -> None:
    cut = json.dumps(SENT)[:40] + "[TRUNCATED - Content exceeds 60KB limit]"
    (call,) = derive([requested(1)], bodies(1, cut, ANSWER)).llm_calls
    assert (call.input_messages, call.response_id, call.content) == (None, "msg_1", "truncated")


@pytest.mark.parametrize("odd", [7, "Hi", {"role": "user"}])
def test_a_body_whose_messages_are_no_list_affects_no_answer(odd: object) -> None:
    (call,) = derive([requested(1)], bodies(1, SENT | {"messages": odd}, ANSWER)).llm_calls
    assert (call.input_messages, call.response_id) == (None, "msg_1")


def unnamed(number: int, at: float, source: str = "sdk") -> list[Log]:
    """Return the bodies of a request as Claude Code 2.1.197 logs them, without an id of a body."""
    said = SENT | {"messages": [{"role": "user", "content": f"Hi {number}"}]}
    more = {"query_source": source, "body_length": 1}
    place = {"trace": "t1", "span_id": "interaction", "at": at}
    request = {**more, "body": said, "event.sequence": 2 * number}
    answer = {**more, "body": ANSWER | {"id": f"msg_{number}"}, "event.sequence": 2 * number + 1}
    return [
        log("api_request_body", request, **place),
        log("api_response_body", answer | {"request_id": f"req-{number}"}, **place),
    ]


def test_a_body_with_an_impossible_number_affects_no_other_record() -> None:
    odd = log("api_request_body", {"body": "{}", "body_length": 2, "event.sequence": "9" * 9999})
    assert inputs(*unnamed(1, 1), *unnamed(2, 3), odd) == ["Hi 1", "Hi 2"]


def inputs(*logs: Log) -> list[str | None]:
    calls = derive([requested(1), requested(2)], logs).llm_calls
    assert [call.response_id for call in calls] == ["msg_1", "msg_2"]
    return [
        call.input_messages[0]["parts"][0]["content"] if call.input_messages else None
        for call in calls
    ]


def test_a_body_without_an_id_is_of_the_request_whose_response_comes_next() -> None:
    assert inputs(*unnamed(2, 1), *unnamed(1, 1)) == ["Hi 1", "Hi 2"]
    (asked, told), (title, named) = unnamed(1, 1), unnamed(2, 1, "title")
    assert inputs(asked, title, named, told) == ["Hi 1", "Hi 2"]


def test_of_several_bodies_without_ids_at_once_none_is_known_to_be_of_a_request() -> None:
    sent = [unnamed(number, 0)[0] for number in (1, 2)]
    answered = [unnamed(number, 1)[1] for number in (1, 2)]
    assert inputs(*sent, *answered) == [None, None]


def through_a_gateway(number: int, ends: float, late: float = 0.001) -> tuple[Span, list[Log]]:
    """Return a request whose provider gave it no id, with the records of its bodies."""
    place: dict[str, Any] = {"trace": "t1", "span_id": "turn"}
    body = {"request_body_id": f"body-{number}"}
    sent = {**SENT, "messages": [{"role": "user", "content": f"question {number}"}]}
    answer = {**ANSWER, "id": f"msg_{number}"}
    records = [
        log("api_request_body", {**body, "body": sent}, at=ends - 2, **place),
        log("api_response_body", {**body, "body": answer}, at=ends + late, **place),
    ]
    request = span(
        REQUEST,
        id=f"s{number}",
        parent="turn",
        name="claude_code.llm_request",
        at=ends - 3,
        ends=ends,
    )
    return request, records


def test_bodies_of_requests_without_ids_are_those_that_end_with_their_spans() -> None:
    turn = span({"span.type": "interaction"}, id="turn", name="claude_code.interaction", ends=99)
    requests, records = zip(*map(through_a_gateway, (1, 2, 3), (10, 20, 10.5)), strict=True)
    calls = derive([turn, *requests], [one for both in records for one in both]).llm_calls
    found = {call.span_id: (call.response_id, call.input_messages) for call in calls}
    for number in (1, 2, 3):
        response_id, messages = found[f"s{number}"]
        assert response_id == f"msg_{number}"
        assert [said["parts"][0]["content"] for said in messages or []] == [f"question {number}"]


def test_a_response_without_an_id_that_ends_at_another_time_is_not_of_a_request() -> None:
    request, records = through_a_gateway(1, 10, late=5)
    (call,) = derive([request], records).llm_calls
    assert (call.response_id, call.content) == (None, "absent")


def test_a_request_whose_end_was_not_logged_has_the_messages_before_it() -> None:
    system = [{"type": "text", "text": "Be brief."}]
    body = json.dumps({"model": "m", "messages": SENT["messages"], "system": system, "tools": [1]})
    for end, roles in ((len(body) - 3, ["system", "user"]), (body.index("Be"), ["user"])):
        (call,) = derive([requested(1)], bodies(1, body[:end], ANSWER)).llm_calls
        assert [one["role"] for one in call.input_messages or []] == roles
        assert call.content == "truncated"
    (call,) = derive([requested(1)], bodies(1, body[: body.index("Hi")], ANSWER)).llm_calls
    assert (call.input_messages, call.content) == (None, "truncated")


@pytest.mark.parametrize(("decision", "rows"), [("reject", []), ("accept", ["c1"])])
def test_a_tool_that_was_denied_has_no_row(decision: str, rows: list[str]) -> None:
    question = text_message("user", "Is it sunny?")
    refused = {"span.type": "tool.blocked_on_user", "decision": decision, "source": "config"}
    history = [question, tool_request("c1", "sun", {}), tool_response("c1", "You may not.")]
    spans = [
        span(chat([question], tool_request("c1", "sun", {})), id="ask"),
        span(
            {
                "span.type": "tool",
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "sun",
                "gen_ai.tool.call.id": "c1",
            },
            id="tool",
            name="claude_code.tool",
            at=2,
        ),
        span(refused, id="asked", parent="tool", name="claude_code.tool.blocked_on_user", at=2),
        span(chat(history, text_message("assistant", "No.")), id="answer", at=4),
    ]
    assert [tool.tool_call_id for tool in derive(spans, []).tool_calls] == rows
    alone = derive(spans[1:3], []).tool_calls
    assert [tool.tool_call_id for tool in alone] == rows
