"""TraceAI's dialect."""

from typing import Any

from support.spans import span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall

CALL = {
    "gen_ai.span.kind": "LLM",
    "gen_ai.request.parameters": {"model": "m", "temperature": 0},
    "gen_ai.request.model": "m-1",
    "gen_ai.usage.input_tokens": 7,
    "gen_ai.usage.output_tokens": 2,
    "gen_ai.usage.output_tokens.reasoning": 1,
    "gen_ai.tool.definitions.0.tool.json_schema": {"name": "sun", "parameters": {}},
    "gen_ai.input.messages.0.message.role": "system",
    "gen_ai.input.messages.0.message.content": "Be brief.",
    "gen_ai.input.messages.1.message.role": "user",
    "gen_ai.input.messages.1.message.content": "Hi",
    "input.value": "Be brief.",
}
ASKED = "gen_ai.output.messages.0.message"
TOOL = f"{ASKED}.tool_calls.0.tool_call"
ASKS = {
    f"{ASKED}.role": "assistant",
    f"{TOOL}.id": "c1",
    f"{TOOL}.function.name": "sun",
    f"{TOOL}.function.arguments": '{"city": "Rome"}',
    "output.value": 'Function: sun({"city": "Rome"})',
}


def read(attributes: dict[str, Any]) -> LlmCall:
    (call,) = derive([span(attributes, scope="traceai_openai")], []).llm_calls
    return call


def test_messages_tools_models_and_counts_are_read() -> None:
    call = read(CALL | ASKS)
    assert (call.dialect, call.request_model, call.response_model) == ("traceai", "m", "m-1")
    assert (call.input_tokens, call.output_tokens, call.reasoning_tokens) == (7, 2, 1)
    assert [message["role"] for message in call.input_messages or []] == ["system", "user"]
    assert [tool["name"] for tool in call.tool_definitions or []] == ["sun"]
    (part,) = (call.output_messages or [])[0]["parts"]
    assert (part["id"], part["arguments"]) == ("c1", {"city": "Rome"})
    assert call.content == "full"


def test_a_response_that_python_spells_has_its_id() -> None:
    response = {"id": "resp_1", "object": "response", "model": "m-1", "status": "completed"}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "A"}],
    }
    call = read(CALL | {"output.value": repr(response | {"output": [said]})})
    assert (call.response_id, call.finish_reason, call.content) == ("resp_1", "stop", "full")


def test_the_text_of_a_stream_is_an_answer_that_may_lack_tool_calls() -> None:
    call = read(CALL | {"output.value": "Hello"})
    assert (call.output_messages or [])[0]["parts"] == [{"type": "text", "content": "Hello"}]
    assert call.content == "truncated"


def test_tools_and_agents_are_read() -> None:
    tool = {"gen_ai.span.kind": "TOOL", "tool.name": "sun", "output.value": "It shines."}
    agent = {"gen_ai.span.kind": "AGENT"}
    derived = derive(
        [
            span(tool, id="t", parent="a", scope="traceai_langchain"),
            span(agent, id="a", name="desk", scope="traceai_langchain"),
        ],
        [],
    )
    assert [(one.name, one.result) for one in derived.tool_calls] == [("sun", "It shines.")]
    assert [(run.kind, run.name) for run in derived.agent_runs] == [("agent", "desk")]
