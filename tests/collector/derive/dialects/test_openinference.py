"""OpenInference's dialect."""

import json
from typing import Any

import pytest
from support.regressions import rows_of
from support.spans import only_call, read_call, span, text_message, tool_request

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.dialects import read
from otel_lightning.collector.derive.rows import LlmCall, ToolCall

PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}


def test_openinference_indexes_may_have_gaps_and_leave_out_empty_arguments() -> None:
    call_key = "llm.output_messages.0.message.tool_calls.2.tool_call"
    given = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.3.message.role": "user",
        "llm.input_messages.3.message.content": "Hi",
        "llm.output_messages.0.message.role": "assistant",
        f"{call_key}.id": "c1",
        f"{call_key}.function.name": "now",
    }
    call = read_call(span(given))
    assert call.input_messages == [text_message("user", "Hi")]
    (part,) = (call.output_messages or [])[0]["parts"]
    assert part == {"type": "tool_call", "id": "c1", "name": "now", "arguments": {}}


@pytest.mark.parametrize(
    "attributes",
    [
        {"llm.prompts": ["Two and two?"], "output.value": "Four."},
        {"llm.prompts.0.prompt.text": "Two and two?", "llm.choices.0.completion.text": "Four."},
    ],
)
def test_openinferences_completion_models_were_asked_a_prompt(attributes: dict[str, Any]) -> None:
    named = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    (call,) = derive([span({**named, **attributes})], []).llm_calls
    assert (call.operation, call.content) == ("text_completion", "full")
    assert call.input_messages == [text_message("user", "Two and two?")]
    assert call.output_messages == [text_message("assistant", "Four.")]


def test_several_prompts_in_one_span_are_no_history() -> None:
    asked = {"openinference.span.kind": "LLM", "llm.model_name": "m", "llm.prompts": ["a", "b"]}
    (call,) = derive([span(asked)], []).llm_calls
    assert call.input_messages is None


def test_an_anthropic_payload_counts_cached_tokens_among_the_input() -> None:
    response = {
        "id": "msg_1",
        "type": "message",
        "model": "claude-x",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 20, "cache_read_input_tokens": 5, "output_tokens": 2},
    }
    call = read_call(span({"openinference.span.kind": "LLM", "output.value": response}))
    assert (call.input_tokens, call.cached_input_tokens, call.output_tokens) == (25, 5, 2)
    assert (call.response_id, call.finish_reason) == ("msg_1", "stop")


@pytest.mark.parametrize("side", ["input.value", "output.value"])
def test_a_span_without_model_or_messages_and_with_one_side_is_no_call(side: str) -> None:
    chunk = {"openinference.span.kind": "LLM", side: {"text": "Hel"}}
    assert read(span(chunk)) is None
    assert read_call(span(chunk, status="ERROR")).error_type == "_OTHER"
    assert read_call(span({**chunk, "llm.model_name": "m"})).dialect == "openinference"
    assert read_call(span({**chunk, "llm.input_messages.0.message.role": "user"}))


def test_openinferences_tools_may_be_their_schema_or_beside_it() -> None:
    parameters = {"type": "object", "properties": {}}
    whole = {"type": "function", "function": {"name": "add", "parameters": parameters}}
    beside = {"name": "add", "json_schema": json.dumps(parameters)}
    for tool in ({"json_schema": json.dumps(whole)}, beside):
        told = {f"llm.tools.0.tool.{key}": value for key, value in tool.items()}
        call = read_call(span({"openinference.span.kind": "LLM", **told}))
        flat = {"type": "function", "name": "add", "parameters": parameters}
        assert call.tool_definitions == [flat]


