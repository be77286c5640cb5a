"""Tools that the provider ran while it answered."""

from support.regressions import rows_of
from support.spans import span

from otel_lightning.collector.derive.assemble import derive

KIND = {"openinference.span.kind": "LLM"}


def test_every_item_of_a_responses_answer_is_read() -> None:
    rows = rows_of("responses_items")
    (call,) = rows.llm_calls
    parts = (call.output_messages or [])[0]["parts"]
    assert [part["type"] for part in parts] == [
        *("server_tool_call", "server_tool_call_response", "tool_call")
    ]
    assert (parts[2]["id"], parts[2]["name"]) == ("call_ct", "shell")
    assert parts[2]["arguments_raw"] == "ls -la"
    assert call.finish_reason == "tool_calls"
    (tool,) = rows.tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("ask", {}, "MCPRESULT")
    assert tool.llm_span_id == call.span_id


ITEMS = [
    {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}},
    {"type": "file_search_call", "id": "fs_1", "queries": ["a"], "results": [{"text": "t"}]},
    {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "outputs": [{"logs": "2"}]},
    {"type": "mcp_call", "id": "m_1", "name": "ask", "arguments": '{"a": 1}', "error": "refused"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
]


def test_tools_that_the_provider_ran_are_executions_and_no_requests() -> None:
    response = {"id": "resp_1", "object": "response", "status": "completed", "output": ITEMS}
    given = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    rows = derive([span({**given, "output.value": response})], [])
    assert rows.llm_calls[0].finish_reason == "stop"
    assert [
        (tool.name, tool.arguments, tool.result, tool.error_type) for tool in rows.tool_calls
    ] == [
        ("web_search", {"type": "search", "query": "q"}, None, None),
        ("file_search", {"queries": ["a"]}, [{"text": "t"}], None),
        ("code_interpreter", {"code": "1+1"}, [{"logs": "2"}], None),
        ("ask", {"a": 1}, "refused", "_OTHER"),
    ]


def test_tools_that_anthropic_ran_are_executions_too() -> None:
    blocks = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u"}]},
        {"type": "text", "text": "So."},
    ]
    answer = {"id": "msg_1", "role": "assistant", "content": blocks, "stop_reason": "end_turn"}
    given = {"openinference.span.kind": "LLM", "llm.model_name": "m", "output.value": answer}
    rows = derive([span(given)], [])
    assert rows.llm_calls[0].finish_reason == "stop"
    assert [(tool.name, tool.arguments, tool.result) for tool in rows.tool_calls] == [
        ("web_search", {"query": "q"}, [{"url": "u"}])
    ]


def test_the_outputs_of_custom_tools_answer_them() -> None:
    sent = [
        {"role": "user", "content": "list"},
        {"type": "custom_tool_call", "id": "ct", "call_id": "c1", "name": "shell", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "a.txt"},
    ]
    given = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "input.value": {"model": "m", "input": sent},
        "output.value": {
            "id": "r",
            "object": "response",
            "status": "completed",
            "output": ITEMS[4:],
        },
    }
    (tool,) = derive([span(given)], []).tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("shell", {"input": "ls"}, "a.txt")


def test_code_that_gemini_ran_is_an_execution_of_its_own_tool() -> None:
    parts = [
        {"executable_code": {"code": "print(1)", "language": "PYTHON"}},
        {"code_execution_result": {"outcome": "OUTCOME_FAILED", "output": "no"}},
        {"text": "So."},
    ]
    response = {"candidates": [{"content": {"role": "model", "parts": parts}}]}
    request = {"model": "g", "contents": "Hi", "tools": [{"code_execution": {}}]}
    given = {**KIND, "input.value": request, "output.value": response}
    derived = derive([span(given)], [])
    (tool,) = derived.tool_calls
    assert (tool.name, tool.result, tool.error_type) == ("code_execution", "no", "_OTHER")
    assert tool.arguments == {"code": "print(1)", "language": "PYTHON"}
    offered = derived.llm_calls[0].tool_definitions or []
    assert [tool["name"] for tool in offered] == ["code_execution"]
