"""What an instrumentation lost of answers with tool calls, and later calls repeat."""

import json
from typing import Any

import pytest
from support.spans import chat, span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Derived, Span

SCOPES = ("@traceloop/instrumentation-anthropic", "opentelemetry.instrumentation.bedrock")
QUESTION = text_message("user", "Is it sunny in Rome?")


def task(scope: str, number: int) -> list[Span]:
    """Return both calls of one task, each in a trace of its own."""
    lost, whole = (tool_request(f"c{number}", "sun", given) for given in ({}, {"city": "Rome"}))
    history = [QUESTION, whole, tool_response(f"c{number}", "It shines.")]
    return [
        span(chat([QUESTION], lost), trace=f"{number}a", at=number, ends=number + 0.5, scope=scope),
        span(
            chat(history, text_message("assistant", "Yes.")), trace=f"{number}b", at=3, scope=scope
        ),
    ]


def tasks(scope: str) -> Derived:
    return derive([*task(scope, 1), *task(scope, 2)], [])


@pytest.mark.parametrize("scope", SCOPES)
def test_a_later_history_tells_the_arguments_that_a_stream_lost(scope: str) -> None:
    derived = tasks(scope)
    for call in derived.llm_calls[:2]:
        (message,) = call.output_messages or ()
        assert message["parts"][0]["arguments"] == {"city": "Rome"}
        assert call.content == "full"
    assert [tool.arguments for tool in derived.tool_calls] == [{"city": "Rome"}] * 2


@pytest.mark.parametrize("scope", SCOPES)
def test_calls_that_lost_arguments_are_tied_by_the_ids_of_their_tool_calls(scope: str) -> None:
    assert [call.rollout_id for call in tasks(scope).llm_calls] == ["1a", "2a", "1a", "2a"]


@pytest.mark.parametrize("scope", SCOPES)
def test_lost_arguments_that_nobody_repeats_are_unknown(scope: str) -> None:
    (call,) = derive(task(scope, 1)[:1], []).llm_calls
    (message,) = call.output_messages or ()
    assert "arguments" not in message["parts"][0]
    assert call.content == "redacted"


def said(scope: str) -> Derived:
    """Return both calls of a task whose first answer lacks the text beside its tool call."""
    request = tool_request("c1", "sun", {"city": "Rome"})
    text = {"type": "text", "content": "I will look."}
    whole = {**request, "parts": [text, *request["parts"]]}
    history = [QUESTION, whole, tool_response("c1", "It shines.")]
    return derive(
        [
            span(chat([QUESTION], request), trace="a", at=1, ends=1.5, scope=scope),
            span(chat(history, text_message("assistant", "Yes.")), trace="b", at=3, scope=scope),
        ],
        [],
    )


def test_a_later_history_tells_the_text_that_an_answer_lost() -> None:
    first, second = said("opentelemetry.instrumentation.botocore.bedrock-runtime").llm_calls
    (message,) = first.output_messages or ()
    assert [part["type"] for part in message["parts"]] == ["text", "tool_call"]
    assert (first.rollout_id, first.content) == (second.rollout_id, "full")


def test_the_answers_of_packages_that_lose_no_text_are_what_the_model_said() -> None:
    first, _ = said("opentelemetry.instrumentation.anthropic").llm_calls
    (message,) = first.output_messages or ()
    assert [part["type"] for part in message["parts"]] == ["tool_call"]


def test_other_packages_empty_arguments_are_what_the_model_said() -> None:
    (call,) = derive(task("opentelemetry.instrumentation.anthropic", 1)[:1], []).llm_calls
    (message,) = call.output_messages or ()
    assert message["parts"][0]["arguments"] == {}


def streamed(at: float, *messages: dict[str, Any], failed: bool = False) -> Span:
    """Return a streamed call as OpenInference for Groq writes it: without the answer."""
    asked = {"role": "user", "content": "Sun?"}
    sent = {"model": "llama", "stream": True, "messages": [asked, *messages]}
    stream = {"output.value": "<groq.Stream object at 0x7fd27dcb77d0>"}
    first = {f"llm.input_messages.0.message.{key}": text for key, text in asked.items()}
    return span(
        {"openinference.span.kind": "LLM", "input.value": json.dumps(sent), **first, **stream},
        trace=f"t{at}",
        id=f"s{at}",
        at=at,
        status="ERROR" if failed else "OK",
        scope="openinference.instrumentation.groq",
    )


def called(call_id: str, text: str | None = None) -> list[dict[str, Any]]:
    """Return the assistant's turn with a tool call, as the provider wrote it, and the result."""
    function = {"name": "sun", "arguments": '{"city": "Rome"}'}
    asked = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": text, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": call_id, "content": "It shines."},
    ]


def test_lost_answers_are_those_that_later_inputs_go_on_with() -> None:
    history = [*called("c1"), *called("c2", "Once more.")]
    told = [*history, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Hm?"}]
    derived = derive(
        [streamed(0), streamed(5, *history[:2]), streamed(10, *history), streamed(15, *told)], []
    )
    assert {call.rollout_id for call in derived.llm_calls} == {"t0"}
    first, second, text, last = derived.llm_calls
    for call, call_id in ((first, "c1"), (second, "c2")):
        (message,) = call.output_messages or ()
        assert [part["id"] for part in message["parts"] if part["type"] == "tool_call"] == [call_id]
        assert (call.finish_reason, call.content) == ("tool_calls", "truncated")
    # An agent may change a text before it sends it back.
    assert (text.output_messages, last.output_messages) == (None, None)
    assert [tool.llm_span_id for tool in derived.tool_calls] == ["s0", "s5"]


@pytest.mark.parametrize("at", [0.5, 3], ids=["overlapping calls", "calls in turn"])
def test_runs_at_once_whose_answers_are_lost_are_not_mixed(at: float) -> None:
    firsts = streamed(0), streamed(at)
    derived = derive([*firsts, streamed(5, *called("c1")), streamed(6, *called("c2"))], [])
    assert len({call.rollout_id for call in derived.llm_calls}) == 4
    assert not any(call.output_messages for call in derived.llm_calls)


def test_a_failed_call_has_no_lost_answer() -> None:
    derived = derive([streamed(0, failed=True), streamed(5, *called("c1"))], [])
    assert [call.output_messages for call in derived.llm_calls] == [None, None]
    assert len({call.rollout_id for call in derived.llm_calls}) == 2
