"""The chunks of a streamed chat completion, put together into the response that they make up."""

from collections.abc import Iterable, Mapping
from typing import Any

from otel_lightning.collector.derive.text.json_text import as_object

CHUNK = "chat.completion.chunk"
"""The kind of a chunk, and of a response that was put together from chunks."""
TEXTS = ("content", "refusal", "reasoning_content", "reasoning")
LISTS = ("token_ids",)
"""The fields of a choice that each chunk continues: vLLM's tokens."""


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
