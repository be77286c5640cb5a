"""Tools of the GenAI conventions: definitions and executions."""

from typing import Any

import pytest
from support.spans import QUESTION, chat, only_call, read_call, span, text_message, tool_request

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.dialects import read
from otel_lightning.collector.derive.rows import ToolCall

BARE = {"gen_ai.operation.name": "chat"}
SPRING = {"gen_ai.operation.name": "framework", "gen_ai.system": "spring_ai"}
PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}
REQUEST = {"gen_ai.request.model": "m", "gen_ai.input.messages": [PLAIN_QUESTION]}


def test_an_execute_tool_span_is_an_execution() -> None:
    given = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": {"a": 2},
        "gen_ai.tool.call.result": "5",
    }
    tool = read(span(given))
    assert isinstance(tool, ToolCall)
    assert (tool.name, tool.tool_call_id, tool.arguments, tool.result) == ("add", "c1", {"a": 2}, 5)


def test_a_tool_message_that_python_spelled_is_read_in_the_conventions_too() -> None:
    text = "content='It\\'s 5' name='add' id='m1' tool_call_id='c1' status='success'"
    tool = read(span({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": text}))
    assert isinstance(tool, ToolCall)
    assert (tool.tool_call_id, tool.result) == ("c1", "It's 5")


def test_a_schema_has_the_type_object_and_no_nulls() -> None:
    schema: dict[str, Any] = {"properties": {"a": {}}, "$defs": None}
    offered = [{"name": "add", "parameters": schema}]
    call = read_call(span(chat([], {}, {"gen_ai.tool.definitions": offered})))
    assert call.tool_definitions is not None
    assert call.tool_definitions[0]["parameters"] == {"type": "object", "properties": {"a": {}}}


def test_smolagents_own_list_of_parameters_is_a_schema() -> None:
    listed = {"city": {"type": "string"}, "day": {"type": "any", "description": "Any day."}}
    offered = [{"name": "sun", "parameters": listed}]
    call = read_call(span(chat([], {}, {"gen_ai.tool.definitions": offered})))
    (tool,) = call.tool_definitions or []
    properties = {**listed, "day": {"type": "string", "description": "Any day."}}
    assert tool["parameters"] == {"type": "object", "properties": properties}


def test_a_call_is_offered_the_tools_that_only_its_agent_names() -> None:
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.tool.definitions": tools}
    spans = [
        span(agent, id="agent"),
        span(chat([QUESTION], tool_request("c1", "add", {})), id="call", parent="agent"),
        span({**BARE, "gen_ai.operation.name": "embeddings"}, id="embed", parent="agent"),
    ]
    offered = {call.span_id: call.tool_definitions for call in derive(spans, []).llm_calls}
    assert offered == {"call": tools, "embed": None}


def test_gemini_declares_several_tools_at_once() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    declared = [
        {"name": "add", "description": "Add.", "parameters_json_schema": schema},
        {"name": "stop"},
    ]
    given = {**BARE, "gen_ai.tool.definitions": [{"function_declarations": declared}]}
    assert only_call(span(given)).tool_definitions == [
        {"type": "function", "name": "add", "description": "Add.", "parameters": schema},
        {"type": "function", "name": "stop"},
    ]


def test_openlits_calls_of_gemini_continue_each_other_and_have_objects_as_responses() -> None:
    """OpenLIT writes the text `None` beside tool calls, and responses as Python literals."""
    call = {"type": "tool_call", "id": "", "name": "sun", "arguments": {"city": "Rome"}}
    none = {"type": "text", "content": "None"}
    told = {"type": "tool_call_response", "id": "", "response": "{'result': 'It shines.'}"}
    asks = {"role": "assistant", "parts": [call]}
    first = {**BARE, "gen_ai.system": "gemini", "gen_ai.input.messages": [QUESTION]}
    last = {**first, "gen_ai.input.messages": [QUESTION, asks, {"role": "user", "parts": [told]}]}
    outputs = [[{"role": "assistant", "parts": [none, call]}], [text_message("assistant", "Yes.")]]
    spans = [
        span({**keys, "gen_ai.output.messages": output}, trace=f"t{at}", id=f"s{at}", at=2 * at)
        for at, (keys, output) in enumerate(zip((first, last), outputs, strict=True))
    ]
    derived = derive(spans, [])
    one, other = derived.llm_calls
    assert [part["type"] for part in (one.output_messages or [])[0]["parts"]] == ["tool_call"]
    assert one.rollout_id == other.rollout_id
    assert [tool.result for tool in derived.tool_calls] == [{"result": "It shines."}]


@pytest.mark.parametrize("key", ["lk.function_tool.is_error", "mcp.tool.isError"])
def test_a_tool_span_that_says_that_the_tool_failed_has_an_error(key: str) -> None:
    """LiveKit tells the model `An internal error occurred`, and its span ends well."""
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    failed, fine = (
        span({**ran, key: flag}, id=flag, at=number)
        for number, flag in enumerate(("true", "false"))
    )
    tools = derive([failed, fine], []).tool_calls
    assert [tool.error_type for tool in tools] == ["tool_error", None]


def test_spring_ais_tools_and_conversations_are_read() -> None:
    """See `ToolCallingObservationDocumentation` and `ChatClientObservationDocumentation` there."""
    client = {"spring.ai.kind": "chat_client", "spring.ai.chat.client.conversation.id": "talk"}
    asks = {"gen_ai.request.model": "m", "spring.ai.model.request.tool.names": '["sun"]'}
    ran = {
        "spring.ai.kind": "tool_call",
        "spring.ai.tool.definition.name": "sun",
        "spring.ai.tool.call.id": "c1",
        "spring.ai.tool.call.arguments": '{"city":"Rome"}',
        "spring.ai.tool.call.result": '"It shines."',
    }
    spans = [
        span({**SPRING, **client}, id="client", ends=3),
        span({**BARE, **asks}, id="call", parent="client"),
        span({**SPRING, **ran}, id="tool", parent="client", at=1),
    ]
    derived = derive(spans, [])
    (call,), (tool,) = derived.llm_calls, derived.tool_calls
    assert (call.rollout_id, [one["name"] for one in call.tool_definitions or []]) == (
        "talk",
        ["sun"],
    )
    assert (tool.name, tool.tool_call_id) == ("sun", "c1")
    assert (tool.arguments, tool.result) == ({"city": "Rome"}, "It shines.")


def test_the_response_that_google_adk_gives_the_model_is_unwrapped() -> None:
    ran = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sun",
        "output.value": '{"id": "c1", "name": "sun", "response": {"result": "It shines."}}',
    }
    (tool,) = derive([span(ran)], []).tool_calls
    assert tool.result == "It shines."


def test_a_tool_of_mcp_is_read_without_an_operation() -> None:
    called = {"mcp.method.name": "tools/call", "error.type": "tool_error"}
    agent = span({"gen_ai.operation.name": "invoke_agent"}, id="agent")
    client = span(called | {"gen_ai.tool.name": "sun"}, id="client", parent="agent", status="ERROR")
    sending = span(called, id="sending", parent="client", name="MCP send tools/call sun")
    server = span(called | {"gen_ai.tool.name": "sun"}, id="server", parent="sending")
    listing = span({"mcp.method.name": "tools/list"}, id="listing")
    (tool,) = derive([agent, client, sending, server, listing], []).tool_calls
    assert (tool.span_id, tool.name, tool.error_type) == ("client", "sun", "tool_error")


def test_a_tools_text_is_taken_out_of_the_object_around_it() -> None:
    keys = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    given = [{"output": "It shines."}, {"output": {"sun": True}}]
    spans = [
        span({**keys, "gen_ai.tool.call.result": one}, id=str(at)) for at, one in enumerate(given)
    ]
    results = [tool.result for tool in derive(spans, []).tool_calls]
    assert results == ["It shines.", {"output": {"sun": True}}]


def test_keys_of_the_conventions_win_over_the_flattened_layout_beside_them() -> None:
    tools = [{"type": "function", "name": "sun", "parameters": {"type": "object"}}]
    beside = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": PLAIN_QUESTION["content"]}
    call = only_call(span({**REQUEST, **beside, "gen_ai.tool.definitions": tools}, status="ERROR"))
    assert [tool["name"] for tool in call.tool_definitions or ()] == ["sun"]


def test_tools_with_only_a_name_are_tool_definitions() -> None:
    call = only_call(span({**REQUEST, "gen_ai.tool.definitions": ["sun", "rain"]}, status="ERROR"))
    assert call.tool_definitions == [
        {"type": "function", "name": "sun"},
        {"type": "function", "name": "rain"},
    ]


def test_axioms_keys_of_a_tool_are_read() -> None:
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    attributes = {"gen_ai.tool.arguments": {"city": "Oslo"}, "gen_ai.tool.message": '"It shines."'}
    (tool,) = derive([span({**ran, **attributes})], []).tool_calls
    assert (tool.arguments, tool.result) == ({"city": "Oslo"}, "It shines.")


def test_a_call_that_offers_no_tools_does_not_inherit_its_agents() -> None:
    tools = [{"type": "function", "name": "f"}]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.tool.definitions": tools}
    given = [
        span(agent, id="agent", ends=9),
        span(
            chat([text_message("user", "a")], tool_request("c", "f", {})),
            id="s1",
            parent="agent",
            at=1,
        ),
    ]
    assert derive(given, []).llm_calls[0].tool_definitions == tools
    empty = chat(
        [text_message("user", "a")], text_message("assistant", "b"), {"gen_ai.tool.definitions": []}
    )
    own = chat(
        [text_message("user", "a")], tool_request("c", "f", {}), {"gen_ai.tool.definitions": tools}
    )
    silent = span(
        chat([text_message("user", "a")], text_message("assistant", "b")),
        id="s2",
        parent="agent",
        at=3,
    )
    for other in (empty, own):
        others = [given[0], span(other, id="s1", parent="agent", at=1), silent]
        calls = {call.span_id: call for call in derive(others, []).llm_calls}
        assert calls["s2"].tool_definitions == (None if other is own else tools)
        assert calls["s1"].tool_definitions == (tools if other is own else None)


def test_the_id_that_google_adk_does_not_know_is_none() -> None:
    keys = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    (tool,) = derive([span(keys | {"gen_ai.tool.call.id": "<not specified>"})], []).tool_calls
    assert tool.tool_call_id is None


def test_the_result_of_a_failed_tool_of_mcp_is_the_text_that_the_model_gets() -> None:
    """Traceloop for MCP writes beside it that it is an error."""
    kind = {"traceloop.span.kind": "tool", "traceloop.entity.name": "explode"}
    output = {"traceloop.entity.output": '{"result": "It broke.", "is_error": true}'}
    (tool,) = derive([span(kind | output | {"error.type": "tool_error"})], []).tool_calls
    assert (tool.result, tool.error_type) == ("It broke.", "tool_error")
