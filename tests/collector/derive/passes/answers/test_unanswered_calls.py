"""Calls that failed and whose span says neither that nor what the model answered."""

from typing import Any

import pytest
from support.spans import chat, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Derived, Event, Span

QUESTION = text_message("user", "Is it sunny in Rome?")
NOTHING: dict[str, Any] = {"role": "assistant", "parts": []}
RAISED = Event("exception", 0, {"exception.type": "x.RateLimitError", "exception.message": "slow"})


def run(*calls: Span, status: str = "ERROR") -> Derived:
    """Derive the run of an agent with some calls."""
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk"}
    return derive([span(agent, id="run", ends=9, status=status, events=(RAISED,)), *calls], [])


def call(at: int, output: dict[str, Any], **more: Any) -> Span:
    return span(chat([QUESTION], output, more), id=f"s{at}", parent="run", at=at)


def errors(derived: Derived) -> list[tuple[str | None, str | None]]:
    return [(one.error_type, one.finish_reason) for one in derived.llm_calls]


def test_the_last_call_of_a_run_that_failed_has_its_error_if_nothing_was_answered() -> None:
    answered = call(
        1, text_message("assistant", "It is."), **{"gen_ai.response.finish_reasons": ["stop"]}
    )
    derived = run(answered, call(3, NOTHING))
    assert errors(derived) == [(None, "stop"), ("RateLimitError", "error")]
    assert derived.llm_calls[1].output_messages is None
    assert derived.llm_calls[1].content == "full"


@pytest.mark.parametrize(
    "last",
    [
        call(3, text_message("assistant", "It is.")),
        call(3, NOTHING, **{"gen_ai.response.id": "r1"}),
        call(3, NOTHING, **{"gen_ai.usage.output_tokens": 3}),
    ],
)
def test_an_answered_call_did_not_fail_because_its_run_did(last: Span) -> None:
    assert [kind for kind, _ in errors(run(call(1, NOTHING), last))] == [None, None]


def test_the_sdks_record_of_an_error_belongs_to_the_call_around_it_without_an_answer() -> None:
    sdk = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "error.type": "refused"}
    outer = call(1, NOTHING, **{"gen_ai.request.model": "m"})
    inner = span(sdk, id="sdk", parent="s1", at=1.1, ends=1.9, status="ERROR")
    (only,) = run(outer, inner).llm_calls
    assert (only.error_type, only.merged_span_ids) == ("refused", ["s1"])
