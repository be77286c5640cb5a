"""Correct a span after an arm changed the request: record the request that was sent.

The instrumentation that made the span wraps our wrapper, so it recorded the agent's own request.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

_WITH_SYSTEM: Final = frozenset({"messages", "instructions"})
"""Arguments that have the system prompt."""


def as_sent(
    request: Mapping[str, Any], changed: Collection[str], present: Mapping[str, Any]
) -> dict[str, Any]:
    """Compute the corrected attributes of a request that was changed after they were recorded.

    Args:
        request: The arguments that were sent.
        changed: Names of the arguments that differ from the agent's.
        present: The span's attributes. Absent attributes are not added, because recording of
            content may be switched off.

    Returns:
        The attributes to write.
    """
    changed_attributes: dict[str, Any] = {}
    if "model" in changed and isinstance(model := request.get("model"), str):
        changed_attributes["gen_ai.request.model"] = model
    system = _system(request) if _WITH_SYSTEM.intersection(changed) else None
    # Changed where it was recorded: the other messages stay as the instrumentation wrote them.
    messages = present.get("gen_ai.input.messages")
    if system is not None and isinstance(messages, str):
        other_messages = [
            m for m in json.loads(messages) if m.get("role") not in ("system", "developer")
        ]
        first = {"role": "system", "parts": [{"type": "text", "content": system}]}
        changed_attributes["gen_ai.input.messages"] = json.dumps([first, *other_messages])
    defined = present.get("gen_ai.tool.definitions") if "tools" in changed else None
    if isinstance(defined, str):
        offered = {tool_name(tool) for tool in request.get("tools") or ()}
        tools = [tool for tool in json.loads(defined) if tool_name(tool) in offered]
        changed_attributes["gen_ai.tool.definitions"] = json.dumps(tools)
    return changed_attributes


def _system(request: Mapping[str, Any]) -> str | None:
    if isinstance(text := request.get("instructions"), str):
        return text
    messages = request.get("messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    if isinstance(first, dict) and first.get("role") == "system":
        content = first.get("content")
        return content if isinstance(content, str) else None
    return None


def tool_name(tool: Any) -> Any:
    """Return the name of a tool of a request; None for a value that is no tool."""
    return (tool.get("function") or tool).get("name") if isinstance(tool, dict) else None
