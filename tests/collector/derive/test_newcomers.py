"""Instrumentations that nobody recorded: whatever speaks the conventions is read all the same."""

import json
from typing import Any

import pytest
from support.spans import answered, asked, chat, log, said, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, LlmCall, Log, Span

QUESTION, ANSWER = said("user", "Hi"), said("assistant", "Hello")
BARE = {"gen_ai.operation.name": "chat"}


def only_call(given: Span, *logs: Log) -> LlmCall:
    (call,) = derive([given], logs).llm_calls
    return call


def assert_read(call: LlmCall) -> None:
    assert call.input_messages == [QUESTION]
    (answer,) = call.output_messages or []
    assert answer["parts"] == ANSWER["parts"]
    assert call.content == "full"


@pytest.mark.parametrize(
    ("history", "output"),
    [
        ([{"role": "user", "content": "Hi"}], [{"role": "assistant", "content": "Hello"}]),
        (QUESTION, ANSWER),
        ("Hi", "Hello"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            [{"role": "model", "parts": [{"text": "Hello"}]}],
        ),
        (
            {"version": "0.1.0", "messages": [QUESTION]},
            {"version": "0.1.0", "messages": [ANSWER]},
        ),
    ],
    ids=["a provider's own form", "one message alone", "bare text", "blocks", "Agent 365's object"],
)
def test_messages_are_read_in_any_form_under_the_conventions_keys(
    history: Any, output: Any
) -> None:
    given = {**BARE, "gen_ai.input.messages": history, "gen_ai.output.messages": output}
    assert_read(only_call(span(given)))


def test_the_early_conventions_content_events_are_read() -> None:
    prompt = {"gen_ai.prompt": '[{"role": "user", "content": "Hi"}]'}
    completion = {"gen_ai.completion": '[{"role": "assistant", "content": "Hello"}]'}
    events = (
        Event("gen_ai.content.prompt", 0, prompt),
        Event("gen_ai.content.completion", 1, completion),
    )
    assert_read(only_call(span({**BARE, "gen_ai.system": "newcomer"}, events=events)))


@pytest.mark.parametrize("where", ["body", "text", "attributes"])
def test_content_that_only_logs_have_is_read_from_body_or_attributes(where: str) -> None:
    def record(name: str, text: str, at: float) -> Log:
        fields = {"content": text}
        body = {"body": fields, "text": text, "attributes": None}[where]
        attributes = fields if where == "attributes" else {}
        return log(name, attributes, trace="t1", span_id="s1", body=body, at=at)

    answer = record("gen_ai.choice", "Hello", 1)
    question = record("gen_ai.user.message", "Hi", 0)
    assert_read(only_call(span(BARE), answer, question))


def test_records_of_one_instant_are_put_in_order_by_role_and_number() -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        for n in range(2)
    ]
    records = [
        log(name, trace="t1", span_id="s1", body=body)
        for name, body in (
            ("gen_ai.choice", {"index": 0, "message": {"content": "Five"}}),
            ("gen_ai.tool.message", {"id": "c1", "content": "b"}),
            ("gen_ai.tool.message", {"id": "c0", "content": "a"}),
            ("gen_ai.assistant.message", {"tool_calls": calls}),
            ("gen_ai.user.message", {"content": "Hi"}),
            ("gen_ai.system.message", {"content": "Help."}),
        )
    ]
    history = only_call(span(BARE), *records).input_messages or []
    assert [message["role"] for message in history] == [
        "system", "user", "assistant", "tool", "tool",
    ]  # fmt: skip
    assert [message["parts"][0]["id"] for message in history[-2:]] == ["c0", "c1"]


def test_a_stream_left_before_its_end_is_truncated() -> None:
    begun = {**ANSWER, "finish_reason": ""}
    call = only_call(span(chat([QUESTION], begun, {"gen_ai.is_streaming": True})))
    assert (call.content, call.finish_reason) == ("truncated", None)


def test_a_call_is_offered_the_tools_that_only_its_agent_names() -> None:
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.tool.definitions": tools}
    spans = [
        span(agent, id="agent"),
        span(chat([QUESTION], asked("c1", "add", {})), id="call", parent="agent"),
        span({**BARE, "gen_ai.operation.name": "embeddings"}, id="embed", parent="agent"),
    ]
    offered = {call.span_id: call.tool_definitions for call in derive(spans, []).llm_calls}
    assert offered == {"call": tools, "embed": None}


def test_a_deep_trace_is_read_without_recursion_to_the_nearest_agent() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    levels = [span({}, id=f"s{n}", parent=f"s{n - 1}", at=n) for n in range(1, 5_000)]
    call = span(chat([QUESTION], ANSWER), id="call", parent="s4999", at=6_000)
    derived = derive([call, *reversed(levels), span(agent, id="s0")], [])
    assert [one.agent_name for one in derived.llm_calls] == ["planner"]


