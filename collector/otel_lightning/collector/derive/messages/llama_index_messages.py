"""LlamaIndex's own requests and responses, whose messages are lists of typed blocks.

MLflow writes them as they are: `{"role": "tool", "blocks": [{"block_type": "text", …}], …}`.
"""

from collections.abc import Mapping
from typing import Any, TypeGuard

from otel_lightning.collector.derive.messages import payloads
from otel_lightning.collector.derive.text import json_text

BLOCKS, KIND, MORE = "blocks", "block_type", "additional_kwargs"


def request(sent: Any) -> payloads.Payload | None:
    """Return a request with messages in a provider's form; None for any other value."""
    history = sent.get("messages") if isinstance(sent, dict) else None
    if not isinstance(history, list) or not history or not all(map(_is_message, history)):
        return None
    offered = json_text.as_object(sent.get("kwargs")).get("tools")
    return {"messages": list(map(_plain, history)), **({"tools": offered} if offered else {})}


def response(answer: Any) -> payloads.Payload | None:
    """Return the provider's response that LlamaIndex keeps as `raw`; None for any other value.

    For a streamed answer it is the last chunk, so the whole message replaces the choice in it.
    """
    raw = json_text.as_object(answer.get("raw")) if isinstance(answer, dict) else {}
    message = json_text.as_object(answer).get("message")
    if not _is_message(message):
        return raw if payloads.response_messages(raw) else None
    if any(turn["parts"] for turn in payloads.response_messages(raw) or ()):
        return raw
    choices = raw.get("choices")
    last = json_text.as_object(choices[0]) if isinstance(choices, list) and choices else {}
    choice = {"message": _plain(message), "finish_reason": last.get("finish_reason")}
    return {**raw, "choices": [choice]}


def is_prepared(answer: Any) -> bool:
    """Return whether a function returned a request, so that its span is no model call."""
    return isinstance(answer, dict) and "message" not in answer and request(answer) is not None


def _is_message(value: Any) -> TypeGuard[payloads.Payload]:
    return isinstance(value, dict) and isinstance(value.get(BLOCKS), list) and "role" in value


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    blocks = [_block(one) for one in message[BLOCKS] if isinstance(one, dict)]
    more = json_text.as_object(message.get(MORE))
    asks = any(one["type"] == "tool_call" for one in blocks)
    return {
        "role": message["role"],
        "content": blocks,
        "tool_calls": None if asks else more.get("tool_calls"),
        "tool_call_id": more.get("tool_call_id"),
    }


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block.get(KIND)
    if kind == "tool_call":
        named = {name: block.get(f"tool_{key}") for name, key in _OF_CALLS.items()}
        return {"type": kind, **named}
    return {"type": kind, **block}


_OF_CALLS = {"id": "call_id", "name": "name", "arguments": "kwargs"}
"""The fields of a tool call, with LlamaIndex's names for them after the prefix `tool_`."""
