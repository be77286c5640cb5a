"""Texts that Strands redacted."""

import pytest
from support.spans import read_call, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event

STRANDS = "strands.telemetry.tracer"
CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
DETAILS = "gen_ai.client.inference.operation.details"


def events_of(question: str, answer: str) -> tuple[Event, ...]:
    return (
        Event("gen_ai.user.message", 0, {"content": question}),
        Event("gen_ai.choice", 1, {"finish_reason": "end_turn", "message": answer}),
    )


@pytest.mark.parametrize(
    ("answer", "content"),
    [("[REDACTED]", "truncated"), ('[{"text": "[REDACTED]"}]', "full")],
)
def test_a_redacted_answer_of_strands_is_no_text(answer: str, content: str) -> None:
    events = events_of('[{"text": "Hi"}]', answer)
    call = read_call(span(CALL, events=events, scope=STRANDS))
    assert call.content == content
    parts = [part for message in call.output_messages or () for part in message["parts"]]
    assert [part["content"] for part in parts] == (["[REDACTED]"] if content == "full" else [])


def test_redacted_messages_of_strands_are_absent() -> None:
    sides = ("gen_ai.input.messages", "gen_ai.output.messages")
    events = tuple(Event(DETAILS, at, {side: "[REDACTED]"}) for at, side in enumerate(sides))
    assert read_call(span(CALL, events=events, scope=STRANDS)).content == "absent"


def test_redacted_arguments_and_results_of_strands_are_unknown() -> None:
    keys = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    hidden = {f"gen_ai.tool.call.{name}": "[REDACTED]" for name in ("arguments", "result")}
    (tool,) = derive([span(keys | hidden, scope=STRANDS)], []).tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("sun", None, None)


def test_the_mark_in_the_texts_of_others_is_a_text() -> None:
    events = events_of("Hi", "[REDACTED]")
    assert read_call(span(CALL, events=events)).content == "full"
