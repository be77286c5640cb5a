"""What one span says, by dialect: the rules that recorded captures do not all show."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.spans import answered, asked, chat, log, said, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.dialects import read
from otel_lightning.collector.derive.rows import AgentRun, Event, LlmCall, Span, ToolCall
from otel_lightning.collector.derive.text.messages import conversation, read_message


def words(text: str) -> list[str]:
    return text.split()


WORDS = words("""
    type role content parts text id name arguments function tool_calls tool_call_id choices
    message messages model input output usage prompt_tokens logprobs token_ids
    response_metadata generations kwargs data lc finish_reason summary image_url toolUse
    toolResult toolUseId additional_kwargs finishReason
""")
VALUES = words("x user assistant tool tool_calls function_call text tool_call tool_result")
CUT = ["[{", '"\\ud800"', "{'a': 1", "NaN"]
EVIDENCE = [
    {"gen_ai.operation.name": "chat"},
    {"gen_ai.operation.name": "execute_tool"},
    {"openinference.span.kind": "LLM"},
    {"openinference.span.kind": "TOOL"},
    {"mlflow.spanType": '"CHAT_MODEL"'},
    {"langfuse.observation.type": "generation"},
    {"langsmith.span.kind": "llm"},
    {"ai.operationId": "ai.generateText.doGenerate"},
    {"litellm.call_id": "1"},
    {"llm.request.type": "chat"},
    {"agentops.span.kind": "tool"},
    {"gen_ai.agent.description": "OpenAI Agents instrumentation", "gen_ai.operation.name": "chat"},
]
KEYS = words("""
    gen_ai.operation.name gen_ai.input.messages gen_ai.output.messages gen_ai.response.id
    gen_ai.system_instructions gen_ai.tool.definitions gen_ai.response.finish_reasons
    gen_ai.usage.input_tokens gen_ai.request.model gen_ai.prompt.0.role
    gen_ai.prompt.0.content gen_ai.completion.0.tool_calls.0.id gen_ai.tool.name
    gen_ai.tool.call.arguments gen_ai.tool.call.result openinference.span.kind input.value
    output.value llm.model_name llm.invocation_parameters llm.input_messages.0.message.role
    llm.tools.0.tool.json_schema mlflow.spanType mlflow.spanInputs mlflow.spanOutputs
    mlflow.llm.model mlflow.chat.tokenUsage langfuse.observation.type
    langfuse.observation.input langfuse.observation.output langsmith.span.kind gen_ai.prompt
    gen_ai.completion ai.operationId ai.prompt.messages ai.response.toolCalls
    litellm.call_id metadata.usage_object agentops.span.kind llm.request.type
    lightning.prompt_token_ids prompt_token_ids traceloop.entity.input traceloop.span.kind
    gen_ai.request.messages gen_ai.request.available_tools gen_ai.response.text
    gen_ai.response.tool_calls
