"""Answers that were broken off: at a token limit, by an error, or by a client that left."""

from typing import Any

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.regressions import rows_of
from support.spans import (
    ANSWER,
    QUESTION,
    chat,
    only_call,
    span,
    text_message,
    tool_request,
    tool_response,
)

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall

CUT = '{"city": "Paris", "days": 12'


def last_part(call: LlmCall) -> dict[str, Any]:
    (answer,) = call.output_messages or []
    return dict(answer["parts"][-1])


@pytest.mark.parametrize(
    ("recording", "reason", "error"),
    [
        ("cut_at_limit", "length", None),  # Traceloop for LangChain
        ("stream_failed", "error", "OpenAIConnectionError"),  # OpenInference for LangChain
        ("stream_left", None, None),  # OpenInference for Anthropic
        ("langsmith_left", "error", "Exception"),
        ("left_twice", "error", "GeneratorExit"),  # and Anthropic's own tracer
    ],
)
def test_arguments_that_a_client_completed_are_not_taken_for_the_models(
    recording: str, reason: str | None, error: str | None
) -> None:
    (call,) = rows_of(recording).llm_calls
    part = last_part(call)
    assert (part["name"], part["arguments"]) == ("get_weather", None)
    assert "arguments_raw" not in part
    assert (call.finish_reason, call.error_type) == (reason, error)
    assert call.content == "truncated"


@pytest.mark.parametrize("recording", ["stream_left", "left_twice"])
def test_the_first_count_of_a_stream_that_was_left_is_not_its_last(recording: str) -> None:
    (call,) = rows_of(recording).llm_calls
    assert (call.input_tokens, call.output_tokens) == (31, None)


def test_a_stream_of_which_nothing_was_written_is_truncated_and_a_refusal_is_whole() -> None:
    """OpenInference for LangChain in JavaScript writes nothing of a streamed answer that broke."""
    refused, broken = sorted(rows_of("langchain_js_broken").llm_calls, key=lambda one: one.content)
    assert (refused.error_type, refused.content) == ("_OTHER", "full")
    assert (refused.error_message or "").startswith("400 no such city")
    assert (broken.error_type, broken.content) == ("_OTHER", "truncated")
    assert not broken.has_completion


def test_a_stream_that_the_client_closed_is_truncated_whatever_its_package_calls_it() -> None:
    """OpenTelemetry's package for OpenAI writes `error` as the reason that no provider gave."""
    calls = rows_of("stream_closed").llm_calls
    closed, left_at_once, left = sorted(calls, key=lambda one: one.start_ns or 0)
    assert (closed.finish_reason, closed.error_type) == (None, None)
    assert [one.error_message for one in (left_at_once, left)] == ["abandoned stream"] * 2
    assert [one.content for one in calls] == ["truncated"] * 3
    assert not left.has_completion  # of the Responses API nothing was written


def test_a_stream_without_an_end_in_logfire_is_truncated_and_one_row() -> None:
    """Logfire writes a record of its end without a finish reason, and maybe without an answer."""
    capture = load(DATA / "logfire/broken_off.truth.json")
    left, broken = derive(capture.spans, capture.logs).llm_calls
    assert [one.content for one in (left, broken)] == ["truncated"] * 2
    assert left.has_completion
    assert not broken.has_completion


@pytest.mark.parametrize(("streamed", "content"), [(True, "truncated"), (False, "full")])
def test_a_reason_that_the_provider_did_not_give_cuts_only_a_stream(
    *, streamed: bool, content: str
) -> None:
    call = ended_with_text("error", {"gen_ai.request.stream": streamed})
    assert (call.finish_reason, call.error_type, call.content) == (None, None, content)


def test_a_stream_that_was_closed_before_its_first_word_did_not_fail() -> None:
    answer = {"role": "assistant", "parts": [], "finish_reason": "error"}
    call = only_call(span(chat([QUESTION], answer, {"gen_ai.request.stream": True})))
    assert (call.finish_reason, call.error_type, call.content) == (None, None, "truncated")


def ended_with_text(reason: str, more: dict[str, Any]) -> LlmCall:
    answer = {**text_message("assistant", "It is"), "finish_reason": reason}
    return only_call(span(chat([QUESTION], answer, more)))


def ended(reason: str, arguments: Any, **more: Any) -> LlmCall:
    answer = {**tool_request("c1", "sun", arguments), "finish_reason": reason}
    return only_call(span(chat([QUESTION], answer, more)))


def test_the_models_own_text_is_kept_and_whole_at_a_token_limit() -> None:
    call = ended("length", CUT)
    assert last_part(call)["arguments_raw"] == CUT
    assert (call.finish_reason, call.content) == ("length", "full")


@pytest.mark.parametrize("reason", ["tool_calls", "stop"])
def test_arguments_of_an_answer_that_ended_are_kept(reason: str) -> None:
    call = ended(reason, {"city": "Paris"})
    assert last_part(call)["arguments"] == {"city": "Paris"}
    assert call.content == "full"


def test_only_the_last_tool_call_was_broken_off() -> None:
    calls = [tool_request(one, "sun", {"city": one})["parts"][0] for one in ("c1", "c2")]
    answer = {"role": "assistant", "parts": calls, "finish_reason": "length"}
    (told,) = only_call(span(chat([QUESTION], answer))).output_messages or []
    assert [part["arguments"] for part in told["parts"]] == [{"city": "c1"}, None]


def test_an_answer_without_a_reason_that_ends_inside_a_tool_call_is_truncated() -> None:
    assert only_call(span(chat([QUESTION], tool_request("c1", "sun", CUT)))).content == "truncated"


def test_a_text_that_an_error_broke_off_is_truncated() -> None:
    failed = {"error.type": "APIError"}
    half = text_message("assistant", "It i")
    call = only_call(span(chat([QUESTION], half, failed), status="ERROR"))
    assert (call.finish_reason, call.content) == ("error", "truncated")


def test_what_the_tool_was_called_with_is_known_from_its_execution() -> None:
    """LangGraph runs a tool with the arguments that LangChain completed."""
    asked = {**tool_request("c1", "sun", {"days": 12}), "finish_reason": "length"}
    first = span(chat([QUESTION], asked), id="a", parent="root")
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    ran |= {"gen_ai.tool.call.id": "c1", "gen_ai.tool.call.arguments": '{"days": 12}'}
    tool = span(ran, id="b", parent="root", at=2)
    history = [QUESTION, tool_request("c1", "sun", {"days": 12}), tool_response("c1", "sunny")]
    second = span(chat(history, ANSWER), id="c", parent="root", at=4)
    rows = derive([span({}, id="root", ends=9), first, tool, second], [])
    (told,) = rows.tool_calls
    assert (told.arguments, told.result, told.llm_span_id) == ({"days": 12}, "sunny", "a")
