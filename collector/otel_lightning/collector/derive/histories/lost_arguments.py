"""What an instrumentation lost of an answer with tool calls: unknown until a history repeats it.

Of a streamed answer of Anthropic's models some packages keep the tool call as it begins, with the
arguments `{}`, and not the pieces of the arguments that follow. Others leave out the text beside
tool calls.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.histories import histories
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.rows import History, LlmCall, Message

Part = dict[str, Any]
ARGUMENT_KEYS = ("arguments", "arguments_raw")


def forget(call: LlmCall) -> None:
    """Make the empty arguments of a call's output unknown, since they may be lost ones."""
    call.lost_arguments = True
    for message in call.output_messages or ():
        for part in _calls(message):
            if not part.get("arguments"):
                part.pop("arguments", None)


def history(call: LlmCall, memory: MessageMemory | None = None) -> History:
    """Hash a call's messages; where an answer may have lost something, also without what it may be.

    The ids of tool calls are left, so that rollouts which say the same are told apart by them.
    """
    whole = histories.history(call, memory)
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
    if True not in [call.lost_arguments for call in calls]:
        return
    sent = (message for call in calls for message in call.input_messages or ())
    stated: dict[str, Part] = {}
    texts: dict[str, list[Part]] = {}
    for message in sent:
        for part in _calls(message):
            if part.get("id") and "arguments" in part:
                stated[part["id"]] = {key: part[key] for key in ARGUMENT_KEYS if key in part}
                texts[part["id"]] = [one for one in message["parts"] if one["type"] == "text"]
    for call in calls:
        outputs = call.output_messages if call.lost_arguments else None
        # Copies, because kept rows may share the messages.
        whole = [_with_texts(_with_stated(one, stated), texts) for one in outputs or ()]
        if whole != (outputs or []):
            call.output_messages = whole
            span_rows.completed(call)


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
