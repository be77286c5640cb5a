"""Gemini CLI's dialect."""

from typing import Any

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.spans import span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Span, ToolCall

BY = {"gen_ai.agent.name": "gemini-cli"}
SUN = {"name": "sun", "parametersJsonSchema": {"type": "object"}}


def test_each_session_is_a_rollout_with_its_calls_and_executions() -> None:
    capture = load(DATA / "gemini_cli" / "tasks.truth.json")
    derived = derive(capture.spans, capture.logs)
    talks = [call.rollout_id for call in derived.llm_calls]
    assert [talks.count(talk) for talk in dict.fromkeys(talks)] == [4, 2, 1]
    askers = {call.span_id for call in derived.llm_calls}
    assert {tool.source for tool in derived.tool_calls} == {"both"}
    assert {tool.llm_span_id for tool in derived.tool_calls} <= askers


def model_call(answer: dict[str, Any]) -> Span:
    message = {"role": "model", "parts": [answer]}
    return span(
        {
            **BY,
            "gen_ai.operation.name": "llm_call",
            "gen_ai.request.model": "m",
            "gen_ai.system_instructions": '"Answer about the weather."',
            "gen_ai.tool.definitions": [{"functionDeclarations": [SUN]}],
            "gen_ai.input.messages": [{"role": "user", "parts": [{"text": "Sun in Rome?"}]}],
            "gen_ai.output.messages": [message],
        }
    )


def test_a_call_has_the_ids_of_histories_the_system_prompt_and_the_tools() -> None:
    asked = {"functionCall": {"id": "sun__c1", "name": "sun", "args": {"city": "Rome"}}}
    (call,) = derive([model_call(asked)], []).llm_calls
    (part,) = (call.output_messages or [])[0]["parts"]
    assert (part["id"], part["arguments"]) == ("c1", {"city": "Rome"})
    assert (call.input_messages or [])[0] == {
        "role": "system",
        "parts": [{"type": "text", "content": "Answer about the weather."}],
    }
    assert call.tool_definitions == [
        {"type": "function", "name": "sun", "parameters": {"type": "object"}}
    ]


def execution(status: str, response: Any) -> ToolCall:
    """Return an execution that ended so; the span around it only schedules."""
    request = {"callId": "sun__c1", "name": "sun", "args": {"city": "Rome"}}
    part = {"functionResponse": {"id": "sun__c1", "name": "sun", "response": response}}
    ended = {"status": status, "request": request, "response": {"responseParts": [part]}}
    operation = "gen_ai.operation.name"
    around = {**BY, operation: "schedule_tool_calls", "gen_ai.output.messages": [ended]}
    ran = {
        **BY,
        operation: "tool_call",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call_id": "sun__c1",
        "gen_ai.input.messages": request,
        "gen_ai.output.messages": ended,
    }
    derived = derive([span(around, id="around"), span(ran, id="ran", parent="around")], [])
    assert not derived.llm_calls
    (tool,) = derived.tool_calls
    return tool


def test_an_execution_is_read_from_the_schedulers_records() -> None:
    tool = execution("success", {"output": "It shines."})
    assert (tool.name, tool.tool_call_id, tool.arguments) == ("sun", "c1", {"city": "Rome"})
    assert (tool.result, tool.error_type) == ("It shines.", None)


@pytest.mark.parametrize("status", ["error", "cancelled"])
def test_an_execution_that_failed_or_was_cancelled_has_an_error(status: str) -> None:
    tool = execution(status, {"error": "no such city"})
    assert (tool.result, tool.error_type) == ({"error": "no such city"}, "tool_error")