def one_call(*spans: Span) -> LlmCall:
    (call,) = derive(spans, []).llm_calls
    return call


def test_a_choice_that_wraps_its_message_is_read() -> None:
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": "Hello"},
    }
    given = {**BARE, "gen_ai.input.messages": [QUESTION], "gen_ai.output.messages": [choice]}
    call = only_call(span(given))
    assert_read(call)
    assert call.finish_reason == "stop"


def test_events_that_hold_a_whole_message_in_one_attribute_are_read() -> None:
    def event(name: str, message: dict[str, Any], at: int) -> Event:
        return Event(name, at, {"gen_ai.event.content": json.dumps(message)})

    events = (
        event("gen_ai.user.message", {"role": "user", "content": "Hi"}, 0),
        event("gen_ai.choice", {"message": {"content": "Hello"}, "finish_reason": "stop"}, 1),
    )
    assert_read(only_call(span(BARE, events=events)))


def test_events_and_tools_that_one_attribute_lists_are_read() -> None:
    told = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": "Hi"},
        {"event.name": "gen_ai.choice", "index": 0, "message": {"content": "Hello"}},
    ]
    offered = {"function_tools": [{"name": "add", "parameters_json_schema": {}}]}
    call = only_call(span({**BARE, "events": told, "model_request_parameters": offered}))
    assert_read(call)
    assert call.tool_definitions == [{"type": "function", "name": "add"}]
    ran = {"gen_ai.tool.name": "add", "gen_ai.tool.call.id": "c1", "tool_response": "5"}
    (tool,) = derive([span({**ran, "tool_arguments": {"a": 2}})], []).tool_calls
    assert (tool.name, tool.tool_call_id, tool.arguments, tool.result) == ("add", "c1", {"a": 2}, 5)


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


def test_a_gemini_answer_says_its_id_model_usage_and_tool_calls() -> None:
    parts = [{"function_call": {"id": "c1", "name": "add", "args": {"a": 2}}}]
    answer = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finish_reason": "STOP"}],
        "model_version": "gemini-002",
        "response_id": "r1",
        "usage_metadata": {"prompt_token_count": 7, "candidates_token_count": 3},
    }
    given = {"openinference.span.kind": "LLM", "output.value": answer}
    call = only_call(span({**given, "llm.model_name": "gemini"}))
    assert call.output_messages == [{**asked("c1", "add", {"a": 2}), "finish_reason": "tool_calls"}]
    assert (call.request_model, call.response_model) == ("gemini", "gemini-002")
    assert (call.response_id, call.input_tokens, call.output_tokens) == ("r1", 7, 3)


def test_a_stop_of_gemini_alone_does_not_say_that_no_tool_was_asked_for() -> None:
    metadata = {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.response.finish_reasons": ["stop"],
    }
    assert only_call(span(metadata)).finish_reason is None


