"""What Microsoft's clients and distribution for JavaScript write, and what resembles it."""

import json
from typing import Any

import pytest
from support.spans import ANSWER, QUESTION, chat, only_call, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event

ANSWERING = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "helper",
    "gen_ai.response.id": "resp_1",
    "gen_ai.usage.input_tokens": 7,
    "gen_ai.input.messages": [QUESTION],
    "gen_ai.output.messages": [{**ANSWER, "finish_reason": "completed"}],
}
"""What Azure's client for agents of a project writes: the service calls the model."""
CALLED = {"id": "call_1", "type": "function", "function": {"name": "sun", "arguments": "{}"}}
ASKED = [
    {"type": "tool_call", "id": "call_1", "name": "sun", "arguments": {}, "arguments_raw": "{}"}
]
OUTLINED = "microsoft-otel-openai-agents"


def test_an_agents_span_with_a_response_and_nothing_below_is_a_model_call() -> None:
    call = only_call(span(ANSWERING))
    assert (call.agent_name, call.operation, call.response_id) == ("helper", "chat", "resp_1")
    assert (call.input_tokens, call.finish_reason, call.content) == (7, "stop", "full")


@pytest.mark.parametrize(
    "inside",
    [
        chat([QUESTION], ANSWER),
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"},
    ],
    ids=["a model call", "a tool"],
)
def test_an_agents_span_with_a_response_is_a_run_if_it_ran_something(
    inside: dict[str, Any],
) -> None:
    spans = [span(ANSWERING, id="agent"), span({}, id="turn", parent="agent")]
    derived = derive([*spans, span(inside, id="inside", parent="turn")], [])
    assert [run.name for run in derived.agent_runs] == ["helper"]
    assert "agent" not in [call.span_id for call in derived.llm_calls]


def test_an_agent_inside_another_one_is_the_model_call() -> None:
    outer = {**ANSWERING, "gen_ai.agent.name": "lead", "gen_ai.response.id": "resp_2"}
    derived = derive([span(outer, id="a"), span(ANSWERING, id="b", parent="a")], [])
    assert [run.name for run in derived.agent_runs] == ["lead"]
    assert [call.agent_name for call in derived.llm_calls] == ["helper"]


def test_an_agents_span_without_a_response_stays_a_run() -> None:
    given = {key: value for key, value in ANSWERING.items() if key != "gen_ai.response.id"}
    derived = derive([span(given)], [])
    assert not derived.llm_calls
    assert [run.name for run in derived.agent_runs] == ["helper"]


def test_tool_calls_of_a_choice_are_read_in_either_spelling() -> None:
    """Azure's client for inference writes `toolCalls`."""
    for name in ("tool_calls", "toolCalls"):
        choice = {"finish_reason": "tool_calls", "index": 0, "message": {name: [CALLED]}}
        event = Event("gen_ai.choice", 0, {"gen_ai.event.content": json.dumps(choice)})
        call = only_call(span({"gen_ai.operation.name": "chat"}, events=(event,)))
        assert [one["parts"] for one in call.output_messages or []] == [ASKED]
        assert call.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("part", "read"),
    [
        (
            {"type": "text", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "text", "content": "Hi"},
        ),
        (
            {"type": "output_text", "content": '{"type":"output_text","text":"Hi"}'},
            {"type": "text", "content": "Hi"},
        ),
        # A text of the user that only looks like a block.
        (
            {"type": "text", "content": '{"type":"output_text","text":"Hi"}'},
            {"type": "text", "content": '{"type":"output_text","text":"Hi"}'},
        ),
    ],
    ids=["all blocks in one text", "a block as JSON", "JSON of the user"],
)
def test_blocks_inside_a_part_are_read(part: dict[str, Any], read: dict[str, Any]) -> None:
    call = only_call(span(chat([{"role": "user", "parts": [part]}], ANSWER)))
    assert call.input_messages == [{"role": "user", "parts": [read]}]


def response_of(message: dict[str, Any], model: str = "m-1") -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    response = {"id": "chatcmpl-1", "object": "chat.completion", "model": model}
    return {**response, "choices": [choice], "usage": usage}


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def test_a_response_that_is_the_text_of_an_answer_is_read() -> None:
    whole = response_of({"role": "assistant", "content": None, "tool_calls": [CALLED]})
    sent = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    given = chat([text_message("user", compact(sent))], text_message("assistant", compact([whole])))
    call = only_call(span({**given, "gen_ai.request.model": "m"}, scope=OUTLINED))
    assert call.input_messages == [text_message("system", "Be brief."), QUESTION]
    assert [one["parts"] for one in call.output_messages or []] == [ASKED]
    assert (call.request_model, call.response_model) == ("m", "m-1")
    assert (call.response_id, call.finish_reason, call.input_tokens) == (
        "chatcmpl-1",
        "tool_calls",
        7,
    )
    assert call.content == "full"


def test_the_model_of_a_response_that_the_sdk_built_is_unknown() -> None:
    whole = response_of({"role": "assistant", "content": "Hello"}, model="m")
    given = chat([QUESTION], text_message("assistant", compact([whole])))
    call = only_call(span({**given, "gen_ai.request.model": "m"}))
    assert (call.request_model, call.response_model) == ("m", None)


def test_json_that_an_agent_answers_stays_its_text() -> None:
    text = compact({"question": "Sun?", "choices": ["yes", "no"]})
    call = only_call(span(chat([QUESTION], text_message("assistant", text))))
    assert (call.output_messages or [])[0]["parts"] == text_message("assistant", text)["parts"]


def test_a_request_without_its_instructions_is_incomplete() -> None:
    given = {**chat([QUESTION], ANSWER), "gen_ai.request.model": "m-1"}
    call = only_call(span(given, scope=OUTLINED))
    assert (call.request_model, call.response_model, call.content) == (None, "m-1", "truncated")
    assert only_call(span(given)).content == "full"


def test_the_finish_reason_of_openinference_may_have_a_prefix_of_its_own() -> None:
    given = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Hi",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Hello",
        "tanstack.ai.finish_reason": "length",
    }
    assert only_call(span(given)).finish_reason == "length"


def test_the_turns_of_a_session_of_microsofts_distribution_are_one_rollout() -> None:
    asked = {**chat([QUESTION], ANSWER), "microsoft.session.id": "thread-1"}
    calls = derive([span(asked, trace="a"), span(asked, trace="b", at=5)], []).llm_calls
    assert [call.rollout_id for call in calls] == ["thread-1", "thread-1"]