def test_a_step_without_model_has_its_messages_and_the_providers_body() -> None:
    call = {"toolCallId": "c1", "toolName": "add", "args": {"a": 2}}
    given = {
        "openinference.span.kind": "LLM",
        "input.value": [{"role": "user", "content": "Hi"}],
        "output.value": {"text": "", "toolCalls": [call]},
    }
    step = read_call(span(given))
    assert step.input_messages == [text_message("user", "Hi")]
    part = tool_request("c1", "add", {"a": 2})["parts"]
    assert [message["parts"] for message in step.output_messages or []] == [part]
    body = {"id": "r1", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    whole = read_call(span({**given, "metadata": {"body": json.dumps(body)}}))
    assert (whole.response_id, whole.finish_reason) == ("r1", "stop")


def test_langchains_tool_message_is_the_result_however_it_was_serialised() -> None:
    message = {"content": "5", "name": "add", "tool_call_id": "c1"}
    for result in (message, {"output": {"lc": 1, "kwargs": message}}, {"data": message}):
        given = {"openinference.span.kind": "TOOL", "output.value": result}
        others = ({"langfuse.observation.type": "tool", "langfuse.observation.output": result},)
        for attributes in (given, *others):
            tool = read(span(attributes))
            assert isinstance(tool, ToolCall)
            assert (tool.tool_call_id, tool.result) == ("c1", "5")


@pytest.mark.parametrize(
    ("attributes", "agent"),
    [
        ({"metadata": {"langgraph_node": "write_query"}}, "write_query"),
        ({"metadata": {"lc_agent_name": "writer", "langgraph_node": "model"}}, "writer"),
        ({"metadata": {"langgraph_node": "model"}}, None),  # of an agent without a name
        (
            {"metadata": {"langgraph_node": "model", "langgraph_checkpoint_ns": "sell:1|model:2"}},
            "sell",
        ),
        ({"metadata": {"langgraph_node": 3}}, None),
        ({"metadata": '{"langgraph_node": "write'}, None),
    ],
)
def test_the_node_of_a_graph_that_calls_is_the_agent(
    attributes: dict[str, Any], agent: str | None
) -> None:
    call = read(span({"openinference.span.kind": "LLM", "llm.model_name": "m", **attributes}))
    assert isinstance(call, LlmCall)
    assert call.agent_name == agent


@pytest.mark.parametrize(
    ("about", "named"),
    [
        ({"ls_provider": "google_genai", "ls_model_name": "gem"}, ("google_genai", "gem")),
        ({"ls_provider": "", "ls_model_name": 2}, (None, None)),
    ],
)
def test_the_model_and_the_provider_of_a_call_may_be_in_langchains_metadata(
    about: dict[str, Any], named: tuple[str | None, str | None]
) -> None:
    attributes = {"llm.token_count.prompt": 9, "llm.token_count.total": 12, "metadata": about}
    call = read(span({"openinference.span.kind": "LLM", **attributes}))
    assert isinstance(call, LlmCall)
    assert (call.provider, call.request_model) == named


@pytest.mark.parametrize(
    ("recording", "agents", "runs"),
    [
        (
            "langgraph_supervisor",
            ["supervisor", "sun_expert", "supervisor"],
            ["supervisor", "supervisor"],
        ),
        ("langgraph_swarm", ["sun_expert", "sun_expert", "rain_expert"], []),
    ],
)
def test_functions_with_agent_in_their_names_are_no_agents(
    recording: str, agents: list[str], runs: list[str]
) -> None:
    """`call_agent` and `route_to_active_agent`; the nodes around them are no agents' spans."""
    rows = rows_of(recording)
    assert [call.agent_name for call in rows.llm_calls] == agents
    assert [run.name for run in rows.agent_runs] == runs


LANGCHAIN = "openinference.instrumentation.langchain"


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({"llm.model_name": "m", "llm.invocation_parameters": "{}"}, ["LlmCall"]),
        ({"tool.name": "ask_agent", "output.value": "It shines."}, ["ToolCall"]),
        ({"input.value": "{}"}, ["AgentRun"]),
    ],
)
def test_a_run_with_agent_in_its_name_is_what_its_keys_say(
    keys: dict[str, str], kinds: list[str]
) -> None:
    question = {"llm.input_messages.0.message.content": "Hi", "openinference.span.kind": "AGENT"}
    derived = derive([span(question | keys, name="ask_agent", scope=LANGCHAIN)], [])
    rows = [*derived.llm_calls, *derived.tool_calls, *derived.agent_runs]
    assert [type(row).__name__ for row in rows] == kinds


