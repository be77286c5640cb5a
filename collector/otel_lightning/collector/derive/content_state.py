"""How much of the content of a model call is known: the value of its column `content`."""

from itertools import pairwise

from otel_lightning.collector.derive.messages.message_memory import SharedMessage
from otel_lightning.collector.derive.rows import LlmCall, Message

CONTENT_KEYS = {"tool_call": "arguments", "tool_call_response": "response"}
"""The key that holds the content of a part of each type. A part without it was redacted."""


def content_state(call: LlmCall, *, cut: bool) -> str:
    """Return how much of the content of a call is known.

    Args:
        call: The call, with its messages.
        cut: Whether a part of them is known to be lost.
    """
    if not call.input_messages and not call.output_messages:
        return "truncated" if cut else "absent"
    empty = [*_without_content(call.input_messages), *_without_content(call.output_messages)]
    if any(map(_left_out, empty)):
        return "redacted"
    # A call that failed and an embedding have no answer, so none was left out.
    answered = call.output_messages or call.error_type or call.operation == "embeddings"
    sent = call.input_messages
    if not sent or not answered or cut or (empty and _lost_a_turn(sent)):
        return "truncated"
    return "full"


def _lost_a_turn(sent: list[Message]) -> bool:
    """Return whether the user speaks after a turn of the assistant that says nothing.

    Traceloop for LlamaIndex in JavaScript writes so what the model asked its tools for, and their
    results as words of the user.
    """
    for turn, following in pairwise(sent):
        if not turn["parts"] and turn["role"] == "assistant" and following["role"] == "user":
            return True
    return False


def _without_content(messages: list[Message] | None) -> list[Message]:
    """Return the messages that say nothing or are only an outline.

    A shared message that is whole is looked at once.
    """
    found: list[Message] = []
    for message in messages or ():
        if type(message) is SharedMessage and message.is_whole:
            continue
        if not message["parts"] or _left_out(message):
            found.append(message)
        elif type(message) is SharedMessage:
            message.is_whole = True
    return found


def _left_out(message: Message) -> bool:
    """Return whether a message has only roles and types: its text or arguments are not recorded."""
    parts = message["parts"]
    # A text that is not empty is whole. Most messages are one, so it is looked for first.
    if len(parts) == 1 and parts[0]["type"] == "text" and parts[0].get("content"):
        return False
    if not parts:
        # A model may answer with nothing, while nobody sends an empty message.
        return bool(message["role"] != "assistant")
    # Nor an empty text: LiteLLM's proxy writes one for each item of a Responses request.
    if message["role"] == "user" and len(parts) == 1 and parts[0].get("content") == "":
        return True
    return False in [CONTENT_KEYS.get(part["type"], "type") in part for part in parts]
