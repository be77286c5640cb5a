"""Google ADK for Java and Go: spans and log records, written as their source of 2026-08 does."""

import json
from typing import Any

from support.spans import SECOND, log, only_call, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Derived, Log, Span

CITY = {"city": "Rome"}
SYSTEM, QUESTION = text_message("system", "Be brief."), text_message("user", "Is it sunny in Rome?")
ASKED = {"parts": [{"text": "Is it sunny in Rome?"}], "role": "user"}
ASKS = {"parts": [{"functionCall": {"id": "adk-1", "args": CITY, "name": "sun"}}], "role": "model"}
RESULT = {"id": "adk-1", "name": "sun", "response": {"result": "It shines."}}
TOLD = {"parts": [{"functionResponse": RESULT}], "role": "user"}
ENDS = {"parts": [{"text": "Yes."}], "role": "model"}
SCHEMA = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}
OFFERED = {"functionDeclarations": [{"name": "sun", "description": "Tell.", "parameters": SCHEMA}]}
AGENT = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "weather",
    "gen_ai.conversation.id": "session",
}


def below_the_agent(*spans: Span, logs: list[Log] | None = None) -> Derived:
    return derive([span(AGENT, id="agent", ends=20), *spans], logs or [])


def assert_read(derived: Derived) -> None:
    """Assert that the model asked for the tool, got its result, and answered."""
    first, second = derived.llm_calls
    assert first.input_messages == [SYSTEM, QUESTION]
    ((part,),) = [message["parts"] for message in first.output_messages or ()]
    assert (part["type"], part["name"], part["arguments"]) == ("tool_call", "sun", CITY)
    assert [message["role"] for message in second.input_messages or ()] == [
        *("system", "user", "assistant", "tool")
    ]
    assert (second.output_messages or [{}])[0]["parts"] == [{"type": "text", "content": "Yes."}]
    assert (first.finish_reason, second.finish_reason) == ("tool_calls", "stop")
    assert {call.content for call in derived.llm_calls} == {"full"}
    assert {call.rollout_id for call in derived.llm_calls} == {"session"}
    (tool,) = derived.tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("sun", CITY, "It shines.")
    assert (tool.tool_call_id, tool.llm_span_id, tool.source) == ("adk-1", "a", "both")


def java(id: str, at: float, contents: list[Any], answer: Any) -> Span:  # noqa: A002
    config = {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "tools": [OFFERED]}
    request = {"model": "gemini-m", "config": config, "contents": contents}
    given = {
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.operation.name": "call_llm",
        "gen_ai.request.model": "gemini-m",
        "gcp.vertex.agent.session_id": "session",
        "gcp.vertex.agent.llm_request": request if answer else {},
        "gcp.vertex.agent.llm_response": {"content": answer, "finishReason": "STOP"}
        if answer
        else {},
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ["stop"],
    }
    return span(given, id=id, parent="agent", at=at, name="call_llm", scope="gcp.vertex.agent")


def java_tool(name: str, **more: Any) -> Span:
    given = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "FunctionTool",
        "gen_ai.tool_call.id": "adk-1",
        "gcp.vertex.agent.tool_call_args": CITY,
        "gcp.vertex.agent.tool_response": {"result": "It shines."},
        "gcp.vertex.agent.llm_request": "{}",
        "gcp.vertex.agent.llm_response": "{}",
    }
    return span({**given, **more}, id=name, parent="agent", at=3, name=f"execute_tool {name}")


def test_whole_requests_and_responses_of_javas_are_read() -> None:
    derived = below_the_agent(
        java("a", 1, [ASKED], ASKS),
        java_tool("sun"),
        java_tool("(merged tools)", **{"gcp.vertex.agent.tool_call_args": "N/A"}),
        span({"gen_ai.operation.name": "send_data"}, id="send", parent="agent", at=4),
        java("b", 5, [ASKED, ASKS, TOLD], ENDS),
    )
    assert_read(derived)
    (tool,) = derived.llm_calls[0].tool_definitions or ()
    assert (tool["name"], tool["parameters"]) == ("sun", SCHEMA)


def test_javas_calls_without_content_have_their_model_and_counts() -> None:
    call = only_call(java("a", 1, [ASKED], None))
    assert (call.request_model, call.input_tokens, call.finish_reason) == ("gemini-m", 10, "stop")
    assert (call.operation, call.content) == ("chat", "absent")


def go(id: str, at: float) -> Span:  # noqa: A002
    given = {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.request.model": "gemini-m",
        "gen_ai.response.finish_reasons": ["STOP"],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
    }
    return span(given, id=id, parent="agent", at=at, scope="gcp.vertex.agent")


def records(span_id: str, contents: list[Any], answer: Any) -> list[Log]:
    said = [
        ("system.message", {"content": "Be brief."}),
        *(("user.message", {"content": content}) for content in contents),
        ("choice", {"index": 0, "content": answer, "finish_reason": "STOP"}),
    ]
    return [
        log(f"gen_ai.{kind}", trace="t1", span_id=span_id, body=body, at=at / SECOND)
        for at, (kind, body) in enumerate(said)
    ]


def test_geminis_contents_in_log_records_of_gos_are_read() -> None:
    """All of a history are events of the user, each with its own role inside."""
    executed = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.id": "adk-1",
        "gcp.vertex.agent.tool_call_args": json.dumps(CITY),
        "gcp.vertex.agent.tool_response": {"result": "It shines."},
    }
    logs = [*records("a", [ASKED], ASKS), *records("b", [ASKED, ASKS, TOLD], ENDS)]
    tool = span(executed, id="tool", parent="agent", at=3)
    assert_read(below_the_agent(go("a", 1), tool, go("b", 5), logs=logs))


def test_gos_hidden_content_is_redacted() -> None:
    hidden = records("a", ["<elided>"], "<elided>")
    (call,) = below_the_agent(go("a", 1), logs=hidden).llm_calls
    assert (call.content, call.input_tokens) == ("redacted", 10)
