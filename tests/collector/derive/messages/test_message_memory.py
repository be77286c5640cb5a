"""Calls share one object for each message that they repeat, and never see each other's changes."""

import json
from typing import Any

import pytest
from support.spans import span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.assemble import assemble_rows, derive
from otel_lightning.collector.derive.histories.histories import history
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.messages import SHORT, conversation
from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.messages.resumed import continued, keep
from otel_lightning.collector.derive.parse import complete_calls, read
from otel_lightning.collector.derive.passes.tools.tool_ids import unify
from otel_lightning.collector.derive.rows import LlmCall, Message

ASKED = {"role": "user", "content": "What is two and two?"}
CALLED = {"role": "assistant", "tool_calls": [{"id": "fc_1", "function": {"name": "add"}}]}


@pytest.fixture
def memory() -> MessageMemory:
    return MessageMemory()


def call(span_id: str, sent: list[Message]) -> LlmCall:
    return LlmCall("t", span_id, None, 0, 1, "semconv", input_messages=sent)


LONG = [ASKED, CALLED] * SHORT
"""A history that is long enough to be shared."""
MORE = [ASKED] * SHORT


def test_what_two_calls_repeat_is_one_object(memory: MessageMemory) -> None:
    first, second = conversation(LONG, memory), conversation([*LONG, ASKED], memory)
    assert [one is other for one, other in zip(first, second, strict=False)] == [True] * len(LONG)
    assert second[len(LONG)] is first[0]
    assert first == [dict(message) for message in first]


def test_equal_ids_and_texts_with_other_arguments_are_no_one_message(memory: MessageMemory) -> None:
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "add", "input": '{"a": 2}'}
    plain = {"id": "c", "function": {"name": "add", "arguments": '{"a": 2}'}}
    called = {"role": "assistant", "tool_calls": [plain]}
    told = conversation([*LONG, ASKED, custom, ASKED, called], memory)
    assert told[-3]["parts"][0]["arguments"] == {"input": '{"a": 2}'}
    assert told[-1]["parts"][0]["arguments"] == {"a": 2}


def test_equal_texts_with_another_role_or_more_parts_stay_apart(
    memory: MessageMemory,
) -> None:
    part = {"type": "text", "content": "What is two and two?"}
    longer = {"role": "user", "parts": [part, part]}
    system = {**ASKED, "role": "system"}
    said, told, more, *_ = conversation([ASKED, system, longer, *MORE], memory)
    assert [said["role"], told["role"]] == ["user", "system"]
    assert [len(message["parts"]) for message in (said, told, more)] == [1, 1, 2]


def test_the_order_of_keys_does_not_depend_on_the_messages_before(memory: MessageMemory) -> None:
    parts = [{"type": "text", "content": "Hi"}, {"content": "Hi", "type": "text"}]
    turns = conversation([{"role": "user", "parts": [part]} for part in parts * SHORT], memory)
    found = [list(turn["parts"][0]) for turn in turns]
    assert found == [["type", "content"], ["content", "type"]] * SHORT


def test_ids_that_meet_in_one_rollout_stay_as_they_are_in_another(memory: MessageMemory) -> None:
    other = conversation([ASKED, CALLED, *MORE], memory)
    answered = {"role": "tool", "tool_call_id": "call_1", "content": "4"}
    mine = call("a", conversation([ASKED, CALLED, answered, *MORE], memory))
    mine.history = history(mine)
    unify([mine])
    assert (mine.input_messages or [])[1]["parts"][0]["id"] == "call_1"
    assert other[1]["parts"][0]["id"] == "fc_1"


def test_a_cleared_memory_shares_nothing(memory: MessageMemory) -> None:
    first = conversation(LONG, memory)
    memory.clear()
    second = conversation(LONG, memory)
    assert first == second
    assert first[0] is not second[0]


HISTORIES = {
    "text": [
        text_message("user", "Hi"),
        text_message("assistant", "Hello"),
        text_message("user", "Why?"),
    ]
    * 5,
    "tools": [
        text_message("system", "You add."),
        text_message("user", "1 + 2, and 2 + 2?"),
        tool_request("c1", "add", {"a": 1, "b": 2}),
        tool_request("c2", "add", {"a": 2, "b": 2}),
        tool_response("c2", "4"),
        tool_response("c1", "3"),
        text_message("assistant", "3 and 4"),
        tool_response("c9", "asked by nobody"),
        text_message("user", 'And ,{"role" too?'),
        *[text_message("assistant", "Yes"), text_message("user", "And then?")] * 3,
    ],
    "thoughts": [
        text_message("user", "Hi"),
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "Greet."}]},
        text_message("assistant", "Hello"),
        text_message("user", "Hi"),
    ]
    * 3,
}


@pytest.mark.parametrize("lost_ids", [False, True])
@pytest.mark.parametrize("turns", HISTORIES.values(), ids=HISTORIES)
def test_a_history_that_grows_has_the_hashes_of_one_that_came_whole(
    turns: list[dict[str, Any]], memory: MessageMemory, *, lost_ids: bool
) -> None:
    def hashed(count: int) -> Any:
        grown = call("a", conversation(turns[:count], memory))
        grown.lost_ids, grown.output_messages = (
            lost_ids,
            conversation([text_message("assistant", "Yes")], memory),
        )
        return history(grown, memory)

    counts = [*range(1, len(turns) + 1), 3, len(turns)]
    whole = []
    for count in counts:
        memory.clear()
        whole.append(hashed(count))
    memory.clear()
    assert [hashed(count) for count in counts] == whole


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("turns", HISTORIES.values(), ids=HISTORIES)
def test_a_text_that_continues_another_reads_as_one_that_came_whole(
    turns: list[dict[str, Any]], separators: tuple[str, str], memory: MessageMemory
) -> None:
    resumed = 0
    for count in range(2, len(turns) + 1):
        text = json.dumps(turns[:count], separators=separators)
        known = continued(text, memory)
        whole = conversation(json.loads(text), memory)
        if known is None:
            keep(text, whole, memory)
        else:
            resumed += 1
            assert known == whole
            same = [one is other for one, other in zip(known, whole, strict=True)]
            assert all(same) or len(known) <= SHORT
    assert resumed >= len(turns) // 3


def test_a_text_that_was_cut_continues_nothing(memory: MessageMemory) -> None:
    turns = HISTORIES["text"]
    text = json.dumps(turns[:3])
    keep(text, conversation(turns[:3], memory), memory)
    assert continued(text[:-1] + ', {"role": "user", "parts": [{"type"]', memory) is None
    keep(text, conversation(turns[:3], memory), memory)
    assert continued(text[:-1] + ',, {"role": "user", "parts": []}]', memory) is None


def test_a_call_that_changes_its_messages_changes_no_kept_text(
    memory: MessageMemory,
) -> None:
    turns = HISTORIES["text"]
    text = json.dumps(turns[:3])
    keep(text, conversation(turns[:3], memory), memory)
    first = continued(text, memory) or []
    first[0] = {"role": "user", "parts": []}
    assert continued(text, memory) == conversation(turns[:3], memory)


def test_a_memory_changes_no_row() -> None:
    turns = HISTORIES["tools"]
    said_ = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": [text_message("assistant", "Yes")],
    }
    spans = [
        span({**said_, "gen_ai.input.messages": turns[:count]}, id=f"s{count}", at=count)
        for count in range(1, len(turns) + 1)
    ]
    alone = read(spans, [])
    complete_calls(alone)
    calls = assemble_rows(alone).llm_calls
    assert [unpack(one) for one in calls] == derive(spans, []).llm_calls
    assert len(calls) == len(turns)
