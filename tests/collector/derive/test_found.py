"""What hard use found: each file of tests/data/found was read wrongly once."""

import pytest
from support.found import by_span, derived, found_spans
from support.spans import SECOND, answered, asked, chat, said, span, trace_keys

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, Span


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


def item(call_id: str) -> dict[str, object]:
    """Return an answer that asks for a tool by the id of the Responses API's item."""
    return asked(call_id, "w", {"city": "Paris"})


def responses_task(number: int, at: float) -> list[Span]:
    """Return one task on the Responses API as Traceloop records it: a trace a call, no link."""
    first = chat(
        [said("user", f"task {number}")],
        item(f"fc_{number}"),
        {"gen_ai.response.id": f"resp_{number}a", "gen_ai.request.model": "m"},
    )
    second = chat(
        [answered(f"call_{number}", "21 C")],
        said("assistant", f"done {number}"),
        {"gen_ai.response.id": f"resp_{number}b", "gen_ai.request.model": "m"},
    )
    return [
        span(first, trace=f"t{number}a", id=f"s{number}a", at=at),
        span(second, trace=f"t{number}b", id=f"s{number}b", at=at + 2),
    ]


def test_two_tasks_whose_tool_calls_have_the_ids_of_items_are_two_rollouts() -> None:
    spans = [*responses_task(0, 0), *responses_task(1, 5)]
    rows = derive(spans, [])
    assert [(call.span_id, call.rollout_id) for call in rows.llm_calls] == [
        *(("s0a", "t0a"), ("s0b", "t0a"), ("s1a", "t1a"), ("s1b", "t1a"))
    ]
    assert [(tool.name, tool.llm_span_id) for tool in rows.tool_calls] == [
        *(("w", "s0a"), ("w", "s1a"))
    ]
    assert rows.llm_calls[1].content == "full"
    first, second = (trace_keys(spans[at : at + 1], []) for at in (0, 1))
    assert first & second


def test_tasks_at_once_that_look_alike_are_not_mixed_up() -> None:
    rows = derive([*responses_task(0, 0), *responses_task(1, 0.5)], [])
    assert len({call.rollout_id for call in rows.llm_calls}) == 4
    assert [call.content for call in rows.llm_calls] == ["full", "full", "truncated", "truncated"]


def test_a_history_that_names_tool_calls_where_the_answer_named_items_continues_it() -> None:
    first, _ = responses_task(0, 0)
    history = [said("user", "task 0"), item("call_0"), answered("call_0", "21 C")]
    later = chat(history, said("assistant", "done"), {"gen_ai.response.id": "resp_0b"})
    rows = derive([first, span(later, trace="t2", id="s2", at=9)], [])
    assert [call.rollout_id for call in rows.llm_calls] == ["t0a", "t0a"]
    assert [tool.llm_span_id for tool in rows.tool_calls] == ["s0a"]


def test_outputs_without_the_ids_of_tool_calls_continue_at_litellm() -> None:
    lost = {
        "litellm.call_id": "1",
        "gen_ai.output.messages": [{"role": "assistant", "parts": []}],
        "gen_ai.completion.0.function_call.name": "w",
        "gen_ai.completion.0.function_call.arguments": '{"city": "Paris"}',
    }
    history = [said("user", "task"), item("call_0"), answered("call_0", "21 C")]
    later = chat(history, said("assistant", "done"), {"litellm.call_id": "2"})
    first = span(chat(history[:1], said("assistant", ""), lost), trace="a", id="a")
    rows = derive([first, span(later, trace="b", id="b", at=3)], [])
    assert [call.rollout_id for call in rows.llm_calls] == ["a", "a"]


def test_a_session_id_of_two_services_names_two_rollouts() -> None:
    talk = chat([said("user", "Hi")], said("assistant", "Hello"), {"session.id": "1"})
    one = span(talk, trace="a", id="a", resource={"service.name": "shop"})
    other = span(talk, trace="b", id="b", at=3, resource={"service.name": "bank"})
    calls = derive([one, other], []).llm_calls
    assert [call.rollout_id for call in calls] == ["shop/1", "bank/1"]
    assert [call.conversation_id for call in calls] == ["1", "1"]
    below = span({}, trace="a", id="c", parent="a", resource={"service.name": "bank"})
    calls = derive([one, other, below], []).llm_calls
    assert [call.rollout_id for call in calls] == ["1", "1"]


@pytest.mark.parametrize("outputs", ["null", "{}", '{"generations": []}', None])
def test_a_run_that_failed_under_langsmith_is_no_empty_answer(outputs: str | None) -> None:
    given = {
        "langsmith.span.kind": "llm",
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt": '{"messages": [{"role": "user", "content": "Hi"}]}',
        **({} if outputs is None else {"gen_ai.completion": outputs}),
    }
    raised = Event("exception", 1, {"exception.type": "Exception", "exception.message": "429"})
    (call,) = derive([span(given, status="OK", events=(raised,))], []).llm_calls
    assert (call.error_type, call.error_message) == ("Exception", "429")
    assert (call.finish_reason, call.output_messages) == ("error", None)


