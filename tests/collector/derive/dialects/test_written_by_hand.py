"""Spans that people write by hand, as the conventions and vendors document them for that."""

import json
from typing import Any

import pytest
from support.spans import span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, LlmCall

ASKED, ANSWERED = [text_message("user", "Hi")], [text_message("assistant", "Hello")]
MODEL = {"gen_ai.system": "openai", "gen_ai.request.model": "m"}
COUNTS = {"gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 2}
OPENINFERENCE = {"openinference.span.kind": "LLM"}
LANGSMITH = {"langsmith.span.kind": "LLM", **MODEL}
SENT = [{"role": "user", "content": "Hi"}]


def the_call(attributes: dict[str, Any], *events: Event) -> LlmCall:
    """Return the only call of a trace with one span."""
    (call,) = derive([span(attributes, events=events)], []).llm_calls
    return call


def whole(call: LlmCall) -> bool:
    """Return whether a call has the greeting and its answer, and nothing is missing."""
    sides = (call.input_messages, call.output_messages, call.content)
    return sides == (ASKED, ANSWERED, "full")


@pytest.mark.parametrize(
    "answered",
    [
        COUNTS,
        {"gen_ai.usage.completion_tokens": 2},
        {"gen_ai.response.finish_reasons": ["stop"]},
        {"gen_ai.response.model": "m-1"},
    ],
)
def test_a_model_and_something_of_its_answer_are_a_call(answered: dict[str, Any]) -> None:
    call = the_call({**MODEL, **answered})
    assert (call.operation, call.request_model, call.step) == ("chat", "m", 0)
    assert call.output_tokens == (2 if any("tokens" in key for key in answered) else None)


def test_a_model_alone_is_no_call() -> None:
    assert not derive([span(MODEL)], []).llm_calls


def test_an_operation_of_its_own_name_with_a_model_and_an_answer_is_a_call() -> None:
    """NeMo Guardrails names its tasks so, and keeps texts in events."""
    named = {**MODEL, "gen_ai.operation.name": "self_check_input"}
    asked = Event("gen_ai.content.prompt", 1, {"content": "Hi"})
    answered = Event("gen_ai.content.completion", 2, {"content": "Hello"})
    assert whole(the_call({**named, **COUNTS}, asked, answered))
    assert not derive([span(named)], []).llm_calls


def test_answers_and_tools_of_any_agent_are_read() -> None:
    """It writes the input of the first call of a run only."""
    named = {**MODEL, **COUNTS, "gen_ai.operation.name": "call_llm"}
    asked = [{"tool.name": "sun", "tool.args": '{"city": "Oslo"}'}]
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    spans = [
        span({**named, "gen_ai.input.messages": ASKED, "gen_ai.output": asked}, id="c1"),
        span(
            {**ran, "gen_ai.tool.args": {"city": "Oslo"}, "gen_ai.output": "It shines."},
            id="t1",
            at=2,
        ),
        span({**named, "gen_ai.output": "Hello"}, id="c2", at=4),
    ]
    derived = derive(spans, [])
    first, last = derived.llm_calls
    (part,) = (first.output_messages or [])[0]["parts"]
    assert (part["name"], part["arguments"]) == ("sun", {"city": "Oslo"})
    assert (last.output_messages, last.content) == (ANSWERED, "truncated")
    (tool,) = derived.tool_calls
    assert (tool.arguments, tool.result) == ({"city": "Oslo"}, "It shines.")


def test_an_operation_of_its_own_name_around_calls_is_an_agent_run() -> None:
    counted = {**MODEL, **COUNTS}
    around = span({**counted, "gen_ai.operation.name": "answer_question"}, ends=9)
    inner = [
        span({**counted, "gen_ai.response.id": f"r{at}"}, id=f"c{at}", parent="s1", at=at)
        for at in range(2)
    ]
    derived = derive([around, *inner], [])
    assert [call.response_id for call in derived.llm_calls] == ["r0", "r1"]


def test_a_model_and_counts_around_calls_are_an_agent_run() -> None:
    counted = {**MODEL, **COUNTS}
    inner = [
        span({**counted, "gen_ai.response.id": f"r{at}"}, id=f"c{at}", parent="s1", at=at)
        for at in range(2)
    ]
    derived = derive([span(counted, ends=9), *inner], [])
    assert [call.response_id for call in derived.llm_calls] == ["r0", "r1"]


@pytest.mark.parametrize(
    ("prompt", "completion"),
    [("Hi", "Hello"), (SENT, [{"role": "assistant", "content": "Hello"}])],
)
def test_a_prompt_and_a_completion_are_the_messages(prompt: Any, completion: Any) -> None:
    content = {"gen_ai.prompt": prompt, "gen_ai.completion": completion}
    assert whole(the_call({**MODEL, **COUNTS, **content}))
    assert whole(the_call({**MODEL, "gen_ai.response.model": "m", **content}))


def test_events_with_a_prompt_and_a_completion_are_the_messages() -> None:
    asked = Event("gen_ai.content.prompt", 1, {"gen_ai.prompt": "Hi"})
    answered = Event("gen_ai.content.completion", 2, {"gen_ai.completion": "Hello"})
    assert whole(the_call({**MODEL, **COUNTS}, asked, answered))


def test_a_tool_with_its_arguments_is_an_execution_without_an_operation() -> None:
    attributes = {"gen_ai.tool.name": "f", "gen_ai.tool.call.arguments": {"a": 1}}
    derived = derive([span(attributes)], [])
    assert [(tool.name, tool.arguments) for tool in derived.tool_calls] == [("f", {"a": 1})]
    assert not derive([span({"gen_ai.tool.name": "f"})], []).tool_calls


def test_the_object_that_a_traced_function_of_javascript_gets_has_the_arguments() -> None:
    given = {"args": [{"a": 1}], "kwargs": {}}
    attributes = {"traceloop.span.kind": "tool", "traceloop.entity.name": "f"}
    (tool,) = derive([span({**attributes, "traceloop.entity.input": given})], []).tool_calls
    assert (tool.name, tool.arguments) == ("f", {"a": 1})


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ("Hi", "Hello"),
        (SENT, "Hello"),
        ({"messages": SENT}, {"role": "assistant", "content": "Hello"}),
        (SENT, ["Hello"]),
    ],
)
def test_the_values_of_an_openinference_span_are_messages(sent: Any, answer: Any) -> None:
    values = {"input.value": sent, "output.value": answer, "llm.model_name": "m"}
    assert whole(the_call({**OPENINFERENCE, **values}))