@pytest.mark.parametrize(("name", "runs"), [("Todo.before_agent", 0), ("before_agent", 1)])
def test_a_hook_of_langchains_middleware_is_no_agent(name: str, runs: int) -> None:
    hook = {"openinference.span.kind": "AGENT", "input.value": "{}"}
    assert len(derive([span(hook, name=name, scope=LANGCHAIN)], []).agent_runs) == runs


def test_the_result_of_a_tool_that_returns_a_command_is_the_last_tool_message_in_it() -> None:
    told = [
        {"type": kind, "data": {"content": text, "tool_call_id": call_id}}
        for kind, text, call_id in (
            ("tool", "4 hours of sun", "c1"),
            ("tool", "Transferred.", "c2"),
        )
    ]
    history = [*told, {"type": "human", "data": {"content": "Thanks."}}]
    for update, result in (({"messages": history}, "Transferred."), ({"todos": []}, None)):
        command = {"graph": None, "update": update, "resume": None, "goto": []}
        tool = {
            "openinference.span.kind": "TOOL",
            "tool.name": "transfer",
            "output.value": json.dumps(command),
        }
        (row,) = derive([span(tool)], []).tool_calls
        assert (row.tool_call_id, row.result) == (result and "c2", result or command)


def test_geminis_answer_has_id_model_usage_and_tool_calls() -> None:
    parts = [{"function_call": {"id": "c1", "name": "add", "args": {"a": 2}}}]
    answer = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finish_reason": "STOP"}],
        "model_version": "gemini-002",
        "response_id": "r1",
        "usage_metadata": {"prompt_token_count": 7, "candidates_token_count": 3},
    }
    given = {"openinference.span.kind": "LLM", "output.value": answer}
    call = only_call(span({**given, "llm.model_name": "gemini"}))
    assert call.output_messages == [
        {**tool_request("c1", "add", {"a": 2}), "finish_reason": "tool_calls"}
    ]
    assert (call.request_model, call.response_model) == ("gemini", "gemini-002")
    assert (call.response_id, call.input_tokens, call.output_tokens) == ("r1", 7, 3)


def test_a_span_that_only_prepares_a_request_is_no_call() -> None:
    kind = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    request = {"messages": ["ChatMessage(...)"], "tools": []}
    answer = {"llm.output_messages.0.message.role": "assistant"}
    spans = [
        span({**kind, "output.value": request}, id="ready"),
        span({**kind, **answer}, id="call"),
    ]
    assert [call.span_id for call in derive(spans, []).llm_calls] == ["call"]


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


def test_openinferences_tool_spans_may_name_the_tool_call_and_hold_mcps_blocks() -> None:
    ran = {
        "openinference.span.kind": "TOOL",
        "tool.name": "sun",
        "tool.id": "c1",
        "output.value": [{"type": "text", "text": "It shines."}],
    }
    (tool,) = derive([span(ran)], []).tool_calls
    assert (tool.tool_call_id, tool.result) == ("c1", "It shines.")


@pytest.mark.parametrize("kind", ["AGENT", "TOOL"])
def test_an_event_of_beeai_has_the_kind_of_what_it_belongs_to_and_is_no_row(kind: str) -> None:
    event = {"openinference.span.kind": kind, "input.value": {"delta": "It is sunny."}}
    event["metadata.path"] = "agent.requirement.final_answer"
    assert read(span(event, name="final_answer")) is None
    assert read(span(event, name="desk")) is not None


def test_instructors_spans_around_a_model_call_are_no_tools() -> None:
    kind = {"openinference.span.kind": "TOOL", "output.value": '{"city": "Rome"}'}
    scope = "openinference.instrumentation.instructor"
    assert not derive([span(kind, name="instructor.patch", scope=scope)], []).tool_calls
    assert derive([span(kind, name="sun")], []).tool_calls


