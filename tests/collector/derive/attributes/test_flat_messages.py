"""Flattened messages that are read from their places are the same as rebuilt ones."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.spans import span

from otel_lightning.collector.derive import dialects
from otel_lightning.collector.derive.attributes import flat_messages, flat_readers, flattened
from otel_lightning.collector.derive.attributes.flat_messages import MOST_KEYS, USES, FlatMessages
from otel_lightning.collector.derive.dialects import indexed
from otel_lightning.collector.derive.messages import messages, one_message
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.messages import SHORT
from otel_lightning.collector.derive.rows import LlmCall

FUNCTIONS = "gen_ai.request.functions"
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


ORDINARY = st.sampled_from(["hi", "Text", "TextContent(type='text', text='a')", "<elided>"])
USUAL = st.one_of(
    st.fixed_dictionaries({"role": ROLES, "content": TEXTS | ORDINARY}),
    st.fixed_dictionaries(
        {"role": ROLES, "content": TEXTS | ORDINARY},
        optional={
            "tool_call_id": st.sampled_from(["", "a", "b"]),
            "finish_reason": st.just("stop"),
        },
    ),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "tool_calls": st.lists(CALL, min_size=1, max_size=3)},
        optional={"finish_reason": st.sampled_from(["", "stop", "length"])},
    ),
    MESSAGE,
)
"""Messages as instrumentations write them, and any other."""


HI = {"role": "user", "content": "hi"}
ADD = {"id": "a", "name": "add", "arguments": '{"q": 1}'}
ASKING = {"role": "assistant", "tool_calls": [ADD, {**ADD, "id": "b"}]}
TELLING = {"role": "tool", "content": "3", "tool_call_id": "a"}
WRITTEN = '{"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}'
ODD = {
    "block": [ASKING, {**TELLING, "content": "TextContent(type='text', text='3')"}],
    "no id": [{**ASKING, "tool_calls": [ADD]}, {**TELLING, "tool_call_id": ""}],
    "no tool": [ASKING, {**TELLING, "role": "user"}],
    "written call": [{"role": "assistant", "content": WRITTEN}],
    "equal ids": [{**ASKING, "tool_calls": [ADD, ADD]}],
    "neighbours": [ASKING, {**ASKING, "tool_calls": [{**ADD, "id": "c"}]}],
    "a user who asks": [{**ASKING, "role": "user"}],
    "repr": [{**ASKING, "tool_calls": [{**ADD, "name": "'add'", "arguments": "'{}'"}]}],
    "stopped": [{**ASKING, "finish_reason": "stop"}],
    "no strict json": [{**ASKING, "tool_calls": [{**ADD, "arguments": '{"q": NaN}'}]}],
    "long": [HI] * SHORT,
}


def is_read_as_rebuilt(history: list[dict[str, Any]]) -> bool:
    attributes = {"p": "", **flat(history, "p")}
    told = json.dumps(messages.conversation(rebuilt(attributes), MessageMemory()))
    read = FlatMessages("p.", indexed._message)
    for _ in range(USES + 1):  # the last ones by a compiled function
        memory = MessageMemory()
        found = read.conversation(attributes, memory)
        if json.dumps(found) != told:
            return False
    shared = [memory.one_copy(one) is one for one in found]
    return all(shared) == (len(found) > SHORT or not found)


@given(st.lists(USUAL, max_size=SHORT + 1))
def test_a_history_is_the_same_as_when_it_is_rebuilt(history: list[dict[str, Any]]) -> None:
    assert is_read_as_rebuilt(history)


@pytest.mark.parametrize("said", ODD.values(), ids=ODD)
def test_an_odd_message_is_the_same_as_when_it_is_rebuilt(said: list[dict[str, Any]]) -> None:
    assert is_read_as_rebuilt([HI, *said, HI])


def are_choices_read_as_rebuilt(answers: list[dict[str, Any]]) -> bool:
    attributes = {"p": "", **flat(answers, "p")}
    told = []
    for item in rebuilt(attributes):
        message = {**item, "role": "assistant"}
        reason = message.pop("finish_reason", None)
        turns = one_message.read_message(message)
        told.append(messages.choice([part for turn in turns for part in turn["parts"]], reason))
    read = FlatMessages("p.", indexed._message)
    found = [json.dumps(read.choices(attributes)) for _ in range(USES + 1)]
    return set(found) == {json.dumps(told)}


@given(st.lists(USUAL, max_size=3))
def test_choices_are_the_same_as_when_they_are_rebuilt(answers: list[dict[str, Any]]) -> None:
    assert are_choices_read_as_rebuilt(answers)


@pytest.mark.parametrize("said", ODD.values(), ids=ODD)
def test_an_odd_choice_is_the_same_as_when_it_is_rebuilt(said: list[dict[str, Any]]) -> None:
    assert are_choices_read_as_rebuilt(said)


@pytest.mark.parametrize(("text", "content"), [("[1]", "full"), ("[1", "truncated")])
def test_a_content_that_was_cut_is_truncated(text: str, content: str) -> None:
    sent = flat([HI, {**HI, "content": text}], "gen_ai.prompt")
    call = dialects.read(span(sent | flat([{"content": "Hello"}], "gen_ai.completion")))
    assert isinstance(call, LlmCall)
    assert call.content == content


def test_calls_of_one_shape_with_other_tools_offer_their_own() -> None:
    offered = []
    for name in ("add", "add", "sub", "add"):
        function = {"name": name, "description": "A tool.", "parameters": "{}"}
        call = dialects.read(span(flat([HI], "gen_ai.prompt") | flat([function], FUNCTIONS)))
        assert isinstance(call, LlmCall)
        offered.append([tool["name"] for tool in call.tool_definitions or ()])
    assert offered == [["add"], ["add"], ["sub"], ["add"]]


def long_history(messages: int, prefix: str = "p") -> dict[str, str]:
    return flat([{"role": "user", "content": f"text {at}"} for at in range(messages)], prefix)


def test_a_reader_of_very_many_keys_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    compiled = flat_readers.history

    def note(places: Any, other: Any) -> Any:
        made.append(len(places))
        return compiled(places, other)

    monkeypatch.setattr(flat_readers, "history", note)
    most = MOST_KEYS // 2
    for count in (most, most + 1, 3 * most):
        read, attributes = FlatMessages("p.", indexed._message), long_history(count)
        found = [read.conversation(attributes, None) for _ in range(USES + 2)]
        assert all(one == found[0] for one in found)
        assert len(found[0]) == count
    assert made == [most]


def test_compiled_readers_are_dropped_when_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = flat_messages._Compiled()
    monkeypatch.setattr(flat_messages, "_compiled", kept)
    monkeypatch.setattr(flat_messages, "MOST_KEPT_KEYS", 50)
    read = FlatMessages("p.", indexed._message)
    for _ in range(2):
        for count in range(1, 20):  # each length is a shape of its own
            attributes = long_history(count)
            found = [read.conversation(attributes, None) for _ in range(USES + 2)]
            assert [len(one) for one in found] == [count] * (USES + 2)
            assert kept.keys <= 50
            plans = [read._plan(long_history(each)) for each in range(1, 20)]
            assert kept.keys == sum(2 * len(one.places) for one in plans if one.read)
