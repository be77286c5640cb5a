"""LangSmith's dialect."""

from typing import Any

import pytest
from support.spans import read_call, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event


def test_langsmiths_metadata_has_the_fields_of_a_response() -> None:
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
    assert call.input_messages == [text_message("user", "Hi")]


def test_langsmiths_history_ends_before_its_own_answer() -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    answer = {"choices": [{"message": history[1], "finish_reason": "stop"}]}
    kind = {"langsmith.span.kind": "llm", "gen_ai.completion": answer}
    late = read_call(span({**kind, "gen_ai.prompt": {"model": "x", "messages": history}}))
    assert late.input_messages == [text_message("user", "Hi")]
    again = [*history, {"role": "user", "content": "Hi again"}]
    same = read_call(span({**kind, "gen_ai.prompt": {"model": "x", "messages": again}}))
    assert len(same.input_messages or []) == len(again)


@pytest.mark.parametrize(("text", "error"), [("", "Exception"), ("It is.", None)])
def test_langsmiths_run_of_langchain_failed_if_its_answer_has_no_text(
    text: str, error: str | None
) -> None:
    """LangChain keeps the server's refusal as the metadata of an empty answer."""
    message = {"content": text, "response_metadata": {"body": {"type": "error"}}}
    generation = {"text": text, "message": {"lc": 1, "id": ["AIMessage"], "kwargs": message}}
    attributes = {
        "langsmith.span.kind": "llm",
        "gen_ai.completion": {"generations": [[generation]]},
    }
    raised = Event("exception", 0, {"exception.type": "Exception"})
    (call,) = derive([span(attributes, status="OK", events=(raised,))], []).llm_calls
    assert call.error_type == error


def test_langsmiths_joined_tool_calls_are_separate_and_the_first_has_its_id() -> None:
    asked = {"name": "sunrain", "arguments": '{"a": 1}{"a": 2}'}
    message = {"role": "assistant", "tool_calls": [{"id": "call_1", "function": asked}]}
    tools = [{"type": "function", "function": {"name": name}} for name in ("sun", "rain")]
    sent = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    said = {"id": "c", "choices": [{"message": message, "finish_reason": "tool_calls"}]}
    given = {"langsmith.span.kind": "llm", "gen_ai.prompt": sent, "gen_ai.completion": said}
    (call,) = derive([span(given)], []).llm_calls
    parts = (call.output_messages or [])[0]["parts"]
    told = [(part["id"], part["name"], part["arguments"]) for part in parts]
    assert told == [("call_1", "sun", {"a": 1}), (None, "rain", {"a": 2})]


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


@pytest.mark.parametrize("result", [None, {}, {"generations": [[]], "type": "LLMResult"}])
def test_a_run_of_langsmith_without_a_result_failed(result: dict[str, Any] | None) -> None:
    """Its status is OK; LangChain's models of other providers write an empty result."""
    keys = {
        "langsmith.span.kind": "llm",
        "gen_ai.request.model": "m",
        "gen_ai.prompt": {"messages": [{"role": "user", "content": "Hi"}]},
        "gen_ai.completion": result,
    }
    refused = Event("exception", 1, {"exception.type": "Refused", "exception.message": "no"})
    given = span(keys, status="OK", events=(refused,))
    (call,) = derive([given], []).llm_calls
    assert (call.error_type, call.finish_reason) == ("Refused", "error")


COROUTINE = "<coroutine object _wrap_async at 0x7f7fb0d658a0>"


@pytest.mark.parametrize("said", [COROUTINE, f"It prints {COROUTINE}."])
def test_a_run_of_langsmith_that_returned_a_coroutine_is_no_call(said: str) -> None:
    """It took the async functions of a client that another package wrapped for plain ones."""
    given = {
        "langsmith.span.kind": "llm",
        "gen_ai.request.model": "m",
        "gen_ai.prompt": {"messages": [{"role": "user", "content": "Hi"}]},
        "gen_ai.completion": {"output": said},
    }
    calls = derive([span(given)], []).llm_calls
    outputs = [call.output_messages for call in calls]
    assert outputs == ([] if said == COROUTINE else [[text_message("assistant", said)]])


def test_a_coroutine_is_no_result_of_a_tool() -> None:
    given = {
        "langsmith.span.kind": "tool",
        "gen_ai.prompt": {"city": "Rome"},
        "gen_ai.completion": {"output": COROUTINE},
    }
    (tool,) = derive([span(given, name="sun")], []).tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("sun", {"city": "Rome"}, None)


COUNTED = {
    "input_tokens": 31,
    "output_tokens": 9,
    "input_token_details": {"cache_read": 7, "cache_creation": 2},
    "output_token_details": {"reasoning": 3},
}
ASSISTANT = {"role": "assistant", "content": "Hello"}


@pytest.mark.parametrize(
    "result",
    [ASSISTANT, {"messages": [ASSISTANT]}, {"messages": [{"role": "user"}, ASSISTANT]}],
)
def test_a_model_of_ones_own_is_read_from_langsmiths_documented_outputs(
    result: dict[str, Any],
) -> None:
    given = {
        "langsmith.span.kind": "llm",
        "gen_ai.request.model": "m",
        "gen_ai.prompt": {"messages": [{"role": "user", "content": "Hi"}]},
        "gen_ai.completion": {**result, "usage_metadata": COUNTED},
    }
    call = read_call(span(given))
    assert call.output_messages == [text_message("assistant", "Hello")]
    counts = call.input_tokens, call.output_tokens, call.cached_input_tokens
    assert (*counts, call.reasoning_tokens, call.cache_creation_input_tokens) == (31, 9, 7, 3, 2)


def test_messages_that_end_with_no_answer_are_none() -> None:
    given = {
        "langsmith.span.kind": "llm",
        "gen_ai.request.model": "m",
        "gen_ai.prompt": {"messages": [{"role": "user", "content": "Hi"}]},
        "gen_ai.completion": {"messages": [ASSISTANT, {"role": "user", "content": "Hi"}]},
    }
    call = read_call(span(given))
    assert (call.output_messages, call.content) == (None, "truncated")
