"""LiveKit's attempts of one call."""

import pytest
from support.spans import said, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall

QUESTION, ANSWER = said("user", "Hi"), said("assistant", "Hello")
BARE = {"gen_ai.operation.name": "chat"}


def assert_read(call: LlmCall) -> None:
    assert call.input_messages == [QUESTION]
    (answer,) = call.output_messages or []
    assert answer["parts"] == ANSWER["parts"]
    assert call.content == "full"


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


def test_an_attempt_of_a_speech_model_is_no_call() -> None:
    tried = span({"lk.retry_count": 0}, name="tts_request_run", status="ERROR")
    assert derive([tried], []).llm_calls == []