def test_a_providers_own_usage_fills_what_the_conventions_keys_leave_out() -> None:
    raw = {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    call = only_call(span({**BARE, "gen_ai.usage.input_tokens": 9, "gen_ai.usage.raw": raw}))
    assert (call.input_tokens, call.output_tokens, call.cached_input_tokens) == (9, 2, 4)


def test_an_answer_written_as_an_instant_span_belongs_to_the_call_that_asked() -> None:
    sent = {**BARE, "gen_ai.input.messages": [QUESTION]}
    begun = span(sent, trace="t1", id="begun", at=0)
    later = span(sent, trace="t3", id="later", at=9)
    ended = span(chat([QUESTION], ANSWER), trace="t2", id="ended", at=5, ends=5)
    first, second = derive([ended, later, begun], []).llm_calls
    assert_read(first)
    assert (first.span_id, first.merged_span_ids) == ("begun", ["ended"])
    assert (second.span_id, second.merged_span_ids) == ("later", ())


def failed(trace: str, at: float, ends: float, more: dict[str, Any]) -> Span:
    given = {**BARE, "gen_ai.request.model": "m", "error.type": "api_error", **more}
    return span(given, trace=trace, at=at, ends=ends, status="ERROR")


def test_an_sdks_own_record_of_a_failed_call_is_the_call_around_it() -> None:
    asking = {"gen_ai.input.messages": [QUESTION]}
    outer = [failed("t1", 0, 4, asking), failed("t2", 1, 6, asking)]
    inner = [failed("t3", 2, 5, {}), failed("t4", 3, 3.5, {})]
    apart = [failed("t5", 7, 8, {})]
    calls = derive([*inner, *apart, *outer], []).llm_calls
    assert sorted((call.trace_id, call.content) for call in calls) == [
        ("t3", "full"), ("t4", "full"), ("t5", "absent"),
    ]  # fmt: skip


def test_a_tool_calls_own_id_is_kept_over_the_id_of_the_item_that_holds_it() -> None:
    told = {"gen_ai.tool.name": "look, add", "gen_ai.tool.call.id": "call_1, call_2"}
    (output,) = (
        only_call(span(chat([QUESTION], asked("fc_2", "add", {}), told))).output_messages or []
    )
    assert output["parts"][0]["id"] == "call_2"


@pytest.mark.parametrize(
    ("kind", "content"),
    [("langwatch.span.type", "langwatch."), ("new.span.kind", "new.span."), ("span.type", "")],
)
def test_a_vendors_own_spans_are_read_by_type_input_and_output(kind: str, content: str) -> None:
    def typed(value: Any) -> dict[str, Any]:
        return {"type": "json", "value": value}

    asks = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "add"}}]}
    call = {kind: "LLM", f"{content}input": typed([{"role": "user", "content": "Hi"}])}
    tool = {kind: "tool", f"{content}input": typed({"a": 2}), f"{content}output": "5"}
    spans = [
        span({kind: "agent", f"{content}input": "Hi"}, id="agent", name="helper"),
        span({**call, f"{content}output": typed([asks])}, id="call", parent="agent"),
        span(tool, id="tool", parent="agent", name="add", at=2),
    ]
    derived = derive(spans, [])
    assert [run.name for run in derived.agent_runs] == ["helper"]
    assert [one.input_messages for one in derived.llm_calls] == [[QUESTION]]
    assert [(one.tool_call_id, one.arguments, one.result) for one in derived.tool_calls] == [
        ("c1", {"a": 2}, 5)
    ]


def test_a_span_that_only_prepares_a_request_is_no_call() -> None:
    kind = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    request = {"messages": ["ChatMessage(...)"], "tools": []}
    answer = {"llm.output_messages.0.message.role": "assistant"}
    spans = [
        span({**kind, "output.value": request}, id="ready"),
        span({**kind, **answer}, id="call"),
    ]
    assert [call.span_id for call in derive(spans, []).llm_calls] == ["call"]


def test_a_user_message_that_names_a_tool_call_is_the_tools() -> None:
    result = {"role": "user", "content": "5", "tool_call_id": "c1"}
    given = {**BARE, "gen_ai.input.messages": [QUESTION, asked("c1", "add", {}), result]}
    assert (only_call(span(given)).input_messages or [])[-1] == answered("c1", "5")


def test_the_model_asked_for_is_the_echoed_one_unless_the_answer_names_its_own() -> None:
    kind = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    echoed = only_call(span({**kind, "llm.invocation_parameters": {"model": "m"}}))
    assert (echoed.request_model, echoed.response_model) == ("m", None)
    swapped = {"gen_ai.request.model": "m-1", "gen_ai.response.model": "m-1", "model": '"m"'}
    call = only_call(span({**BARE, **swapped}))
    assert (call.request_model, call.response_model) == ("m", "m-1")


@pytest.mark.parametrize(
    ("sent", "call_id"),
    [
        ([{"role": "tool", "content": "5", "tool_call_id": "c1"}], "c1"),
        ([[{"role": "tool", "content": "5", "tool_call_id": "c1"}]], "c1"),
        (["ChatMessage(role='tool', content='5')"], None),
    ],
    ids=["a request's messages", "LangChain's batch of one", "what Python prints"],
)
def test_ids_that_flattened_messages_lack_are_taken_from_the_request(
    sent: list[Any], call_id: str | None
) -> None:
    flat = "llm.input_messages.0.message."
    given = {"openinference.span.kind": "LLM", "input.value": {"messages": sent}}
    call = only_call(span({**given, f"{flat}role": "tool", f"{flat}content": "5"}))
    (part,) = [part for message in call.input_messages or [] for part in message["parts"]]
    assert (part["id"], part["response"]) == (call_id, "5")


def test_early_langchain_tool_spans_are_read_from_pythons_spelling() -> None:
    tool = {
        "openinference.span.kind": "TOOL",
        "tool.name": "add",
        "input.value": "{'a': 2}",
        "output.value": {"output": "content='It\\'s 5' name='add' tool_call_id='c1'"},
    }
    (row,) = derive([span(tool)], []).tool_calls
    assert (row.tool_call_id, row.arguments, row.result) == ("c1", {"a": 2}, "It's 5")


