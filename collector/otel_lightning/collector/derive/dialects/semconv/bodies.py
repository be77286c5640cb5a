"""Whole requests and responses of a provider, in place of the conventions' messages.

Cloudflare's AI Gateway writes the body of a request where the conventions have the input, and the
provider's response where they have the output.
"""

from typing import Any

from otel_lightning.collector.derive.messages import payloads
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.text import json_text

MESSAGE = {"role", "parts", "tool_calls", "content", "message", "type", "kwargs", "data"}
"""A message, in any provider's form, has at least one of these keys."""
VERSION = "version"
"""Key beside the list of messages in an object of Microsoft's Agent 365."""
RESULT = "result"
"""The key under which Cloudflare puts the responses of some providers."""
VECTORS = "data"
"""The key of the vectors in a response to a request for embeddings."""


def request(text: str | None) -> payloads.Payload | None:
    """Return the request that a text holds; None for the text of messages."""
    value = _object(text)
    holds = any(isinstance(value.get(key), list | str) for key in payloads.HISTORIES)
    return value if holds and MESSAGE.isdisjoint(value) and VERSION not in value else None


def fill_from_request(call: LlmCall, body: payloads.Payload) -> None:
    """Set the tools and parameters that the body of a request has and the span does not state."""
    call.tool_definitions = call.tool_definitions or payloads.request_tools(body)
    given = {key: value for key, value in body.items() if key not in payloads.NOT_PARAMETERS}
    call.request_params = {**given, **call.request_params}


def fill_from_response(call: LlmCall, text: str | None) -> bool:
    """Set the fields of a call from the response that a text holds; return whether it holds one."""
    value = _object(text)
    whole = json_text.object_under(value, RESULT) or value
    if _has_vectors(whole):  # Cloudflare calls them chats, too
        call.operation, call.output_messages = "embeddings", None
        return True
    return bool(whole) and payloads.fill_from_response(call, whole)


def is_unknown(text: str | None) -> bool:
    """Return whether a text without readable messages was truncated, or has an unknown form."""
    return text is not None and (text[:1] == "{" or json_text.is_cut(text))


def _object(text: str | None) -> dict[str, Any]:
    """Return the JSON object in a text; {} for any other text."""
    return json_text.as_object(json_text.parse(text)) if text and text[0] == "{" else {}


def _has_vectors(response: payloads.Payload) -> bool:
    vectors = response.get(VECTORS)
    first = vectors[0] if isinstance(vectors, list) and vectors else None
    return isinstance(first, list) or "embedding" in json_text.as_object(first)