def test_the_id_of_a_streamed_response_is_read_under_logfire() -> None:
    asks = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": [said("user", "Hi")]}
    told = {"gen_ai.output.messages": [said("assistant", "Hello")]}
    kept = {"response_data": {"message": {"content": "Hello"}, "id": "chatcmpl-1"}}
    for more in ({"gen_ai.response.id": "chatcmpl-1"}, kept):
        streamed = span({**asks, **told, **more}, id="log", at=3, ends=3)
        (call,) = derive([span(asks, id="ask"), streamed], []).llm_calls
        assert (call.span_id, call.response_id) == ("ask", "chatcmpl-1")


def test_without_content_calls_stay_together_by_ids_parents_and_responses() -> None:
    def call(**more: object) -> dict[str, object]:
        return {"gen_ai.operation.name": "chat", **more}

    own = [span(call(**{"lightning.rollout.id": "r"}), trace=f"o{n}", id=f"o{n}") for n in "12"]
    root = span({}, trace="p", id="root")
    under = [span(call(), trace="p", id=f"p{n}", parent="root", at=n) for n in (1, 2)]
    named = {"gen_ai.request.previous_response_id": "resp_1"}
    held = [
        span(call(**{"gen_ai.response.id": "resp_1"}), trace="h1", id="h1"),
        span(call(**named), trace="h2", id="h2", at=3),
    ]
    found = {c.span_id: c.rollout_id for c in derive([*own, root, *under, *held], []).llm_calls}
    assert found == {"o1": "r", "o2": "r", "p1": "p", "p2": "p", "h1": "h1", "h2": "h1"}


def test_a_tool_that_only_messages_tell_of_has_the_times_of_the_calls_around_it() -> None:
    history = [said("user", "task"), asked("c", "w", {}), answered("c", "21 C")]
    first = span(chat(history[:1], history[1]), id="s1", at=1, ends=2)
    later = span(chat(history, said("assistant", "done")), id="s2", at=7)
    (tool,) = derive([first, later], []).tool_calls
    assert (tool.start_ns, tool.end_ns, tool.source) == (2 * SECOND, 7 * SECOND, "messages")


def test_an_agent_without_a_conversation_of_its_own_has_that_of_its_first_call() -> None:
    def agent(name: str) -> dict[str, object]:
        return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}

    def call(talk: str) -> dict[str, object]:
        return chat([said("user", "a")], said("assistant", "b"), {"gen_ai.conversation.id": talk})

    given = [
        span(agent("main"), id="main", ends=20),
        span(call("conv-main"), id="c1", parent="main", at=1),
        span({"gen_ai.operation.name": "execute_tool"}, id="tool", parent="main", at=3, ends=9),
        span(agent("sub"), id="sub", parent="tool", at=4, ends=8),
        span(call("conv-sub"), id="c2", parent="sub", at=5),
    ]
    rows = derive(given, [])
    assert {call.rollout_id for call in rows.llm_calls} == {"conv-main"}
    alone = derive([given[1]._replace(parent_span_id=None), given[4]], [])
    assert {call.rollout_id for call in alone.llm_calls} == {"conv-main", "conv-sub"}


def test_previous_responses_in_other_traces_are_followed() -> None:
    spans = [
        one._replace(trace_id=f"trace {number}", parent_span_id=None)
        for number, one in enumerate(found_spans("maf_responses"))
        if "chat" in one.name
    ]
    rows = derive(spans, [])
    assert len({call.rollout_id for call in rows.llm_calls}) == 1
    keys = [trace_keys([one], []) for one in spans]
    assert keys[0] & keys[1]
    assert keys[1] & keys[2]


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


def test_a_reward_in_a_sub_agents_conversation_is_of_the_callers_rollout() -> None:
    spans = found_spans("pydantic_subagent")
    score = {"gen_ai.evaluation.score.value": "1", "gen_ai.conversation.id": "conv-sub"}
    judged = Event("gen_ai.evaluation.result", 1, score)
    spans = [
        one._replace(events=(judged,)) if one.name == "invoke_agent sub" else one for one in spans
    ]
    (reward,) = derive(spans, []).rewards
    assert reward.rollout_id == "conv-main"


def test_a_span_id_of_another_trace_ties_nothing_to_a_merged_call() -> None:
    other = chat([said("user", "else")], said("assistant", "so"))
    same_id = span(other, trace="other", id="0303030303030303", resource={"service.name": "x"})
    calls = derive([*found_spans("dup_session"), same_id], []).llm_calls
    assert {call.rollout_id for call in calls if call.trace_id == "other"} == {"other"}
