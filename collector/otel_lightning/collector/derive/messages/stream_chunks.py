"""The chunks of a streamed answer of OpenAI's, put together into the response that they make up."""

from collections.abc import Iterable, Mapping
from typing import Any

from otel_lightning.collector.derive.text.json_text import as_object

CHUNK = "chat.completion.chunk"
"""The kind of a chunk, and of a response that was put together from chunks."""
TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
LISTS = ("token_ids",)
"""The fields of a choice that each chunk continues: vLLM's tokens."""
ENDS = ("response.completed", "response.incomplete", "response.failed")
"""The kinds of the last event of a streamed response of the Responses API."""
BEGIN = "response.created"
"""The kind of its first event."""


def response(chunks: Iterable[Any]) -> dict[str, Any] | None:
    """Return the response that chunks make up, or None if any is no chunk of a chat completion.

    Args:
        chunks: The parsed chunks, in order.
    """
    whole: dict[str, Any] = {}
    choices: dict[Any, dict[str, Any]] = {}
    for chunk in chunks:
        if not isinstance(chunk, dict) or chunk.get("object") != CHUNK:
            return None
        fields = {key: value for key, value in chunk.items() if value is not None}
        for choice in fields.pop("choices", ()):
            _add(choices.setdefault(as_object(choice).get("index"), {}), as_object(choice))
        whole |= fields
    return {**whole, "choices": [choices[at] for at in sorted(choices, key=str)]} if whole else None


def responses_response(events: Iterable[Any]) -> dict[str, Any] | None:
    """Return the response that the events of the Responses API's stream make up, None if none do.

    The last event holds it. If the stream broke off, the response is built of the events before.

    Args:
        events: The parsed events, in order; events before the last one may be missing.
    """
    begun: dict[str, Any] | None = None
    items: dict[Any, dict[str, Any]] = {}
    texts: dict[Any, str] = {}
    for event in map(as_object, events):
        kind, at = event.get("type"), event.get("output_index")
        if kind in ENDS:
            return as_object(event.get("response")) or None
        if kind == BEGIN:
            whole = as_object(event.get("response"))
            begun = {key: whole.get(key) for key in ("object", "id", "model")}
        elif kind == "response.output_item.done":
            items[at] = as_object(event.get("item"))
        elif kind == "response.output_text.delta":
            texts[at] = texts.get(at, "") + str(event.get("delta"))
    for at in texts.keys() - items.keys():
        content = [{"type": "output_text", "text": texts[at]}]
        items[at] = {"type": "message", "role": "assistant", "content": content}
    if not begun or not begun["id"]:
        return None
    return {**begun, "output": [items[at] for at in sorted(items, key=str)]}


def _add(choice: dict[str, Any], chunk: Mapping[str, Any]) -> None:
    """Add one chunk's piece of a choice."""
    message = choice.setdefault("message", {"role": "assistant"})
    delta = as_object(chunk.get("delta"))
    for name in TEXTS:
        if isinstance(text := delta.get(name), str):
            message[name] = message.get(name, "") + text
    for call in delta.get("tool_calls") or ():
        _add_call(message.setdefault("tool_calls", []), as_object(call))
    for name in LISTS:
        if isinstance(more := chunk.get(name), list):
            choice[name] = [*choice.get(name, ()), *more]
    tokens = as_object(chunk.get("logprobs")).get("content")
    if isinstance(tokens, list):
        known = choice.setdefault("logprobs", {"content": []})
        known["content"] = [*known["content"], *tokens]
    if chunk.get("finish_reason"):
        choice["finish_reason"] = chunk["finish_reason"]


def _add_call(calls: list[dict[str, Any]], call: Mapping[str, Any]) -> None:
    """Add one chunk's piece of a tool call: its id and name come first, then its arguments."""
    at = call.get("index")
    known = next((one for one in calls if one["index"] == at), None)
    if known is None:
        known = {"index": at, "id": None, "function": {"name": None, "arguments": ""}}
        calls.append(known)
    function = as_object(call.get("function"))
    known["id"] = known["id"] or call.get("id")
    known["function"]["name"] = known["function"]["name"] or function.get("name")
    if isinstance(text := function.get("arguments"), str):
        known["function"]["arguments"] += text
