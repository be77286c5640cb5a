"""Inputs that were written after the answer end before it."""

from typing import Any

from support.spans import span

from otel_lightning.collector.derive.assemble import derive


def test_an_input_that_was_written_late_ends_before_the_calls_own_answer() -> None:
    messages = [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": "Sun."},
        {"role": "user", "content": "Rome?"},
    ]
    assert lengths_of_inputs(messages, ["Sun.", "Rain."]) == [1, 3]


def test_an_earlier_answer_equal_to_that_of_another_call_ends_no_history() -> None:
    messages = [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": "Sun."},
        {"role": "user", "content": "Rome?"},
    ]
    assert lengths_of_inputs(messages, ["Sun."]) == [3]
    repeated = [
        *messages,
        {"role": "assistant", "content": "Sun."},
        {"role": "user", "content": "So?"},
    ]
    assert lengths_of_inputs(messages, ["Sun.", "Yes."], repeated) == [3, 5]


def lengths_of_inputs(
    told: list[Any], answers: list[str], later: list[Any] | None = None
) -> list[int]:
    """Return the number of messages in the input of each call of a trace.

    The first call's input is recorded as `told`, and the others' as `later`, if that is given.
    """
    calls = [
        span(
            {
                "langsmith.span.kind": "llm",
                "gen_ai.prompt": {"model": "m", "messages": (later or told) if at else told},
                "gen_ai.completion": {
                    "id": f"c{at}",
                    "choices": [{"message": {"role": "assistant", "content": text}}],
                },
            },
            id=f"s{at}",
            parent="agent",
            at=2 * at,
        )
        for at, text in enumerate(answers)
    ]
    return [len(call.input_messages or []) for call in derive(calls, []).llm_calls]