def test_a_tools_result_is_taken_out_of_the_record_of_its_run() -> None:
    record = {"tool_name": "add", "raw_output": 5, "is_error": False}
    tools = [
        {"openinference.span.kind": "TOOL", "tool.name": "add", "output.value": record},
        {
            "traceloop.span.kind": "task",
            "tool.name": "add",
            "tool.arguments": {"a": 2},
            "traceloop.entity.output": {"tool_output": record},
        },
    ]
    assert [derive([span(tool)], []).tool_calls[0].result for tool in tools] == [5, 5]


@pytest.mark.parametrize(
    "own",
    [
        chat([QUESTION], ANSWER),
        {
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.prompt.messages": [{"role": "user", "content": "Hi"}],
            "ai.response.text": "Hello",
        },
    ],
    ids=["the conventions", "the AI SDK"],
)
def test_a_spans_own_keys_win_over_those_that_a_processor_added(own: dict[str, Any]) -> None:
    assert_read(only_call(span({**own, "openinference.span.kind": "LLM", "output.value": "cut"})))


def test_no_tokens_read_means_that_nobody_counted() -> None:
    zeros = {"gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": 0}
    call = only_call(span(chat([QUESTION], ANSWER, zeros)))
    assert (call.input_tokens, call.output_tokens) == (None, None)


def test_langfuse_counts_cached_and_reasoning_tokens_apart() -> None:
    details = {
        "input": 34, "input_cached_tokens": 4, "output": 10, "output_reasoning_tokens": 2,
        "total": 50,
    }  # fmt: skip
    kind = {"langfuse.observation.type": "generation"}
    call = only_call(span({**kind, "langfuse.observation.usage_details": details}))
    assert (call.input_tokens, call.output_tokens) == (38, 12)
    assert (call.cached_input_tokens, call.reasoning_tokens) == (4, 2)


def test_a_haystack_generator_is_a_call_even_if_its_content_is_not_traced() -> None:
    kind = {"haystack.component.type": "OpenAIGenerator"}
    reply = {"replies": ["Hello"], "meta": [{"model": "m-1", "finish_reason": "stop"}]}
    traced = {"haystack.component.input": {"prompt": "Hi"}, "haystack.component.output": reply}
    call = only_call(span({**kind, **traced}))
    assert_read(call)
    assert (call.response_model, call.finish_reason) == ("m-1", "stop")
    assert only_call(span(kind)).content == "absent"
    assert not derive([span({"haystack.component.type": "ToolInvoker"})], []).llm_calls


def test_a_step_of_a_haystack_agent_is_a_call_even_if_its_content_is_not_traced() -> None:
    kind = {"haystack.component.type": "OpenAIChatGenerator"}
    step = span({}, name="haystack.agent.step.llm")
    inner = span(kind, name="haystack.chat_generator.run", id="s2", parent="s1")
    assert only_call(step).content == "absent"
    assert len(derive([step, inner], []).llm_calls) == 1


def test_each_generator_that_a_haystack_fallback_tried_is_one_call() -> None:
    asked = {"haystack.component.input": {"messages": ["Hi"]}}
    tried = asked | {"haystack.component.type": "OpenAIChatGenerator"}
    fallback = asked | {"haystack.component.type": "FallbackChatGenerator"}
    answered = fallback | {"haystack.component.output": {"replies": ["Hello"]}}
    run = "haystack.chat_generator.run"
    spans = [
        span(answered, name="haystack.component.run", ends=2),
        span(tried, name=run, id="s2", parent="s1", status="ERROR"),
        span(tried, name=run, id="s3", parent="s1", at=1),
    ]
    told = {one.span_id: one for one in derive(spans, []).llm_calls}
    assert {place: one.error_type for place, one in told.items()} == {"s1": None, "s2": "_OTHER"}
    assert told["s1"].output_messages


def test_a_haystack_tool_that_tells_the_model_of_its_error_failed() -> None:
    key = "haystack.agent.step.tool"
    said = {"haystack.tool.name": "sun", "haystack.tool.error": True, f"{key}.input": {"city": "X"}}
    (tool,) = derive([span({**said, f"{key}.output": {"error": "no"}}, name=key)], []).tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("sun", {"city": "X"}, {"error": "no"})
    assert tool.error_type == "tool_error"


NAT = {"nat.span.kind": "LLM", "openinference.span.kind": "LLM", "llm.token_count.total": 3}


def test_tool_calls_that_nat_spells_after_a_text_are_read() -> None:
    asked = [{"id": "c1", "type": "function", "function": {"name": "sun", "arguments": "{}"}}]
    call = only_call(span(NAT | {"output.value": f"Let me look\n\nTool calls: {asked}"}))
    (answer,) = call.output_messages or []
    assert answer["parts"] == [
        {"type": "text", "content": "Let me look"},
        {"type": "tool_call", "id": "c1", "name": "sun", "arguments": {}, "arguments_raw": "{}"},
    ]