def test_a_value_that_was_cut_is_no_message() -> None:
    values = {"input.value": json.dumps(SENT)[:-4], "output.value": "__REDACTED__"}
    call = the_call({**OPENINFERENCE, "llm.model_name": "m", **values})
    assert (call.input_messages, call.output_messages) == (None, None)


def test_openinferences_kind_may_be_on_a_span_of_the_conventions() -> None:
    call = the_call({**OPENINFERENCE, **MODEL, **COUNTS})
    assert (call.dialect, call.request_model, call.input_tokens) == ("semconv", "m", 5)


def test_langsmiths_documented_span_has_flattened_messages() -> None:
    flattened = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hi",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "Hello",
    }
    call = the_call({**LANGSMITH, **flattened, **COUNTS, "langsmith.metadata.session_id": "s"})
    assert whole(call)
    assert (call.input_tokens, call.output_tokens, call.rollout_id) == (5, 2, "s")


@pytest.mark.parametrize("prompt", ["Hi", SENT, {"messages": SENT}])
@pytest.mark.parametrize("answer", ["Hello", {"outputs": "Hello"}, {"output": "Hello"}])
def test_langsmiths_prompt_and_completion_may_be_texts(prompt: Any, answer: Any) -> None:
    assert whole(the_call({**LANGSMITH, "gen_ai.prompt": prompt, "gen_ai.completion": answer}))


def test_messages_that_langchain_joined_are_not_called_full() -> None:
    """Nothing says where a message ends, and which tools were called."""
    values = {"input.value": ["System: Be brief.\nHuman: Hi"], "output.value": ["Hello"]}
    call = the_call({**OPENINFERENCE, "llm.model_name": "m", **values})
    assert (call.output_messages, call.content) == (ANSWERED, "truncated")
