"""What hard use found: each file of tests/data/found was read wrongly once."""

from support.found import by_span, derived
from support.spans import answered, asked, chat, said, span

from otel_lightning.collector.derive.assemble import derive


def test_a_conversation_named_by_the_previous_response_is_one_rollout() -> None:
    rows = derived("maf_responses")
    assert len({call.rollout_id for call in rows.llm_calls}) == 1
    assert {tool.rollout_id for tool in rows.tool_calls} == {rows.llm_calls[0].rollout_id}
    last = rows.llm_calls[-1]
    assert last.request_params["previous_response_id"] == "resp_2"
    assert last.conversation_id is None
    assert [message["role"] for message in last.input_messages or []] == [
        *("user", "assistant", "tool", "assistant", "tool")
    ]
    assert [call.content for call in rows.llm_calls] == ["full"] * 3
    assert [(tool.name, tool.result) for tool in rows.tool_calls] == [("f", "r1"), ("g", "r2")]


def test_the_conversation_of_a_sub_agent_is_a_part_of_its_callers() -> None:
    rows = derived("pydantic_subagent")
    assert {call.rollout_id for call in rows.llm_calls} == {"conv-main"}
    assert {run.rollout_id for run in rows.agent_runs} == {"conv-main"}
    assert [call.conversation_id for call in rows.llm_calls] == [
        *("conv-main", "conv-sub", "conv-main")
    ]


def test_a_call_of_two_traces_has_place_agent_and_tools_of_the_framework() -> None:
    rows = derived("dup_session")
    assert [(call.trace_id[:2], call.span_id[:4]) for call in rows.llm_calls] == [
        *(("cc", "0202"), ("cc", "0505"))
    ]
    assert {call.agent_name for call in rows.llm_calls} == {"my_agent"}
    assert {call.rollout_id for call in rows.llm_calls} == {"sess-1"}
    assert {run.rollout_id for run in rows.agent_runs} == {"sess-1"}
    (tool,) = rows.tool_calls
    assert (tool.rollout_id, tool.source, tool.llm_span_id) == (
        *("sess-1", "both"),
        rows.llm_calls[0].span_id,
    )


def test_a_history_that_only_the_provider_has_is_not_called_full() -> None:
    rows = by_span(derived("conversation_held"))
    assert rows["2222"].content == "truncated"
    assert rows["2121"].content == "full"


def test_a_call_behind_an_unknown_response_is_not_called_full() -> None:
    given = span(
        chat([said("user", "go on")], said("assistant", "so"), {"gen_ai.conversation.id": "resp_9"})
    )
    (call,) = derive([given], []).llm_calls
    assert (call.content, call.conversation_id) == ("truncated", None)


def test_a_tool_response_without_its_request_is_not_a_full_history() -> None:
    given = span(chat([answered("call_1", "21 C")], said("assistant", "21 C")))
    (call,) = derive([given], []).llm_calls
    assert call.content == "truncated"


def test_a_call_inside_a_tool_of_a_call_is_another_call() -> None:
    rows = derived("nested_no_content")
    assert [(call.input_tokens, call.output_tokens) for call in rows.llm_calls] == [
        *((71, 30), (46, 19))
    ]


def test_nested_calls_without_content_that_counted_other_tokens_are_two() -> None:
    def counted(tokens: int) -> dict[str, object]:
        usage = {"gen_ai.usage.input_tokens": tokens, "gen_ai.usage.output_tokens": tokens}
        return {"gen_ai.operation.name": "chat", **usage}

    given = [span(counted(71), id="s0", ends=9), span(counted(46), id="s1", parent="s0", at=1)]
    assert len(derive(given, []).llm_calls) == 2


def test_a_finish_reason_error_is_no_error_of_a_call_that_answered() -> None:
    (call,) = derived("finish_error").llm_calls
    assert (call.error_type, call.error_message) == (None, None)


def test_no_call_asked_for_what_a_framework_wrote_into_a_history() -> None:
    rows = derived("made_up_asker")
    assert [(tool.name, tool.llm_span_id) for tool in rows.tool_calls] == [
        ("transfer_back_to_supervisor", None)
    ]


def test_every_item_of_a_responses_answer_is_read() -> None:
    rows = derived("responses_items")
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


def test_a_call_that_offers_no_tools_does_not_inherit_its_agents() -> None:
    tools = [{"type": "function", "name": "f"}]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.tool.definitions": tools}
    given = [
        span(agent, id="agent", ends=9),
        span(chat([said("user", "a")], asked("c", "f", {})), id="s1", parent="agent", at=1),
    ]
    assert derive(given, []).llm_calls[0].tool_definitions == tools
    empty = chat([said("user", "a")], said("assistant", "b"), {"gen_ai.tool.definitions": []})
    own = chat([said("user", "a")], asked("c", "f", {}), {"gen_ai.tool.definitions": tools})
    silent = span(chat([said("user", "a")], said("assistant", "b")), id="s2", parent="agent", at=3)
    for other in (empty, own):
        others = [given[0], span(other, id="s1", parent="agent", at=1), silent]
        calls = {call.span_id: call for call in derive(others, []).llm_calls}
        assert calls["s2"].tool_definitions == (None if other is own else tools)
        assert calls["s1"].tool_definitions == (tools if other is own else None)