def test_an_answer_of_nat_that_speaks_of_tool_calls_stays_whole() -> None:
    text = "Two kinds:\n\nTool calls: of the model, and others"
    call = only_call(span(NAT | {"output.value": text}))
    (answer,) = call.output_messages or []
    assert answer["parts"] == [{"type": "text", "content": text}]


@pytest.mark.parametrize(("written", "known"), [("unknown", None), ("c7", "c7")])
def test_a_conversation_of_nat_that_it_does_not_know_is_none(
    written: str, known: str | None
) -> None:
    call = only_call(span(NAT | {"nat.conversation.id": written, "output.value": "Hello"}))
    assert call.conversation_id == known


@pytest.mark.parametrize(
    ("output", "answer"),
    [("Hello", "Hello"), (json.dumps([{"role": "assistant", "content": "Hello"}]), "Hello")],
)
def test_messages_under_keys_without_a_prefix_are_read(output: str, answer: str) -> None:
    """Pipecat writes them beside the conventions' model and usage."""
    history = json.dumps([{"role": "user", "content": "Hi"}])
    tools = json.dumps([{"type": "function", "function": {"name": "sun", "parameters": {}}}])
    call = only_call(span({**BARE, "input": history, "output": output, "tools": tools}))
    assert call.input_messages == [QUESTION]
    assert [one["parts"][0]["content"] for one in call.output_messages or []] == [answer]
    assert [tool["name"] for tool in call.tool_definitions or []] == ["sun"]


def test_an_object_under_a_key_without_a_prefix_is_no_answer() -> None:
    output = json.dumps({"text": "Hello", "usage": {}})
    assert only_call(span({**BARE, "output": output})).output_messages is None


def test_the_model_asked_for_beside_the_one_that_answered_is_the_request_model() -> None:
    told = {**BARE, "gen_ai.request.model": "m-2026", "param.model": "m", "input": "Hi"}
    call = only_call(span(told))
    assert (call.request_model, call.response_model) == ("m", "m-2026")


def test_a_result_that_was_written_as_json_text_for_the_model_is_the_text() -> None:
    request = asked("c1", "sun", {"city": "Rome"})
    first = span(chat([QUESTION], request), id="a")
    history = [QUESTION, request, answered("c1", '"It shines."')]
    second = span(chat(history, ANSWER), id="b", at=2)
    (tool,) = derive([first, second], []).tool_calls
    assert tool.result == "It shines."


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


@pytest.mark.parametrize(
    ("written", "operation"),
    [
        ("Chat", "chat"),
        ("TextCompletion", "text_completion"),
        ("GenerateContent", "generate_content"),
    ],
)
def test_an_operation_is_known_in_any_case_without_content(written: str, operation: str) -> None:
    """Microsoft's Agent 365 writes them so."""
    call = only_call(span({"gen_ai.operation.name": written, "gen_ai.request.model": "m"}))
    assert (call.operation, call.request_model) == (operation, "m")


def attempts(*statuses: str, answer: str | None = None) -> list[LlmCall]:
    """Return the calls of LiveKit's span of a call with attempts that ended so below it."""
    asked = {"gen_ai.request.model": "m", "gen_ai.input.messages": [QUESTION]}
    reason = {"gen_ai.response.finish_reasons": ["stop"], "lk.llm_metrics": "{}"}
    output = {"gen_ai.output.messages": [said("assistant", answer)]} if answer else {}
    request = span({**BARE, **asked, **reason, **output}, id="request", ends=9)
    tries = [
        span(
            {"lk.retry_count": at, **({"error.type": "429"} if status == "ERROR" else {})},
            id=f"try{at}",
            parent="request",
            name="llm_request_run",
            at=2 * at,
            status=status,
        )
        for at, status in enumerate(statuses)
    ]
    return derive([request, *tries], []).llm_calls


def test_a_call_without_an_answer_has_the_error_of_its_last_attempt() -> None:
    """LiveKit's span of the call ends well, with the reason `stop`."""
    (call,) = attempts("ERROR")
    assert (call.error_type, call.finish_reason, call.request_model) == ("429", "error", "m")
    assert call.input_messages == [QUESTION]
    first, last = attempts("ERROR", "ERROR")
    assert (first.error_type, first.request_model) == ("429", None)
    assert (last.error_type, last.request_model) == ("429", "m")


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_failed_attempts_are_calls_beside_the_one_that_was_answered(failures: int) -> None:
    *failed, call = sorted(
        attempts(*["ERROR"] * failures, "UNSET", answer="Hello"),
        key=lambda one: one.error_type is None,
    )
    assert_read(call)
    assert (call.error_type, call.finish_reason) == (None, "stop")
    assert [one.error_type for one in failed] == ["429"] * failures


