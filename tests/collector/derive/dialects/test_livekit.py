"""LiveKit's attempts of one call, and what its package for Python writes."""

import json
from typing import Any

import pytest
from support.spans import QUESTION, assert_read, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, LlmCall

BARE = {"gen_ai.operation.name": "chat"}


def attempts(*statuses: str, answer: str | None = None) -> list[LlmCall]:
    """Return the calls of LiveKit's span of a call with attempts that ended so below it."""
    asked = {"gen_ai.request.model": "m", "gen_ai.input.messages": [QUESTION]}
    reason = {"gen_ai.response.finish_reasons": ["stop"], "lk.llm_metrics": "{}"}
    output = {"gen_ai.output.messages": [text_message("assistant", answer)]} if answer else {}
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


def test_an_attempt_of_a_speech_model_is_no_call() -> None:
    tried = span({"lk.retry_count": 0}, name="tts_request_run", status="ERROR")
    assert derive([tried], []).llm_calls == []


def test_livekits_events_in_python_hold_each_tool_call_as_a_text() -> None:
    """Python's packages before 1.6 write messages as events, and its metrics have the id."""
    called = {"name": "sun", "arguments": '{"city": "Rome"}'}
    asked = {"tool_calls": json.dumps([json.dumps({"id": "c1", "function": called})])}
    one, other = ({"lk.llm_metrics": json.dumps({"request_id": each})} for each in ("r1", "r2"))
    first = span({**BARE, **one}, events=(Event("gen_ai.choice", 1, asked),), id="a")
    history = (
        Event("gen_ai.user.message", 0, {"content": "Hi"}),
        Event("gen_ai.assistant.message", 1, asked),
        Event("gen_ai.tool.message", 2, {"content": "It shines.", "name": "sun", "id": "c1"}),
        Event("gen_ai.choice", 3, {"content": "Hello"}),
    )
    second = span({**BARE, **other}, events=history, id="b", at=4)
    asks, answers = derive([first, second], []).llm_calls
    assert asks.response_id == "r1"
    assert [part["arguments"] for part in asked_for(asks.output_messages)] == [{"city": "Rome"}]
    assert [part["id"] for part in asked_for(answers.input_messages)] == ["c1"]


def asked_for(messages: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    parts = [part for message in messages or () for part in message["parts"]]
    return [part for part in parts if part["type"] == "tool_call"]


@pytest.mark.parametrize("prefix", ["lk.function_tool.", "lk.pii.function_tool."])
def test_livekits_own_keys_of_an_execution_are_read(prefix: str) -> None:
    keys = {
        "lk.function_tool.name": "sun",
        "lk.function_tool.id": "c1",
        f"{prefix}arguments": {"city": "Rome"},
        f"{prefix}output": "An error occurred",
        "lk.function_tool.is_error": True,
    }
    (tool,) = derive([span(keys, name="function_tool")], []).tool_calls
    assert (tool.name, tool.tool_call_id, tool.arguments) == ("sun", "c1", {"city": "Rome"})
    assert (tool.result, tool.error_type) == ("An error occurred", "tool_error")