def test_item_ids_of_agno_are_replaced_by_the_ids_of_tool_calls_beside_them() -> None:
    both = {"id": "fc_1", "call_id": "call_1", "function": {"name": "sun", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Sun?"},
        {"role": "assistant", "tool_calls": [both]},
        {"role": "tool", "tool_call_id": "fc_1", "content": "It shines."},
    ]
    flat = "llm.input_messages"
    function = f"{flat}.1.message.tool_calls.0.tool_call"
    call = only_call(span({
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "input.value": {"messages": messages},
        f"{flat}.0.message.role": "user",
        f"{flat}.0.message.content": "Sun?",
        f"{flat}.1.message.role": "assistant",
        f"{function}.id": "fc_1",
        f"{function}.function.name": "sun",
        f"{flat}.2.message.role": "tool",
        f"{flat}.2.message.tool_call_id": "fc_1",
        f"{flat}.2.message.content": "It shines.",
    }))  # fmt: skip
    parts = [part for message in call.input_messages or () for part in message["parts"]]
    assert [part["id"] for part in parts[1:]] == ["call_1", "call_1"]


def test_tools_among_the_keyword_arguments_of_a_request_are_offered() -> None:
    """Portkey writes a call as it was made, with the `repr()` of what was not given."""
    function = {"type": "function", "function": {"name": "sun"}}
    request = {
        "model": "m",
        "messages": [PLAIN_QUESTION],
        "stream": "<openai.Omit object at 0x7f82efc79010>",
        "kwargs": {"tools": [function], "seed": 7},
    }
    kind = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    call = only_call(span({**kind, "input.value": request}))
    assert [tool["name"] for tool in call.tool_definitions or ()] == ["sun"]
    assert call.request_params == {"seed": 7}


@pytest.mark.parametrize(("answering", "known"), [("m-2026", "m-2026"), ("m", None)])
def test_a_model_that_the_openai_agents_sdk_may_only_repeat_is_not_the_responding_one(
    answering: str, known: str | None
) -> None:
    message = {"role": "assistant", "content": "It is."}
    response = {"id": "r1", "model": answering, "choices": [{"index": 0, "message": message}]}
    kind = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    call = only_call(span({**kind, "input.value": [PLAIN_QUESTION], "output.value": [response]}))
    assert (call.request_model, call.response_model) == ("m", known)


def test_parameters_that_were_not_given_are_none() -> None:
    request = {"model": "m", "messages": [PLAIN_QUESTION], "temperature": "", "top_p": 0}
    call = only_call(
        span({"openinference.span.kind": "LLM", "llm.model_name": "m", "input.value": request})
    )
    assert call.request_params == {"top_p": 0}


def test_a_content_without_a_role_whose_type_was_cut_off_costs_no_row() -> None:
    """The OpenAI Agents SDK for JavaScript writes reasoning without a role."""
    prefix = "llm.input_messages.0.message.contents.0.message_content"
    given = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Yes.",
        f"{prefix}.type": "t",
        f"{prefix}.text": "I should look.",
    }
    rows = derive([span(given)], [])
    assert not rows.unread
    (call,) = rows.llm_calls
    assert call.output_messages == [text_message("assistant", "Yes.")]


@pytest.mark.parametrize(
    "parameters", [{"city": {"type": "string"}}, {"properties": {"city": {}, "day": {}}}]
)
def test_a_python_tools_positional_arguments_have_the_names_of_its_parameters(
    parameters: dict[str, Any],
) -> None:
    """Code that a model of smolagents wrote calls tools so."""
    given = {"args": ["Rome"], "sanitize_inputs_outputs": False, "kwargs": {}}
    keys = {"openinference.span.kind": "TOOL", "tool.name": "sun", "tool.parameters": parameters}
    tool = read(span({**keys, "input.value": given}))
    assert isinstance(tool, ToolCall)
    assert tool.arguments == {"city": "Rome"}
    unnamed = read(span({**keys, "input.value": {"args": ["Rome", 1, 2], "kwargs": {}}}))
    assert isinstance(unnamed, ToolCall)
    assert unnamed.arguments == {"args": ["Rome", 1, 2], "kwargs": {}}