""")
DETAILS = "gen_ai.client.inference.operation.details"


def read_call(given: Span) -> LlmCall:
    call = read(given)
    assert isinstance(call, LlmCall)
    return call


def test_a_span_of_the_conventions_is_read_whole() -> None:
    more = {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.response.model": "gpt-x-2026",
        "gen_ai.response.id": "resp-1",
        "gen_ai.request.temperature": 0.3,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.conversation.id": "talk-1",
    }
    call = read_call(span(chat([said("user", "Hi")], said("assistant", "Hello"), more)))
    assert (call.request_model, call.response_model) == ("gpt-x", "gpt-x-2026")
    assert (call.input_tokens, call.output_tokens, call.cached_input_tokens) == (11, 3, 4)
    assert (call.response_id, call.conversation_id) == ("resp-1", "talk-1")
    assert call.request_params == {"temperature": 0.3}
    assert call.input_messages == [said("user", "Hi")]
    assert (call.finish_reason, call.content) == ("stop", "full")
    assert call.reasoning_tokens is None


def test_our_own_token_attributes_are_read_on_any_model_call() -> None:
    own = {
        "lightning.prompt_token_ids": [1, 2],
        "lightning.completion_token_ids": [3],
        "lightning.completion_logprobs": [-0.5],
    }
    for dialect in (chat([], said("assistant", "x")), {"openinference.span.kind": "LLM"}):
        call = read_call(span({**dialect, **own}))
        assert call.prompt_token_ids == [1, 2]
        assert call.completion_token_ids == [3]
        assert call.completion_logprobs == [-0.5]


def test_arguments_in_the_models_own_words_are_kept_beside_their_value() -> None:
    call = read_call(span(chat([said("user", "?")], asked("c1", "add", '{"a":  2}'))))
    (part,) = (call.output_messages or [])[0]["parts"]
    assert part["arguments"] == {"a": 2}
    assert part["arguments_raw"] == '{"a":  2}'


def test_arguments_that_came_as_an_object_have_no_raw_form() -> None:
    call = read_call(span(chat([said("user", "?")], asked("c1", "add", {"a": 2}))))
    assert "arguments_raw" not in (call.output_messages or [])[0]["parts"][0]


def test_arguments_that_are_not_json_are_kept_raw_and_not_repaired() -> None:
    call = read_call(span(chat([said("user", "?")], asked("c1", "add", '{"a": 2'))))
    (part,) = (call.output_messages or [])[0]["parts"]
    assert (part["arguments"], part["arguments_raw"]) == (None, '{"a": 2')


def test_a_message_list_that_was_cut_marks_the_call_and_is_not_guessed() -> None:
    attributes = chat([], said("assistant", "Hello"))
    whole = json.dumps([said("user", "A long question")])
    call = read_call(span({**attributes, "gen_ai.input.messages": whole[:-9]}))
    assert call.content == "truncated"
    assert call.input_messages is None
    assert call.output_messages == [said("assistant", "Hello")]


def test_system_instructions_come_first_and_are_not_doubled() -> None:
    system = said("system", "Be brief.")
    extra = {"gen_ai.system_instructions": system["parts"]}
    for history in ([said("user", "Hi")], [system, said("user", "Hi")]):
        call = read_call(span(chat(history, said("assistant", "Hello"), extra)))
        assert call.input_messages == [system, said("user", "Hi")]


def test_bare_system_instructions_are_text() -> None:
    extra = {"gen_ai.system_instructions": "Be brief."}
    call = read_call(span(chat([said("user", "Hi")], said("assistant", "Hello"), extra)))
    assert (call.input_messages or [])[0] == said("system", "Be brief.")


def test_several_messages_with_one_finish_reason_are_one_turn() -> None:
    outputs = [asked("c1", "add", {"a": 1}), asked("c2", "add", {"a": 2})]
    attributes = chat([said("user", "?")], {}, {"gen_ai.response.finish_reasons": ["tool_call"]})
    call = read_call(span({**attributes, "gen_ai.output.messages": outputs}))
    (message,) = call.output_messages or []
    assert [part["id"] for part in message["parts"]] == ["c1", "c2"]
    assert call.finish_reason == "tool_calls"


def test_a_finish_reason_a_message_means_choices() -> None:
    outputs = [said("assistant", "Hello"), said("assistant", "Hi")]
    attributes = chat([said("user", "?")], {}, {"gen_ai.response.finish_reasons": ["stop", "stop"]})
    call = read_call(span({**attributes, "gen_ai.output.messages": outputs}))
    assert call.output_messages == outputs


@pytest.mark.parametrize("carrier", ["event", "log"])
def test_content_in_a_details_event_is_read_whichever_way_it_came(carrier: str) -> None:
    content = chat([said("user", "Hi")], said("assistant", "Hello"))
    if carrier == "event":
        texts = {key: json.dumps(value) for key, value in content.items()}
        given = span({"gen_ai.operation.name": "chat"}, events=(Event(DETAILS, 0, texts),))
        derived = derive([given], [])
    else:
        record = log(DETAILS, content, trace="t1", span_id="s1")
        derived = derive([span({"gen_ai.operation.name": "chat"})], [record])
    (call,) = derived.llm_calls
    assert call.input_messages == [said("user", "Hi")]
    assert call.output_messages == [said("assistant", "Hello")]


def test_an_unknown_operation_with_a_response_id_is_a_call() -> None:
    given = {"gen_ai.operation.name": "converse", "gen_ai.response.id": "r1"}
    assert read_call(span(given)).operation == "converse"


@pytest.mark.parametrize("operation", ["chain", "execute_task", "create_agent", "unknown"])
def test_operations_that_repeat_the_calls_below_are_no_calls(operation: str) -> None:
    given = chat([said("user", "Hi")], said("assistant", "Hello"))
    assert read(span({**given, "gen_ai.operation.name": operation})) is None


def test_a_recorded_exception_without_error_status_is_no_error() -> None:
    cancelled = Event("exception", 0, {"exception.type": "CancelledError"})
    call = read_call(span({"gen_ai.operation.name": "chat"}, events=(cancelled,)))
    assert call.error_type is None


def test_an_error_has_its_type_and_message() -> None:
    failure = Event("exception", 0, {"exception.type": "Timeout", "exception.message": "late"})
    given = span({"gen_ai.operation.name": "chat"}, status="ERROR", events=(failure,))
    call = read_call(given)
    assert (call.error_type, call.error_message) == ("Timeout", "late")
    assert call.finish_reason == "error"


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
    assert call.input_messages == [said("user", "Hi")]
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
    assert call.input_messages == [said("user", "Two and two?")]
    assert call.output_messages == [said("assistant", "Four.")]


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


def test_agentlightning_token_arrays_are_read_from_the_indexed_layout() -> None:
    given = {
        "gen_ai.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hi",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "Hello",
        "gen_ai.completion.0.finish_reason": "stop",
        "prompt_token_ids": [5, 6],
        "response_token_ids": [7],
    }
    call = read_call(span(given))
    assert (call.dialect, call.finish_reason) == ("indexed", "stop")
    assert (call.prompt_token_ids, call.completion_token_ids) == ([5, 6], [7])


def test_indexed_messages_are_ordered_by_number_and_not_by_text() -> None:
    given = {
        f"gen_ai.prompt.{n}.{key}": text
        for n in range(12)
        for key, text in (("role", "user" if n % 2 == 0 else "assistant"), ("content", f"line {n}"))
    }
    call = read_call(span({"llm.request.type": "chat", **given}))
    texts = [message["parts"][0]["content"] for message in call.input_messages or []]
    assert texts == [f"line {n}" for n in range(12)]


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


def test_an_agent_span_is_a_run_and_its_summed_usage_no_call() -> None:
    given = {
        **chat([said("user", "Hi")], said("assistant", "Hello")),
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "planner",
        "gen_ai.usage.input_tokens": 99,
    }
    run = read(span(given))
    assert isinstance(run, AgentRun)
    assert (run.kind, run.name) == ("agent", "planner")


def test_a_span_without_genai_evidence_is_only_structure() -> None:
    assert read(span({"http.request.method": "POST"})) is None


def test_a_span_that_breaks_its_reader_is_recorded_and_costs_nothing_else() -> None:
    odd = span({"openinference.span.kind": "LLM", "llm.tools.0": "not a tool"}, id="odd")
    sound = span(chat([said("user", "Hi")], said("assistant", "Hello")), id="sound")
    derived = derive([odd, sound], [])
    assert [call.span_id for call in derived.llm_calls] == ["sound"]
    assert list(derived.unread) == [("t1", "odd")]
    assert "AttributeError" in derived.unread["t1", "odd"]


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
    assert step.input_messages == [said("user", "Hi")]
    part = asked("c1", "add", {"a": 2})["parts"]
    assert [message["parts"] for message in step.output_messages or []] == [part]
    body = {"id": "r1", "choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    whole = read_call(span({**given, "metadata": {"body": json.dumps(body)}}))
    assert (whole.response_id, whole.finish_reason) == ("r1", "stop")


def test_langsmith_keeps_what_a_response_says_of_itself_as_metadata() -> None:
    given = {
        "langsmith.span.kind": "llm",
        "gen_ai.prompt": {"input": [{"role": "user", "content": "Hi"}]},
        "gen_ai.completion": {"output": [{"type": "message", "content": "Hello"}]},
        "langsmith.metadata.object": "response",
        "langsmith.metadata.id": "resp_1",
        "langsmith.metadata.status": "completed",
        "langsmith.metadata.ls_model_name": "m-1",
        "langsmith.metadata.usage_metadata": {"input_tokens": 9, "output_tokens": 4},
    }
    call = read_call(span(given))
    assert (call.response_id, call.response_model, call.finish_reason) == ("resp_1", "m-1", "stop")
    assert (call.input_tokens, call.output_tokens) == (9, 4)
    assert call.input_messages == [said("user", "Hi")]


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        (["Hello", "Hi"], ["Hello", "Hi"]),
        (json.dumps("Hello"), ["Hello"]),
        (json.dumps("<openai.Stream object at 0x7f00>"), []),
    ],
)
def test_mlflows_answers_may_be_texts(answer: Any, texts: list[str]) -> None:
    call = read_call(span({"mlflow.spanType": '"LLM"', "mlflow.spanOutputs": answer}))
    assert [one["parts"][0]["content"] for one in call.output_messages or []] == texts


def test_ids_that_are_made_of_name_and_place_for_gemini_are_none() -> None:
    history = [asked("add_0", "add", {}), answered("add_2", "5")]
    given = chat(history, asked("real_id", "add", {}), {"gen_ai.provider.name": "gcp.gemini"})
    call = read_call(span(given))
    sides = [*(call.input_messages or []), *(call.output_messages or [])]
    assert [part["id"] for one in sides for part in one["parts"]] == [None, None, "real_id"]
    other = read_call(span({**given, "gen_ai.provider.name": "openai"}))
    assert other.input_messages == history


def test_an_id_that_is_empty_is_none() -> None:
    call = {"id": "", "function": {"name": "add", "arguments": "{}"}}
    (message,) = read_message({"role": "assistant", "tool_calls": [call, call]})
    assert [part["id"] for part in message["parts"]] == [None, None]


def test_langchains_tool_message_is_the_result_however_it_was_serialised() -> None:
    message = {"content": "5", "name": "add", "tool_call_id": "c1"}
    for result in (message, {"output": {"lc": 1, "kwargs": message}}, {"data": message}):
        given = {"openinference.span.kind": "TOOL", "output.value": result}
        others = ({"langfuse.observation.type": "tool", "langfuse.observation.output": result},)
        for attributes in (given, *others):
            tool = read(span(attributes))
            assert isinstance(tool, ToolCall)
            assert (tool.tool_call_id, tool.result) == ("c1", "5")


def test_a_tool_message_that_python_spelled_is_read_in_the_conventions_too() -> None:
    text = "content='It\\'s 5' name='add' id='m1' tool_call_id='c1' status='success'"
    tool = read(span({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": text}))
    assert isinstance(tool, ToolCall)
    assert (tool.tool_call_id, tool.result) == ("c1", "It's 5")


BLOCK = "TextContent(type='text', text=\"It's 5\", meta=None)"
TWO = f"Result(content=[{BLOCK}, ImageContent(type='image', data='')])"


@pytest.mark.parametrize(
    ("result", "read_as"),
    [
        (f"CallToolResult(meta=None, content=[{BLOCK}], isError=False)", "It's 5"),
        (f"meta=None content=[{BLOCK}] isError=False", "It's 5"),
        (json.dumps(["TextBlock(type='text', text='5', id='1')"]), "5"),
        (TWO, TWO),
        (f"It said {BLOCK}", f"It said {BLOCK}"),
        ("[TextContent(type='text', text='5", "[TextContent(type='text', text='5"),
        ("Text, no more", "Text, no more"),
    ],
)
def test_a_result_that_is_the_spelling_of_one_block_is_its_text(result: str, read_as: str) -> None:
    (message,) = read_message({"role": "tool", "tool_call_id": "c1", "content": result})
    assert message == answered("c1", read_as)


def test_a_tool_call_whose_name_and_arguments_python_spelled_is_read() -> None:
    call = {"id": "c1", "name": "'add'", "arguments": """'{"a": "it\\'s 2"}'"""}
    (message,) = read_message({"role": "assistant", "tool_calls": [call]})
    (part,) = message["parts"]
    assert (part["name"], part["arguments"]) == ("add", {"a": "it's 2"})


