"""Read one message in the form of any provider or framework."""

from collections.abc import Callable, Mapping
from typing import Any

from otel_lightning.collector.derive.messages import finish, hosted_tools
from otel_lightning.collector.derive.messages.content_blocks import (
    BLOCK_TYPES,
    BLOCKS,
    ELIDED,
    content_parts,
    read_call,
    read_reasoning,
    read_response,
)
from otel_lightning.collector.derive.messages.message_memory import MESSAGE_KEYS
from otel_lightning.collector.derive.messages.text_blocks import PYTHON
from otel_lightning.collector.derive.messages.tool_parts import Part, distinct_calls, response_part
from otel_lightning.collector.derive.messages.written_blocks import CALLED, REPR_STARTS, written_out
from otel_lightning.collector.derive.rows import Message
from otel_lightning.collector.derive.text import repr_objects
from otel_lightning.collector.derive.text.json_text import parse

PLAIN_KEYS = 2
"""Number of keys of a message (role, content) or part (type, content) that is text alone."""
ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "tool-response": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool-call": "assistant",
    "unknown": "assistant",  # Traceloop's role of LangChain's streamed messages
    "tool": "tool",
    "function": "tool",
}
CHUNK = "messagechunk"
THOUGHT = "reasoning"
"""Koog's role of a message of reasoning."""
DETAILED = "reasoning_details"
"""OpenRouter's key of the blocks of a message's reasoning."""


def one_text(values: Any) -> Message | None:
    """Return the only message of a list if it is one plain text in canonical form.

    A fast path, because most calls send and answer one text: `conversation` returns the same
    message, in several times the time.
    """
    if type(values) is not list or len(values) != 1 or type(values[0]) is not dict:
        return None
    value = values[0]
    if not _is_canonical(value) or len(value["parts"]) != 1:
        return None
    # The message itself, if its keys are in the order in which messages are stored.
    is_finished = len(value) == MESSAGE_KEYS and next(iter(value)) == "role"
    return value if is_finished else _finished(value)


def read_message(value: Any) -> list[Message]:
    """Return the canonical messages of one message in any form; tool responses are split off."""
    if isinstance(value, str):
        spelled = repr_objects.message(value)
        if spelled is None:
            return [{"role": "user", "parts": content_parts(value)}]
        value = spelled
    if not isinstance(value, dict):
        return []
    if "parts" in value:
        plain = _finished(value) if _is_canonical(value) else None
    else:
        plain = plain_text(value) or _tool_call_message(value)
    if plain is not None:
        return [plain]
    item = _ITEMS.get(str(value.get("type"))) or (_block if _is_block(value) else None)
    if item is not None:
        return [item(value)]
    if "role" not in value and (known := hosted_tools.item_parts(value)) is not None:
        return [{"role": known[0], "parts": list(map(_with_plain_response, known[1]))}]
    return _split(_read_mapping(_unwrapped(value)))


def _is_block(value: Mapping[str, Any]) -> bool:
    """Return whether a block of a content stands in place of a message."""
    return _NAMES.isdisjoint(value) and value.get("type") in BLOCK_TYPES


def plain_text(value: Mapping[str, Any]) -> Message | None:
    """Return a provider's message of plain text, or None for any other message.

    A fast path, because most messages are plain text: it returns the same message as the general
    path, in a tenth of the time.
    """
    text, role = value.get("content"), value.get("role")
    if type(text) is not str or type(role) is not str:
        return None
    if len(value) == PLAIN_KEYS:
        return plain_message(role, text)
    if not _MORE.isdisjoint(value):
        return None
    if role == "tool":
        return plain_message(role, text, value.get("tool_call_id", value.get("id")))
    if value.get("tool_calls") or value.get("tool_call_id"):
        return None
    return plain_message(role, text)


def plain_message(role: str, text: str, call_id: object = None) -> Message | None:
    """Return a provider's message that is one text, or None if the text may hold more.

    Args:
        role: The role of its author, in any provider's words.
        text: The text.
        call_id: The id of the tool call that a tool answers.
    """
    if role == "tool":
        return {"role": role, "parts": [response_part(call_id, text)]}
    canonical = _SPEAKERS.get(role)
    if canonical is None or text in _NO_TEXT:
        return None
    # This may be a tool call that was written as text; see `written_out`.
    if canonical == "assistant" and CALLED in text:
        return None
    return {"role": canonical, "parts": [{"type": "text", "content": text}]}


def _tool_call_message(value: Mapping[str, Any]) -> Message | None:
    """Return an assistant's message of tool calls alone, or None for any other message.

    A fast path like `plain_text`.
    """
    calls = value.get("tool_calls")
    if type(calls) is not list or value.get("role") != "assistant" or not calls:
        return None
    if value.get("content") is not None or not _MORE.isdisjoint(value):
        return None
    return {"role": "assistant", "parts": distinct_calls(_tool_calls(value))}


