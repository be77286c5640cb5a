"""Messages that histories repeat are one object, and nobody's change reaches another's."""

from otel_lightning.collector.derive.rows import LlmCall, Message
from otel_lightning.collector.derive.stitch import meet_ids
from otel_lightning.collector.derive.text import repeated
from otel_lightning.collector.derive.text.messages import conversation

ASKED = {"role": "user", "content": "What is two and two?"}
CALLED = {"role": "assistant", "tool_calls": [{"id": "fc_1", "function": {"name": "add"}}]}


def call(span_id: str, sent: list[Message]) -> LlmCall:
    return LlmCall("t", span_id, None, 0, 1, "semconv", input_messages=sent)


def test_what_two_calls_repeat_is_one_object() -> None:
    first, second = conversation([ASKED, CALLED]), conversation([ASKED, CALLED, ASKED])
    assert [one is other for one, other in zip(first, second, strict=False)] == [True, True]
    assert second[2] is first[0]
    assert first == [dict(message) for message in first]


def test_equal_texts_of_other_roles_or_with_more_beside_them_stay_apart() -> None:
    part = {"type": "text", "content": "What is two and two?"}
    longer = {"role": "user", "parts": [part, part]}
    said, told, more = conversation([ASKED, {**ASKED, "role": "system"}, longer])
    assert [said["role"], told["role"]] == ["user", "system"]
    assert [len(message["parts"]) for message in (said, told, more)] == [1, 1, 2]


def test_ids_that_meet_in_one_rollout_stay_as_they_are_in_another() -> None:
    other = conversation([ASKED, CALLED])
    answered = {"role": "tool", "tool_call_id": "call_1", "content": "4"}
    mine = call("a", conversation([ASKED, CALLED, answered]))
    meet_ids([mine])
    assert (mine.input_messages or [])[1]["parts"][0]["id"] == "call_1"
    assert other[1]["parts"][0]["id"] == "fc_1"


def test_what_is_forgotten_is_read_anew() -> None:
    first = conversation([ASKED, CALLED])
    repeated.forget()
    second = conversation([ASKED, CALLED])
    assert first == second
    assert first[0] is not second[0]