def test_an_attempt_of_another_model_than_one_of_language_is_no_call() -> None:
    tried = span({"lk.retry_count": 0}, name="tts_request_run", status="ERROR")
    assert derive([tried], []).llm_calls == []


def test_a_span_inside_the_span_of_the_same_tool_call_is_no_second_execution() -> None:
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": "c1"}
    outer = span({**ran, "gen_ai.tool.name": "sun"}, id="outer", at=0)
    inner = span(ran, id="inner", parent="outer", at=0.1, status="ERROR", name="execution")
    (tool,) = derive([outer, inner], []).tool_calls
    assert (tool.name, tool.error_type) == ("sun", "_OTHER")


SPRING = {"gen_ai.operation.name": "framework", "gen_ai.system": "spring_ai"}


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


@pytest.mark.parametrize(
    ("asked_for", "told"),
    [
        ({"gen_ai.prompt": "Hi"}, {"gen_ai.completion": "Hello"}),
        ({"gen_ai.prompt": '["Hi"]'}, {"gen_ai.completion": '["Hello"]'}),
        (
            {"input.value": '{"messages": [{"role": "user", "content": "Hi"}]}'},
            {"output.value": "Hello"},
        ),
    ],
    ids=["plain", "Spring AI", "a request"],
)
def test_content_under_other_keys_beside_the_conventions_is_read(
    asked_for: dict[str, str], told: dict[str, str]
) -> None:
    assert_read(only_call(span({**BARE, "gen_ai.request.model": "m", **asked_for, **told})))


def test_texts_of_which_the_roles_are_unknown_are_no_messages() -> None:
    call = only_call(span({**BARE, "gen_ai.prompt": '["Be kind.", "Hi"]'}))
    assert call.input_messages is None


def test_the_kind_of_a_span_tells_what_it_is_where_no_operation_is_named() -> None:
    """Alibaba's agents for Java, Go and Python write `gen_ai.span.kind`."""
    call = {"gen_ai.span.kind": "LLM", "gen_ai.usage.prompt_tokens": 31, "input.value": "Hi"}
    ran = {
        "gen_ai.span.kind": "TOOL",
        "tool.name": "sun",
        "input.value": '{"city": "Rome"}',
        "output.value": "It shines.",
    }
    entry = {"gen_ai.span.kind": "ENTRY", "input.value": "Hi"}
    derived = derive([span(entry, id="e"), span(call, id="c"), span(ran, id="t", at=1)], [])
    assert [(one.span_id, one.input_tokens) for one in derived.llm_calls] == [("c", 31)]
    (tool,) = derived.tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("sun", {"city": "Rome"}, "It shines.")


def test_a_servers_span_below_its_client_is_no_second_call() -> None:
    """VLLM's own span; see `SpanAttributes` in its `vllm/tracing.py`."""
    client = span(chat([QUESTION], ANSWER), id="client", ends=3)
    counts = {"gen_ai.usage.prompt_tokens": 31, "gen_ai.usage.completion_tokens": 9}
    latency = {"gen_ai.latency.e2e": 0.3, "gen_ai.latency.time_to_first_token": 0.1}
    names = {"gen_ai.request.id": "cmpl-1", "gen_ai.response.model": "m"}
    server = span({**names, **counts, **latency}, id="server", parent="client", name="llm_request")
    assert [call.span_id for call in derive([client, server], []).llm_calls] == ["client"]


def test_the_response_that_google_adk_gives_the_model_is_unwrapped() -> None:
    ran = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sun",
        "output.value": '{"id": "c1", "name": "sun", "response": {"result": "It shines."}}',
    }
    (tool,) = derive([span(ran)], []).tool_calls
    assert tool.result == "It shines."


def test_the_conventions_own_name_of_the_previous_response_is_read() -> None:
    named = {**BARE, "gen_ai.response.id": "r2", "gen_ai.request.previous_response.id": "r1"}
    assert only_call(span(named)).request_params == {"previous_response_id": "r1"}


@pytest.mark.parametrize("operation", ["plan", "search_memory", "upsert_memory"])
def test_planning_and_memory_are_no_model_calls(operation: str) -> None:
    given = {"gen_ai.operation.name": operation, "gen_ai.output.messages": [ANSWER]}
    assert derive([span(given)], []).llm_calls == []