def _is_canonical(value: Mapping[str, Any]) -> bool:
    """Return whether a message already is plain text in canonical form, as most messages are."""
    parts = value.get("parts")
    if type(parts) is not list or value.get("role") not in _PLAIN_ROLES:
        return False
    if len(value) != MESSAGE_KEYS and len(value) - ("finish_reason" in value) != MESSAGE_KEYS:
        return False
    return _is_plain_text(parts[0]) if len(parts) == 1 else all(map(_is_plain_text, parts))


def _finished(value: Mapping[str, Any]) -> Message:
    message = {"role": value["role"], "parts": value["parts"]}
    if "finish_reason" in value and (reason := finish.reason(value["finish_reason"])):
        message["finish_reason"] = reason
    return message


def _is_plain_text(part: Any) -> bool:
    if type(part) is not dict or len(part) != PLAIN_KEYS or part.get("type") != "text":
        return False
    text = part.get("content")
    # `BLOCKS` has ten characters, as each other text in `_SPECIAL_STARTS` but the empty one.
    if type(text) is not str or text[:10] in _SPECIAL_STARTS or text[:1] == "{":
        return False
    return CALLED not in text


def _unwrapped(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message without LangChain's serialisation or a provider's choice around it."""
    # LangChain writes {"lc": 1, "id": […, "HumanMessage"], "kwargs": {…}} or {"type": "human",
    # "data": {…}}.
    for key in ("kwargs", "data"):
        if isinstance(value.get(key), dict) and ("lc" in value or "type" in value):
            path = value.get("id")  # class path: only it has the role, in JavaScript
            kind = str(path[-1]) if isinstance(path, list) and path else ""
            return {"type": kind.partition("Message")[0].lower(), **value[key]}
    if "role" not in value and isinstance(value.get("message"), dict):
        return {**value["message"], "finish_reason": value.get("finish_reason")}
    if "role" not in value and isinstance(value.get("content"), dict):  # Gemini's candidate
        return {**value["content"], "finish_reason": value.get("finishReason")}
    return value


def _read_mapping(value: Mapping[str, Any]) -> Message:
    # Koog writes `Assistant`, LangChain `AIMessageChunk` for a message that came as a stream.
    # A member of a Python enumeration is written as `MessageRole.SYSTEM`.
    written = str(value.get("role") or value.get("type")).rpartition(".")[2]
    speaker = written.lower().replace("_", "-").removesuffix(CHUNK)
    role = _role(value, speaker)
    body = value.get("parts", value.get("content"))
    if role == "tool" and not _holds(body, "tool_call_response"):
        return _read_result(value, body)
    content = content_parts(body)
    if speaker == THOUGHT:
        content = [{**part, "type": "reasoning"} for part in content]
    parts = [*_reasoning_parts(value, content), *content, *_tool_calls(value)]
    if not body and isinstance(refusal := value.get("refusal"), str) and refusal:
        parts = [*parts, *content_parts(refusal)]  # OpenAI's answer in place of a content
    if role == "assistant":
        parts = [known for part in parts for known in written_out(part)]
        # Providers send an empty text beside tool calls.
        parts = [part for part in parts if part.get("content") != "" or part["type"] != "text"]
    message: Message = {"role": role, "parts": distinct_calls(parts)}
    # Anthropic's own messages have a stop reason.
    if reason := finish.reason(value.get("finish_reason") or value.get("stop_reason")):
        message["finish_reason"] = reason
    return message


def _role(value: Mapping[str, Any], speaker: str) -> str:
    """Return the role of a message whose speaker a package names in its own words."""
    role = "assistant" if speaker == THOUGHT else ROLES.get(speaker, "user")
    # An unknown role beside `additional_kwargs` is the name of the tool that answered.
    is_named = "additional_kwargs" in value and "role" in value and speaker not in ROLES
    if role == "user" and (is_named or value.get("tool_call_id")):
        role = "tool"
    if role == "tool" and _holds(value.get("parts", value.get("content")), "tool_call"):
        return "assistant"  # Koog calls this a message of the tool
    return role


def _read_result(value: Mapping[str, Any], body: Any) -> Message:
    """Read a tool's message whose content is the result itself."""
    if isinstance(body, list) and body and not content_parts(body):  # only approvals
        return {"role": "tool", "parts": []}
    call_id = value.get("tool_call_id", value.get("id"))
    return {"role": "tool", "parts": [response_part(call_id, body)]}


def _reasoning_parts(value: Mapping[str, Any], content: list[Part]) -> list[Part]:
    """Return the reasoning beside the content of a message, unless the content has it, too."""
    if any(part["type"] == "reasoning" for part in content):
        return []
    more = value.get("additional_kwargs")  # LangChain's place for what OpenAI does not have
    for known in (value, more) if isinstance(more, dict) else (value,):
        for key in _REASONING:
            if isinstance(text := known.get(key), str) and text:
                part = read_reasoning({"content": text}) if text[:1] == "[" else None
                return [part or {"type": "reasoning", "content": text}]
    text = _detailed(value.get(DETAILED))
    return [{"type": "reasoning", "content": text}] if text else []


def _detailed(blocks: Any) -> str:
    """Return the text of reasoning as OpenRouter lists it; encrypted reasoning has none."""
    known = blocks if isinstance(blocks, list) else ()
    given = (block for block in known if isinstance(block, dict))
    texts = (block.get("text") or block.get("summary") for block in given)
    return "".join(text for text in texts if isinstance(text, str))


def _tool_calls(value: Mapping[str, Any]) -> list[Part]:
    calls = value.get("tool_calls") or value.get("toolCalls")
    if isinstance(calls, str):  # xAI's SDK flattens messages, but not their tool calls
        calls = parse(calls)
    if not isinstance(calls, list):
        return []
    # OpenInference for DSPy writes the `repr()` of each.
    parsed = (repr_objects.parse(call) if isinstance(call, str) else call for call in calls)
    return [read_call(call) for call in parsed if isinstance(call, dict)]


def _split(message: Message) -> list[Message]:
    if "tool_call_response" not in [part["type"] for part in message["parts"]]:
        return [message] if message["parts"] or message["role"] != "tool" else []
    if message["role"] == "assistant":
        return _turns_inside(message)
    responses = [part for part in message["parts"] if part["type"] == "tool_call_response"]
    results = [response.get("response") for response in responses]
    rest = [
        part
        for part in message["parts"]
        # Some packages repeat a tool's result as a text beside the response.
        if part["type"] != "tool_call_response" and part.get("content", part) not in results
    ]
    messages: list[Message] = [{"role": "tool", "parts": [part]} for part in responses]
    if rest:
        messages.append({**message, "parts": rest})
    return messages


def _turns_inside(message: Message) -> list[Message]:
    """Return the messages of an assistant's message that also holds what tools answered, in order.

    AgentScope keeps all that an agent does for one request in one message.
    """
    messages: list[Message] = []
    for part in message["parts"]:
        if part["type"] == "tool_call_response":
            messages.append({"role": "tool", "parts": [part]})
        elif messages and messages[-1]["role"] == "assistant":
            messages[-1]["parts"].append(part)
        else:
            messages.append({**message, "parts": [part]})
    return messages


def only_calls(message: Message) -> bool:
    """Return whether a message is the assistant's and holds tool calls alone."""
    if message["role"] != "assistant":
        return False
    parts = message["parts"]
    return bool(parts) and all(part["type"] == "tool_call" for part in parts)


def _holds(body: Any, kind: str) -> bool:
    """Return whether a content has a part of a type."""
    return isinstance(body, list) and any(part["type"] == kind for part in content_parts(body))


def _with_plain_response(part: Part) -> Part:
    return response_part(part["id"], part.get("response")) if "response" in part else part


def _call_item(item: Mapping[str, Any]) -> Message:
    return {"role": "assistant", "parts": [read_call(item)]}


def _response_item(item: Mapping[str, Any]) -> Message:
    return {"role": "tool", "parts": [read_response(item)]}


def _block(value: Mapping[str, Any]) -> Message:
    parts = content_parts([value])
    roles = [_ROLE_OF_PART.get(part["type"], "user") for part in parts]
    return {"role": next(iter(roles), "user"), "parts": parts}


def _reasoning_item(item: Mapping[str, Any]) -> Message:
    part = read_reasoning(item)
    return {"role": "assistant", "parts": [part] if part else []}


_REASONING = ("reasoning_content", "reasoning", "thinking", "tool_plan")
"""Keys of the reasoning in a message of a chat; the last two are Ollama's and Cohere's."""
_MORE = {
    *("parts", "type", "kwargs", "data", "additional_kwargs", "finish_reason", "toolCalls"),
    *_REASONING,
    DETAILED,
}
"""Keys that a message of plain text does not have; one of them excludes the fast path."""
_NAMES = {"role", "parts", "content", "kwargs", "data", "message"}
"""A message has at least one of these keys; a mapping without any may be a block of content."""
_ROLE_OF_PART = {"tool_call": "assistant", "reasoning": "assistant", "tool_call_response": "tool"}
"""The roles that the types of parts tell."""
_SPEAKERS = {word: role for word, role in ROLES.items() if role != "tool"}
_NO_TEXT = ("", ELIDED)
_SPECIAL_STARTS = {"", BLOCKS, PYTHON[: len(BLOCKS)], *(one[: len(BLOCKS)] for one in REPR_STARTS)}
_PLAIN_ROLES = ("system", "user", "assistant")
_ITEMS: dict[str, Callable[[Mapping[str, Any]], Message]] = {
    "function_call": _call_item,
    "function_call_output": _response_item,
    "function_call_result": _response_item,  # of the OpenAI Agents SDK in JavaScript
    "reasoning": _reasoning_item,
}