@pytest.mark.parametrize(
    ("sent", "own"),
    [
        ("chatcmpl-1", "chatcmpl-1"),
        ("chatcmpl-21f3ee67-b3c4-4e0b-add9-2208a2e9ff04", None),
        ("resp_bGl0ZWxsbTptb2RlbF9pZDpOb25lO3Jlc3BvbnNlX2lkOnJlc3BfMQ==", "resp_1"),
        ("resp_bGl0ZWxsbTptb2RlbF9pZDpOb25l", "resp_bGl0ZWxsbTptb2RlbF9pZDpOb25l"),
        ("resp_bGl0ZWxsbTptb", "resp_bGl0ZWxsbTptb"),
    ],
    ids=["the provider's", "made up", "wrapped", "wrapped around nothing", "cut"],
)
def test_litellms_ids_of_responses_are_the_providers_or_none(sent: str, own: str | None) -> None:
    call = read_call(span(chat([], {}, {"litellm.call_id": "1", "gen_ai.response.id": sent})))
    assert (call.dialect, call.response_id) == ("litellm", own)


def test_langfuses_keys_on_a_span_of_another_dialect_do_not_hide_what_that_says() -> None:
    added = {"langfuse.observation.type": "generation", "langfuse.observation.model.name": "m"}
    call = read_call(span(chat([said("user", "Hi")], {}, {"gen_ai.response.id": "r1", **added})))
    assert (call.dialect, call.response_id) == ("semconv", "r1")


