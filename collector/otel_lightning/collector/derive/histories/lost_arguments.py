"""Recover parts of an answer that an instrumentation lost, from histories that repeat them.

When an Anthropic model streams an answer, some packages keep only the beginning of a tool call,
with the arguments `{}`, and lose the pieces of the arguments that follow. Others leave out the text
beside tool calls, or write nothing of a streamed answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.histories import histories
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.rows import History, LlmCall, Message

Part = dict[str, Any]
ARGUMENT_KEYS = ("arguments", "arguments_raw")
ANY_ANSWER: Message = {"role": "assistant", "parts": [{"type": "any"}]}
"""Stands for an answer that is not known, in a history that is looked for without it."""


def forget(call: LlmCall) -> None:
    """Make the empty arguments of a call's output unknown, since they may be lost ones."""
    call.lost_arguments = True
    for message in call.output_messages or ():
        for part in _calls(message):
            if not part.get("arguments"):
                part.pop("arguments", None)


def history(call: LlmCall, memory: MessageMemory | None = None) -> History:
    """Hash a call's messages; if its answer may lack parts, also without all parts of their kinds.

    The ids of tool calls are left, so that rollouts which say the same are told apart by them.
    """
    whole = histories.history(call, memory)
    if call.lost_answers:
        whole = _before_answers(call, whole)
    if not call.lost_arguments:
        return whole
    sent, answered = map(_without, (call.input_messages, call.output_messages))
    bare = histories.history(replace(call, input_messages=sent, output_messages=answered))
    # Beginnings are searched from the end, so the less exact ones come first.
    return whole._replace(
        prefixes=[*bare.prefixes, *whole.prefixes],
        with_answer=[*whole.with_answer, *bare.with_answer],
    )


def recall(calls: Sequence[LlmCall]) -> None:
    """Give answers the arguments and the texts beside tool calls that a later history repeats.

    Args:
        calls: The model calls of one rollout, in order; changed in place.
    """
    if True in [call.lost_answers for call in calls]:
        _recall_answers(calls)
    if True in [call.lost_arguments for call in calls]:
        _recall_arguments(calls)


def _recall_arguments(calls: Sequence[LlmCall]) -> None:
    """Give tool calls the arguments, and answers the texts beside them, that an input repeats."""
    sent = (message for call in calls for message in call.input_messages or ())
    stated: dict[str, Part] = {}
    texts: dict[str, list[Part]] = {}
    for message in sent:
        for part in _calls(message):
            if part.get("id") and "arguments" in part:
                stated[part["id"]] = {key: part[key] for key in ARGUMENT_KEYS if key in part}
                texts[part["id"]] = [one for one in message["parts"] if one["type"] == "text"]
    for call in calls:
        outputs = call.output_messages
        if not call.lost_arguments or not outputs:
            continue
        # Copies, because kept rows may share the messages.
        whole = [_with_texts(_with_stated(one, stated), texts) for one in outputs]
        if whole != outputs:
            call.output_messages = whole
            span_rows.completed(call)


def _before_answers(call: LlmCall, whole: History) -> History:
    """Add the history before the last answer in the input, and that before an answer that is lost.

    Where the answer of a call is lost, a later input begins with the input of that call.
    """
    sent = call.input_messages or []
    turns = [at for at, message in enumerate(sent) if message["role"] == "assistant"]
    while len(turns) > 1 and turns[-2] == turns[-1] - 1:  # neighbours are one turn
        turns.pop()
    if turns:
        before = _with_any_answer(call, sent[: turns[-1]])
        whole = whole._replace(prefixes=[*before, *whole.prefixes])
    if _is_lost(call):
        whole = whole._replace(with_answer=[*whole.with_answer, *_with_any_answer(call, sent)])
    return whole


def _with_any_answer(call: LlmCall, sent: list[Message]) -> list[str]:
    answered = replace(call, input_messages=sent, output_messages=[ANY_ANSWER], content="full")
    return histories.any_history(answered).with_answer[:1]  # those after it lack something


def _is_lost(call: LlmCall) -> bool:
    return not call.output_messages and call.error_type is None


def _recall_answers(calls: Sequence[LlmCall]) -> None:
    """Give calls whose answers are lost the tool calls with which later inputs go on.

    The ids of tool calls are the provider's, so these are its answers. A text may be changed by the
    agent before it is sent back, so a text alone is not taken. Inputs do not repeat reasoning, so a
    recovered answer stays marked as truncated.
    """
    for at, call in enumerate(calls):
        if not call.lost_answers or not _is_lost(unpack(call)) or not call.input_messages:
            continue
        own = call.input_messages
        for later in calls[at + 1 :]:
            sent = unpack(later).input_messages or []
            if sent[: len(own)] == own and len(sent) > len(own):
                turn = [*takewhile(lambda one: one["role"] == "assistant", sent[len(own) :])]
                parts = [part for message in turn for part in message["parts"]]
                if any(part["type"] == "tool_call" and part.get("id") for part in parts):
                    call.output_messages = [{"role": "assistant", "parts": parts}]
                    call.finish_reason = "tool_calls"
                break


def _with_texts(message: Message, texts: Mapping[str, list[Part]]) -> Message:
    """Return an answer with the text beside its first tool call, unless it has a text itself."""
    parts = message["parts"]
    kinds = [part["type"] for part in parts]
    if "text" in kinds or "tool_call" not in kinds:
        return message
    at = kinds.index("tool_call")
    said = texts.get(parts[at].get("id") or "", [])
    return {**message, "parts": [*parts[:at], *said, *parts[at:]]} if said else message


def _with_stated(message: Message, stated: Mapping[str, Part]) -> Message:
    parts = [
        {**part, **stated.get(part.get("id") or "", {})}
        if part["type"] == "tool_call" and "arguments" not in part
        else part
        for part in message["parts"]
    ]
    return {**message, "parts": parts}


def _calls(message: Message) -> Iterable[Part]:
    return (part for part in message["parts"] if part["type"] == "tool_call")


def _without(messages: list[Message] | None) -> list[Message] | None:
    return messages and [
        {**message, "parts": [_bare(part) for part in _told_apart(message)]} for message in messages
    ]


def _told_apart(message: Message) -> list[Part]:
    """Return the tool calls of a message whose ids tell it from all others, else all its parts."""
    calls = [*_calls(message)]
    return calls if calls and all(part.get("id") for part in calls) else message["parts"]


def _bare(part: Part) -> Part:
    if part["type"] != "tool_call":
        return part
    return {key: value for key, value in part.items() if key not in ARGUMENT_KEYS}