def test_a_tool_of_mcp_is_read_without_an_operation() -> None:
    called = {"mcp.method.name": "tools/call", "error.type": "tool_error"}
    client = span(called | {"gen_ai.tool.name": "sun"}, id="client", status="ERROR")
    sending = span(called, id="sending", parent="client", name="MCP send tools/call sun")
    server = span(called | {"gen_ai.tool.name": "sun"}, id="server", parent="sending")
    listing = span({"mcp.method.name": "tools/list"}, id="listing")
    (tool,) = derive([client, sending, server, listing], []).tool_calls
    assert (tool.span_id, tool.name, tool.error_type) == ("client", "sun", "tool_error")


def test_openinferences_tool_spans_may_name_the_tool_call_and_hold_mcps_blocks() -> None:
    ran = {
        "openinference.span.kind": "TOOL",
        "tool.name": "sun",
        "tool.id": "c1",
        "output.value": [{"type": "text", "text": "It shines."}],
    }
    (tool,) = derive([span(ran)], []).tool_calls
    assert (tool.tool_call_id, tool.result) == ("c1", "It shines.")


def test_a_text_that_may_be_the_last_piece_of_a_stream_is_not_called_whole() -> None:
    given = span(
        chat([QUESTION], ANSWER), scope="opentelemetry.instrumentation.google_generativeai"
    )
    assert only_call(given).content == "truncated"
    asking = chat([QUESTION], asked("c1", "add", {}))
    assert only_call(given._replace(attributes=span(asking).attributes)).content == "full"


def test_the_name_of_a_span_that_lost_its_first_attributes_has_the_requested_model() -> None:
    """A composite sampler drops what a span starts with, so only what came later is left."""
    later = {"gen_ai.response.id": "r", "gen_ai.response.model": "m-1"}
    assert only_call(span(later, name="chat m")).request_model == "m"
    assert only_call(span({**later, **BARE}, name="chat m")).request_model is None
    assert only_call(span(later, name="chat with m")).request_model is None


OPENLIT, ADK = "openlit.instrumentation.anthropic", "gcp.vertex.agent"


@pytest.mark.parametrize(
    ("name", "scope", "model"), [("chat m", OPENLIT, "m"), ("call_llm", ADK, None)]
)
def test_a_call_that_failed_before_its_keys_were_set_is_a_failed_call(
    name: str, scope: str, model: str | None
) -> None:
    raised = Event("exception", 7, {"exception.type": "anthropic.BadRequestError"})
    call = only_call(span({}, name=name, scope=scope, status="ERROR", events=(raised,)))
    assert (call.operation, call.request_model, call.error_type) == (
        "chat",
        model,
        "BadRequestError",
    )


def test_a_tool_that_failed_before_its_keys_were_set_is_a_failed_execution() -> None:
    failed = span({}, name="execute_tool sun", scope=ADK, status="ERROR")
    (tool,) = derive([failed], []).tool_calls
    assert (tool.name, tool.error_type) == ("sun", "_OTHER")


@pytest.mark.parametrize(
    ("name", "scope", "status"),
    [
        ("chat m", "my.service", "ERROR"),
        ("chat m", OPENLIT, "UNSET"),
        ("POST", OPENLIT, "ERROR"),
        ("chat", OPENLIT, "ERROR"),
    ],
)
def test_other_spans_without_keys_are_no_calls(name: str, scope: str, status: str) -> None:
    assert derive([span({}, name=name, scope=scope, status=status)], []).llm_calls == []


def test_the_parameters_of_an_action_of_browser_use_are_its_arguments() -> None:
    given = {"action": "wait", "params": {"seconds": 1}}
    said_ = {"lmnr.span.type": "TOOL", "lmnr.span.input": given, "lmnr.span.output": "waited"}
    (waited,) = derive([span(said_, name="wait")], []).tool_calls
    (other,) = derive([span(said_, name="act")], []).tool_calls
    assert (waited.arguments, other.arguments) == ({"seconds": 1}, given)


def test_the_cached_tokens_that_openlit_leaves_out_of_anthropics_input_are_added() -> None:
    counts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": "r",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 7,
    }
    assert only_call(span(counts, scope=OPENLIT)).input_tokens == 17
    assert only_call(span(counts, scope="openlit.instrumentation.openai")).input_tokens == 10


CALL_ITEM = {
    "type": "function_call",
    "call_id": "c1",
    "name": "sun",
    "arguments": '{"city": "Rome"}',
}


@pytest.mark.parametrize("spell", [str, json.dumps])
def test_tool_calls_that_a_package_wrote_into_the_text_of_an_answer_are_read(spell: Any) -> None:
    """LangChain's content for the Responses API is a list of items."""
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    answer = said("assistant", spell([thought, CALL_ITEM])) | {"finish_reason": "stop"}
    call = only_call(span(chat([QUESTION], answer)))
    (answer,) = call.output_messages or []
    assert [part["type"] for part in answer["parts"]] == ["reasoning", "tool_call"]
    assert (answer["parts"][1]["id"], call.finish_reason) == ("c1", "tool_calls")


