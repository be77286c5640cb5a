"""Flattened messages that are read from their places are the same as rebuilt ones."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_lightning.collector.derive import flattened
from otel_lightning.collector.derive.dialects import indexed
from otel_lightning.collector.derive.flat_messages import FlatMessages
from otel_lightning.collector.derive.text import messages
from otel_lightning.collector.derive.text.message_memory import MessageMemory

TEXTS = st.sampled_from(
    ["", "hi", "null", " x", "<elided>", '"function_call"', "[]", '[{"type": "text", "text": "a"}]']
)
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer", "model", "odd", ""])
CALL = st.fixed_dictionaries(
    {"id": st.sampled_from(["", "a", "b"]), "name": st.sampled_from(["", "add", "'add'"])},
    optional={"arguments": st.sampled_from(["", "{}", '{"q": 1}', "{"]), "type": st.just("x")},
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": ROLES,
        "content": TEXTS,
        "tool_call_id": st.sampled_from(["", "a"]),
        "tool_calls": st.lists(CALL, min_size=1, max_size=2),
        "finish_reason": st.sampled_from(["", "stop", "tool_calls"]),
        "name": st.just("me"),
    },
)


def flat(value: Any, key: str) -> dict[str, str]:
    if isinstance(value, str):
        return {key: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for name, part in parts for k, v in flat(part, f"{key}.{name}").items()}


def rebuilt(attributes: dict[str, str]) -> list[dict[str, Any]]:
    return [indexed._message(item) for item in flattened.nested(attributes, "p.") or []]


@given(st.lists(MESSAGE, max_size=6))
def test_a_history_is_the_same_as_when_it_is_rebuilt(history: list[dict[str, Any]]) -> None:
    attributes = {"p": "", **flat(history, "p")}
    read = FlatMessages("p.", indexed._message)
    told = messages.conversation(rebuilt(attributes), MessageMemory())
    assert read.conversation(attributes, MessageMemory()) == told


@given(st.lists(MESSAGE, max_size=3))
def test_choices_are_the_same_as_when_they_are_rebuilt(answers: list[dict[str, Any]]) -> None:
    attributes = {"p": "", **flat(answers, "p")}
    told = []
    for item in rebuilt(attributes):
        said = {**item, "role": "assistant"}
        reason = said.pop("finish_reason", None)
        turns = messages.read_message(said)
        told.append(messages.choice([part for turn in turns for part in turn["parts"]], reason))
    assert FlatMessages("p.", indexed._message).choices(attributes) == told