def test_a_schema_says_that_it_is_an_objects_and_holds_no_nulls() -> None:
    schema: dict[str, Any] = {"properties": {"a": {}}, "$defs": None}
    offered = [{"name": "add", "parameters": schema}]
    call = read_call(span(chat([], {}, {"gen_ai.tool.definitions": offered})))
    assert call.tool_definitions is not None
    assert call.tool_definitions[0]["parameters"] == {"type": "object", "properties": {"a": {}}}


def test_a_developer_speaks_as_the_system() -> None:
    assert conversation([{"role": "developer", "content": "Be brief."}]) == [
        said("system", "Be brief.")
    ]


def test_a_users_tool_results_are_tool_messages_before_what_the_user_says() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "5"}]},
        {"type": "text", "text": "And now?"},
    ]
    assert read_message({"role": "user", "content": blocks}) == [
        answered("c1", "5"),
        said("user", "And now?"),
    ]


def test_parallel_calls_written_as_messages_of_their_own_are_one_turn() -> None:
    calls = [asked("c1", "add", {"a": 1}), asked("c2", "add", {"a": 2})]
    (turn,) = conversation(calls)
    assert [part["id"] for part in turn["parts"]] == ["c1", "c2"]


def test_an_image_is_media_and_its_data_is_not_text() -> None:
    block = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    (message,) = conversation([{"role": "user", "content": [block]}])
    assert message["parts"] == [
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "aGk="}
    ]