def test_the_name_of_a_class_in_place_of_a_tool_call_is_no_text() -> None:
    answer = {"role": "assistant", "parts": ["ToolCall"], "finish_reason": "tool_calls"}
    call = only_call(span(chat([QUESTION], answer)))
    assert [message["parts"] for message in call.output_messages or []] == [[]]


def test_an_input_that_lost_the_tool_calls_before_their_responses_is_truncated() -> None:
    lost = {"role": "assistant", "parts": [{"type": "text", "content": ""}]}
    told = {"role": "tool", "parts": [{"type": "text", "content": "It shines."}]}
    assert only_call(span(chat([QUESTION, lost, told], ANSWER))).content == "truncated"


def test_a_tool_call_whose_item_is_spelled_inside_its_part_is_read() -> None:
    """OpenLIT writes LangChain's blocks so."""
    asking = {"role": "assistant", "parts": [{"type": "function_call", "content": str(CALL_ITEM)}]}
    call = only_call(span(chat([QUESTION, asking, answered("c1", "It shines.")], ANSWER)))
    (part,) = (call.input_messages or [])[1]["parts"]
    assert (part["id"], part["name"], part["arguments"]) == ("c1", "sun", {"city": "Rome"})


def test_reasoning_under_a_key_of_its_own_comes_before_the_answer() -> None:
    """OpenLIT's messages lack it."""
    given = {**chat([QUESTION], ANSWER), "gen_ai.content.reasoning": "Hm."}
    (answer,) = only_call(span(given)).output_messages or []
    assert answer["parts"] == [{"type": "reasoning", "content": "Hm."}, *ANSWER["parts"]]


def test_the_only_item_of_a_streamed_response_in_langfuse_is_read_with_its_id() -> None:
    """Langfuse writes several items as a list, and one without it."""
    told = "langfuse.observation."
    text = {"type": "output_text", "text": "Hello"}
    item = {"type": "message", "role": "assistant", "content": [text]}
    given = {
        f"{told}type": "generation",
        f"{told}input": {"input": "Hi"},
        f"{told}output": item,
        f"{told}metadata.object": '"response"',
        f"{told}metadata.id": '"resp_1"',
        f"{told}metadata.status": '"completed"',
    }
    call = only_call(span(given))
    assert (call.response_id, call.finish_reason) == ("resp_1", "stop")
    assert [message["parts"] for message in call.output_messages or []] == [ANSWER["parts"]]


@pytest.mark.parametrize("times", [1, 40])
def test_tool_calls_as_texts_of_the_assistant_and_a_reason_of_its_own_number_are_read(
    times: int,
) -> None:
    """Netra writes them so. A reader is compiled for a shape that repeats."""
    sun, rain = ('{"name": "sun", "arguments": "{}"}', '{"name": "rain", "arguments": "{}"}')
    given = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hi",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.content": sun,
        "gen_ai.prompt.1.tool_call_id": "c1",
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": "It shines.",
        "gen_ai.prompt.2.tool_call_id": "c1",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": sun,
        "gen_ai.completion.0.tool_call_id": "c2",
        "gen_ai.completion.1.role": "assistant",
        "gen_ai.completion.1.content": rain,
        "gen_ai.completion.1.tool_call_id": "c3",
        "gen_ai.completion.2.finish_reason": "tool_calls",
    }
    calls = derive([span(given, id=f"s{at}", at=at) for at in range(times)], []).llm_calls
    call = calls[-1]
    (part,) = (call.input_messages or [])[1]["parts"]
    assert (part["type"], part["id"], part["name"]) == ("tool_call", "c1", "sun")
    (answer,) = call.output_messages or []
    assert [part["id"] for part in answer["parts"]] == ["c2", "c3"]
    assert (call.finish_reason, call.content) == ("tool_calls", "full")


def test_the_items_of_a_response_as_texts_of_the_assistant_are_one_answer() -> None:
    """Netra writes them so, without ids."""
    given = {
        "llm.request.type": "response",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hi",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.content": '{"name": "sun", "arguments": "{}"}',
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": "It shines.",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "I ask.",
        "gen_ai.completion.1.role": "assistant",
        "gen_ai.completion.1.content": '{"name": "rain", "arguments": "{}"}',
    }
    call = only_call(span(given))
    assert [message["parts"][0]["type"] for message in call.input_messages or []] == [
        "text",
        "tool_call",
        "tool_call_response",
    ]
    (answer,) = call.output_messages or []
    assert [part["type"] for part in answer["parts"]] == ["text", "tool_call"]
