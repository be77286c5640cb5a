"""Stored messages as the chat messages that templates, trainers and servers read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]


def chat_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Turn stored messages into those that chat templates read.

    Example:
        >>> chat_messages([{"role": "user", "parts": [{"type": "text", "content": "Hello"}]}])
        [{'role': 'user', 'content': 'Hello'}]
    """
    return [chat for message in messages for chat in _chat(message)]


def chat_tools(tools: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Turn tool definitions into those that chat templates read.

    Example:
        >>> chat_tools([{"type": "function", "name": "lookup"}])
        [{'type': 'function', 'function': {'name': 'lookup'}}]
    """
    return [tool if "function" in tool else _function(tool) for tool in tools]


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    described = {key: value for key, value in tool.items() if key != "type"}
    return {"type": "function", "function": described}


def _chat(message: Message) -> list[dict[str, Any]]:
    parts = message.get("parts") or []
    answers = [
        {"role": "tool", "tool_call_id": part.get("id"), "content": _text(part.get("response"))}
        for part in parts
        if part.get("type") == "tool_call_response"
    ]
    if answers:
        return answers
    chat: dict[str, Any] = {"role": message["role"], "content": _joined(parts, "text")}
    if reasoning := _joined(parts, "reasoning"):
        chat["reasoning_content"] = reasoning
    if calls := [_call(part) for part in parts if part.get("type") == "tool_call"]:
        chat["tool_calls"] = calls
    return [chat]


def _call(part: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": part.get("name"), "arguments": part.get("arguments") or {}}
    return {"type": "function", "id": part.get("id"), "function": function}


def _joined(parts: Sequence[Mapping[str, Any]], kind: str) -> str:
    return "".join(_text(part.get("content")) for part in parts if part.get("type") == kind)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