def test_an_answer_may_be_its_texts_one_a_choice_and_its_tool_calls_apart() -> None:
    sent = {"gen_ai.operation.name": "chat", "gen_ai.request.messages": [said("user", "Hi")]}
    texts = {"gen_ai.response.text": ["Hello", "Hey"]}
    reasons = {"gen_ai.response.finish_reasons": ["stop", "stop"]}
    call = read_call(span({**sent, **texts, **reasons}))
    assert call.input_messages == [said("user", "Hi")]
    assert call.output_messages == [said("assistant", "Hello"), said("assistant", "Hey")]
    assert call.request_params == {}
    tool = {"id": "c1", "function": {"name": "add", "arguments": {"a": 2}}}
    call = read_call(span({**sent, "gen_ai.response.tool_calls": [tool]}))
    assert call.output_messages == [asked("c1", "add", {"a": 2})]


@pytest.mark.parametrize(
    "block", [{"type": "toolUse", "toolUseId": "c1"}, {"toolUse": {"toolUseId": "c1"}}]
)
def test_bedrocks_block_of_a_tool_call_may_have_a_type_instead_of_a_key(block: Any) -> None:
    block.get("toolUse", block).update(name="add", input={"a": 2})
    (message,) = read_message({"role": "assistant", "content": [block]})
    assert message == asked("c1", "add", {"a": 2})


