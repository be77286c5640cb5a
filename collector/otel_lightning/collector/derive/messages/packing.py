"""The messages of a short call as JSON text, while nothing needs them taken apart.

Most of what is read is hashed and written as it is. As text it takes a third of the memory, and the
steps in between touch none of it. Longer histories stay values: their texts are shared among the
calls that repeat them.
"""

import orjson

from otel_lightning.collector.derive.messages.messages import SHORT
from otel_lightning.collector.derive.rows import LlmCall, Message
from otel_lightning.collector.derive.text.json_text import dumps


def pack(call: LlmCall) -> None:
    """Write the messages of a call down if there are `SHORT` of them at most."""
    sent, answered = call.input_messages, call.output_messages
    if sent is None or len(sent) <= SHORT:
        call.packed = _written(sent), _written(answered)
        call.input_messages = call.output_messages = None


def _written(messages: list[Message] | None) -> bytes | None:
    """Return messages as JSON in a copy of its own size: orjson's keeps twice the memory."""
    return memoryview(dumps(messages)).tobytes() if messages else None


def has_input(call: LlmCall) -> bool:
    """Return whether a call has input messages; the call stays packed."""
    return bool(call.packed[0] if call.packed else call.input_messages)


def has_output(call: LlmCall) -> bool:
    """Return whether a call has output messages; the call stays packed."""
    return bool(call.packed[1] if call.packed else call.output_messages)


def outputs(call: LlmCall) -> list[Message]:
    """Return the output messages of a call; the call stays packed."""
    if call.packed is None:
        return call.output_messages or []
    answered = call.packed[1]
    return orjson.loads(answered) if answered else []


def unpack(call: LlmCall) -> LlmCall:
    """Return the call with its messages as values, for callers that read them."""
    if call.packed is not None:
        sent, answered = call.packed
        call.input_messages = orjson.loads(sent) if sent else None
        call.output_messages = orjson.loads(answered) if answered else None
        call.packed = None
    return call
