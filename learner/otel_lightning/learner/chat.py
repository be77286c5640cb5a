"""Convert stored messages to the chat messages that templates, trainers and servers read.

Chat messages carry text, reasoning, tool calls and tool results. They cannot carry images and
other parts, arguments that are not a JSON object, or tools that are not functions.
`uncarried_parts` and `uncarried_tools` list these, so that a caller can skip and count the row.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from otel_lightning.collector.show.conversation import arguments_of, text_or_json

Message = Mapping[str, Any]
Part = Mapping[str, Any]

CARRIED = ("text", "reasoning", "tool_call", "tool_call_response")
"""Types of parts that a chat message can carry."""
NOT_JSON = "arguments that are not a JSON object"
CUT_OFF = ("length", "content_filter")
"""Finish reasons of an answer that the model did not end. A chat template would write an end after
it, which teaches the model to stop in the middle."""
INCOMPLETE = ("truncated", "redacted")
"""Values of the column `content` of a call whose messages are incomplete: they are not
what the model read or wrote."""


def chat_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Convert stored messages to chat messages.

    Arguments that are not JSON stay the text that the model wrote. Parts of a type that chat
    messages cannot carry are dropped; `uncarried_parts` lists them.

    Example:
        >>> chat_messages([{"role": "user", "parts": [{"type": "text", "content": "Hello"}]}])
        [{'role': 'user', 'content': 'Hello'}]
    """
    return [chat for message in messages for chat in _chats(message)]


def chat_tools(tools: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Convert function tools to the form that chat templates read; leave other tools unchanged.

    Example:
        >>> chat_tools([{"type": "function", "name": "lookup"}])
        [{'type': 'function', 'function': {'name': 'lookup'}}]
    """
    return [tool if "function" in tool else _function(tool) for tool in tools]


def number_calls(messages: Iterable[dict[str, Any]]) -> None:
    """Replace the ids of tool calls by their number in the conversation, in place.

    Providers draw ids at random, so a template that writes them writes the same conversation
    differently each time. Nine digits, since Mistral's templates accept no other length.

    Example:
        >>> asked = {"parts": [{"type": "tool_call", "id": "call_Zx81", "name": "add"}]}
        >>> told = {"parts": [{"type": "tool_call_response", "id": "call_Zx81", "response": "3"}]}
        >>> number_calls([asked, told])
        >>> asked["parts"][0]["id"], told["parts"][0]["id"]
        ('000000001', '000000001')
    """
    numbers: dict[str, str] = {}
    for message in messages:
        for part in message.get("parts") or []:
            if part.get("id") and part.get("type") in ("tool_call", "tool_call_response"):
                part["id"] = numbers.setdefault(part["id"], f"{len(numbers) + 1:09}")


def uncarried_parts(messages: Iterable[Message], *, text_arguments: bool = False) -> list[str]:
    """List the parts of messages that chat messages cannot carry.

    Args:
        messages: Stored messages.
        text_arguments: Whether the reader accepts arguments as the text that the model wrote, as
            OpenAI's API does. Then arguments that are not JSON are not lost.

    Returns:
        The kind of each lost part: its modality or type, or `NOT_JSON`.

    Example:
        >>> image = {"type": "uri", "modality": "image", "uri": "https://example.org/1.png"}
        >>> call = {"type": "tool_call", "name": "add", "arguments": None, "arguments_raw": "2, 3"}
        >>> uncarried_parts([{"role": "user", "parts": [image, call]}])
        ['image', 'arguments that are not a JSON object']
    """
    parts = [part for message in messages for part in message.get("parts") or []]
    lost = [
        str(part.get("modality") or part.get("type"))
        for part in parts
        if part.get("type") not in CARRIED
    ]
    calls = (part for part in parts if part.get("type") == "tool_call")
    broken = [] if text_arguments else [c for c in calls if not isinstance(arguments_of(c), dict)]
    return lost + [NOT_JSON] * len(broken)


def uncarried_tools(tools: Iterable[Mapping[str, Any]]) -> list[str]:
    """List the types of tools that are not functions, such as a provider's own web search.

    Example:
        >>> uncarried_tools([{"type": "web_search"}, {"name": "lookup"}])
        ['web_search']
    """
    return [str(tool.get("type")) for tool in tools if not _is_function(tool)]


def _is_function(tool: Mapping[str, Any]) -> bool:
    if "function" in tool:
        return True
    schema = tool.get("parameters", tool.get("input_schema"))
    kind = tool.get("type", "function")
    # Anthropic's tools have a name and a schema but no type; a provider's own tools, such as web
    # search, have a type and no schema.
    return bool(tool.get("name")) and (kind == "function" or isinstance(schema, Mapping))


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if not _is_function(tool):
        return tool
    described = {key: value for key, value in tool.items() if key != "type"}
    return {"type": "function", "function": described}


def _chats(message: Message) -> list[dict[str, Any]]:
    """Convert one message to chat messages; each tool result becomes its own, in the same order."""
    chats: list[dict[str, Any]] = []
    pending: list[Part] = []
    for part in message.get("parts") or []:
        if part.get("type") != "tool_call_response":
            pending.append(part)
            continue
        # What stood before the tool result becomes a message of its own, so that the order is kept.
        if pending:
            chats.append(_chat(message["role"], pending))
            pending = []
        result = {"tool_call_id": part.get("id"), "content": text_or_json(part.get("response"))}
        chats.append({"role": "tool", **result})
    return [*chats, _chat(message["role"], pending)] if pending or not chats else chats


def _chat(role: str, parts: Sequence[Part]) -> dict[str, Any]:
    chat: dict[str, Any] = {"role": role, "content": _joined(parts, "text")}
    if reasoning := _joined(parts, "reasoning"):
        chat["reasoning_content"] = reasoning
    if calls := [_call(part) for part in parts if part.get("type") == "tool_call"]:
        chat["tool_calls"] = calls
    return chat


def _call(part: Part) -> dict[str, Any]:
    function = {"name": part.get("name"), "arguments": arguments_of(part)}
    return {"type": "function", "id": part.get("id"), "function": function}


def _joined(parts: Sequence[Part], kind: str) -> str:
    return "".join(text_or_json(part.get("content")) for part in parts if part.get("type") == kind)