def test_a_role_that_is_a_tools_name_is_the_tools() -> None:
    result = {"role": "weather", "content": "Rain", "additional_kwargs": {}}
    (message,) = read_message({**result, "tool_call_id": "c1"})
    assert message == answered("c1", "Rain")
    assert read_message(result)[0]["role"] == "tool"
    assert read_message({**result, "role": "human"}) == [said("user", "Rain")]


def test_an_id_that_the_ai_sdk_made_up_is_no_response_id() -> None:
    operation = {"ai.operationId": "ai.generateText.doGenerate"}
    assert read_call(span({**operation, "ai.response.id": "aitxt-1"})).response_id is None
    assert read_call(span({**operation, "ai.response.id": "msg_1"})).response_id == "msg_1"


def test_langsmiths_history_ends_before_its_own_answer() -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    answer = {"choices": [{"message": history[1], "finish_reason": "stop"}]}
    kind = {"langsmith.span.kind": "llm", "gen_ai.completion": answer}
    late = read_call(span({**kind, "gen_ai.prompt": {"model": "x", "messages": history}}))
    assert late.input_messages == [said("user", "Hi")]
    again = [*history, {"role": "user", "content": "Hi again"}]
    same = read_call(span({**kind, "gen_ai.prompt": {"model": "x", "messages": again}}))
    assert len(same.input_messages or []) == len(again)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(VALUES),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=12,
)


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool"])},
        optional=dict.fromkeys(WORDS[2:12], ODD),
    ),
    max_size=4,
)


@examples(150)
@given(
    st.sampled_from(EVIDENCE),
    st.dictionaries(st.sampled_from(KEYS), ODD | MESSAGES | st.sampled_from(CUT), max_size=9),
)
def test_whatever_attributes_hold_the_rows_can_be_stored(
    evidence: dict[str, str], more: dict[str, Any]
) -> None:
    attributes = {**more, **evidence}
    derived = derive([span(attributes), span(attributes, id="s2", parent="s1", at=2)], [])
    for call in derived.llm_calls:
        for messages in (call.input_messages, call.output_messages, call.tool_definitions):
            json.dumps(messages, ensure_ascii=False).encode()
        pa.array([call.prompt_token_ids, call.completion_token_ids], pa.list_(pa.int32()))
        pa.array([call.input_tokens, call.output_tokens, call.reasoning_tokens], pa.int64())
        pa.array([call.response_id, call.request_model, call.response_model], pa.string())
    for tool in derived.tool_calls:
        pa.array([tool.name, tool.tool_call_id, tool.error_type], pa.string())
        json.dumps([tool.arguments, tool.result], ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("attributes", "agent"),
    [
        ({"metadata": {"langgraph_node": "write_query"}}, "write_query"),
        ({"metadata": {"lc_agent_name": "writer", "langgraph_node": "model"}}, "writer"),
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


@pytest.mark.parametrize("prefix", ["traceloop.association.properties", "langsmith.metadata"])
def test_the_node_of_a_graph_is_the_agent_only_if_no_agent_is_named(prefix: str) -> None:
    node = {"gen_ai.operation.name": "chat", f"{prefix}.langgraph_node": "model"}
    named = {**node, f"{prefix}.lc_agent_name": "writer"}
    calls = [read(span(one)) for one in (node, named, {**named, "gen_ai.agent.name": "boss"})]
    assert [call.agent_name for call in calls if isinstance(call, LlmCall)] == [
        "model",
        "writer",
        "boss",
    ]


def test_a_plain_message_is_stored_with_its_role_first_whatever_order_it_came_in() -> None:
    parts = [{"type": "text", "content": "hi"}]
    for sent in ({"role": "user", "parts": parts}, {"parts": parts, "role": "user"}):
        keys = {"gen_ai.input.messages": [sent], "gen_ai.output.messages": [sent]}
        call = read(span({"gen_ai.operation.name": "chat", **keys}))
        assert isinstance(call, LlmCall)
        stored = [list(one) for one in (call.input_messages or [])]
        stored += [list(one) for one in (call.output_messages or [])]
        assert stored == [["role", "parts"]] * 2
