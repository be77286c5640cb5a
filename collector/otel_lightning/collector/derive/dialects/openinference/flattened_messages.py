"""Messages that OpenInference flattens into attributes: `llm.input_messages.N.message.…`.

The keys of a message say whether it is plain text or asks for tools. All spans of a shape have the
same keys, so they are looked at once per shape, and each text is then read from its place. Other
messages are rebuilt in a provider's form.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from otel_lightning.collector.derive.attributes import flattened, reading
from otel_lightning.collector.derive.attributes.flattened import Leaf
from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of
from otel_lightning.collector.derive.messages import (
    content_blocks,
    joined_calls,
    messages,
    one_message,
    tool_parts,
    tool_values,
)
from otel_lightning.collector.derive.messages.hosted_tools import ITEM
from otel_lightning.collector.derive.rows import Attributes, Message, Span
from otel_lightning.collector.derive.text import json_text

PLAIN = {"role", "content", "tool_call_id"}
"""The keys of a message of plain text."""
TOOL_CALL_KEYS = {"role", "content", "tool_calls"}
"""The keys of a message that has tool calls, and a text that may be empty."""
TOOLS = "llm.tools."
REDACTED = "__REDACTED__"
FLATTENED = ("llm.input_messages.", "llm.output_messages.")
MOST_TOOLS = 64
"""Maximum number of cached lists of tools. When it is reached, the cache is cleared."""


class Call(NamedTuple):
    """The keys of one tool call's values; '' where the call has no such value."""

    call_id: str
    name: str
    arguments: str


class Place(NamedTuple):
    """The keys of one message's values; '' where the message has no such value."""

    tree: Any
    """The whole message, as `flattened.items` returns it."""
    role: str = ""
    """Set only if the message is plain text or has tool calls alone."""
    content: str = ""
    call_id: str = ""
    calls: tuple[Call, ...] = ()
    """The tool calls of a message that has nothing else."""


def sent(shape: Shape) -> list[Place]:
    """Return where the input messages are in all spans of a shape."""
    return _places(shape, "llm.input_messages.")


def answered(shape: Shape) -> list[Place]:
    """Return where the output messages are in all spans of a shape."""
    return _places(shape, "llm.output_messages.")


def _places(shape: Shape, prefix: str) -> list[Place]:
    found = flattened.items(shape, prefix)
    if not found and shape.has_any(prefix):
        raise ValueError(f"the messages under {prefix} are not numbered")
    return [_place(tree) for tree in found]


def _place(tree: Any) -> Place:
    message = tree["message"] if isinstance(tree, dict) and tree.keys() == {"message"} else None
    if not isinstance(message, dict):
        return Place(tree)
    known = {name: one.key for name, one in message.items() if isinstance(one, Leaf)}
    if message.keys() == known.keys() <= PLAIN and {"role", "content"} <= known.keys():
        return Place(tree, known["role"], known["content"], known.get("tool_call_id", ""))
    listed = message.get("tool_calls")
    if isinstance(listed, list) and message.keys() == {*known, "tool_calls"} <= TOOL_CALL_KEYS:
        calls = [keys for one in listed if (keys := _call(one))]
        # If one call has other keys, the whole message is rebuilt.
        if "role" in known and len(calls) == len(listed):
            return Place(tree, known["role"], known.get("content", ""), calls=tuple(calls))
    return Place(tree)


def _call(tree: Any) -> Call | None:
    """Return the keys of a tool call's id, name and arguments; None if it has others."""
    inside = tree.get("tool_call") if isinstance(tree, dict) else None
    function = inside.get("function") if isinstance(inside, dict) else None
    if not isinstance(inside, dict) or not isinstance(function, dict):
        return None
    leaves = inside.get("id"), function.get("name"), function.get("arguments")
    known = [one.key if isinstance(one, Leaf) else "" for one in leaves]
    is_plain = inside.keys() == {"id", "function"} and function.keys() == {"name", "arguments"}
    return Call(*known) if is_plain and all(known) else None


def conversation(found: list[Place], span: Span) -> list[Message]:
    """Return the canonical messages in these places, as `messages.conversation` does."""
    attributes = span.attributes
    history: list[Message] = []
    for place in found:
        message = None
        if place.calls:
            message = _tool_call_message(place, attributes)
        elif place.role:
            message = _text(place, attributes)
        if message is not None:
            history.append(message)
        else:
            plain = _plain_message(flattened.filled(place.tree, attributes), span)
            history += one_message.read_message(plain)
    return messages.joined(history, span.memory)


def _text(place: Place, attributes: Attributes) -> Message | None:
    """Return a message of plain text, or None for any other message."""
    role = attributes[place.role]
    if not place.call_id:
        return (
            None if role == "tool" else one_message.plain_message(role, attributes[place.content])
        )
    call_id = attributes[place.call_id]
    # A user's message that names a tool call is a tool's response, which `read_message` recognises.
    if role != "tool" or call_id.startswith(ITEM):
        return None
    return one_message.plain_message(role, attributes[place.content], call_id)


def _tool_call_message(place: Place, attributes: Attributes) -> Message | None:
    """Return the assistant's message of tool calls alone, or None for any other message."""
    if attributes[place.role] != "assistant" or (place.content and attributes[place.content]):
        return None
    parts = []
    for call_id, name, arguments in place.calls:
        own, given = attributes[call_id], attributes[arguments]
        if own.startswith(ITEM) or joined_calls.JOINED in given:
            return None
        parts.append(tool_parts.tool_call_part(own, attributes[name], given))
    return {"role": "assistant", "parts": tool_parts.distinct_calls(parts)}


def _plain_message(item: dict[str, Any], span: Span) -> dict[str, Any]:
    """Return a flattened message in a provider's form."""
    message = item.get("message", {})
    if "function" in item:
        return {"role": "tool", "content": [_function_result(text) for text in item["function"]]}
    blocks = [_plain_block(block) for block in message.get("contents", [])]
    if "role" not in message and blocks:
        thought = content_blocks.read_reasoning({"content": blocks})
        text = thought["content"] if thought else None
        # Blocks of unknown types stay a list.
        known = isinstance(text, str) and text in _thoughts(span.attributes.get("input.value", ""))
        if thought and known:
            return {"role": "assistant", "content": [thought]}
    calls = [
        {**one, "id": _call_id(one["id"], span)}
        for call in message.get("tool_calls", [])
        for one in _separate(_plain_call(call["tool_call"]), span)
    ]
    if len(calls) == 1 and (calls[0]["id"] or "").startswith(ITEM):
        # For LiteLLM's Responses, the id of the call stands beside the item's.
        calls[0]["id"] = message.get("tool_call_id") or calls[0]["id"]
    return {
        "role": message.get("role"),
        "content": message.get("content", blocks or None),
        "tool_calls": calls,
        "tool_call_id": _call_id(message.get("tool_call_id") or _id_inside(message), span),
    }


@lru_cache(maxsize=8)
def _thoughts(sent: str) -> frozenset[str]:
    """Return the reasoning in a request's items. Cached for the messages of one span.

    The processor for the OpenAI Agents SDK for JavaScript flattens it without a role or a type.
    """
    listed = json_text.parse(sent)
    items = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    read = [content_blocks.read_reasoning(one) for one in items if one.get("type") == "reasoning"]
    return frozenset(part["content"] for part in read if part and isinstance(part["content"], str))


def _call_id(written: str | None, span: Span) -> str | None:
    """Return the id of a tool call, also where the flattened messages have that of its item.

    For the Responses API, Agno writes item ids (fc_…) into them, and both ids beside them.
    """
    if not (written or "").startswith(ITEM):
        return written
    values = (span.attributes.get(key, "") for key in ("input.value", "output.value"))
    return _ids_of_items(*values).get(written or "", written)


@lru_cache(maxsize=8)
def _ids_of_items(*values: str) -> Mapping[str, str]:
    """Return the id of each tool call by that of its item. Cached for the messages of one span."""
    parsed = map(json_text.parse, values)
    listed = [one.get("messages") if isinstance(one, dict) else one for one in parsed]
    entries = (one for some in listed if isinstance(some, list) for one in some)
    calls = [one.get("tool_calls") for one in entries if isinstance(one, dict)]
    pairs = (one for some in calls if isinstance(some, list) for one in some)
    return {str(one["id"]): str(one["call_id"]) for one in pairs if _has_both(one)}


def _has_both(call: Any) -> bool:
    return isinstance(call, dict) and bool(call.get("id") and call.get("call_id"))


def _id_inside(message: dict[str, Any]) -> str | None:
    """Return the id of the tool call that a message answers, which BeeAI writes into its blocks."""
    blocks = (json_text.object_under(block, "message") for block in message.get("contents", ()))
    return next(filter(None, (block.get("tool_call_id") for block in blocks)), None)


def _separate(call: dict[str, Any], span: Span) -> list[dict[str, Any]]:
    """Return the tool calls that JavaScript joins into one entry, if the call was streamed."""
    if joined_calls.JOINED not in str(call["arguments"]):
        return [call]
    offered = tools(span.attributes) or ()
    return joined_calls.separate(
        call, [str(tool.get("name")) for tool in offered if isinstance(tool, dict)]
    )


def _function_result(text: str) -> dict[str, Any]:
    """Return a function result that AutoGen writes into a message as JSON."""
    result = json_text.as_object(json_text.parse(text))
    return {
        "type": "tool_result",
        "call_id": result.get("call_id"),
        "output": result.get("content"),
    }


def _plain_call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a flattened tool call. Packages omit empty arguments, so absent ones become `{}`."""
    function = call.get("function", {})
    arguments = function.get("arguments", {})
    return {"id": call.get("id"), "name": function.get("name"), "arguments": arguments}


def _plain_block(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("message_content", {})
    if "tool_call" in block:
        return {"type": "tool_call", **_plain_call(block["tool_call"])}
    if content.get("type") == "image":
        return {"type": "image", "url": content.get("image", {}).get("image", {}).get("url")}
    return dict(content)


def embedded(span: Span) -> list[Message] | None:
    """Return the texts of an embedding, each as a user's message."""
    items = flattened.nested(span.attributes, "embedding.embeddings.")
    texts = [item.get("embedding", {}).get("text") for item in items]
    return messages.conversation([text for text in texts if text], span.memory) or None


def prompt(span: Span) -> list[Message]:
    """Return the prompt of a completion model as a user's message, if there is only one prompt.

    The key is `llm.prompts`, a list of texts, or `llm.prompts.0.prompt.text`. Several prompts are
    several requests in one span, which have no history in common.
    """
    prompts = texts(span, "llm.prompts.", "prompt") or reading.array(span.attributes, "llm.prompts")
    alone = prompts is not None and len(prompts) == 1 and isinstance(prompts[0], str)
    return messages.conversation(prompts or [], span.memory) if alone else []


def texts(span: Span, prefix: str, name: str) -> list[Any]:
    """Return the texts of the items under a prefix, such as `llm.prompts.0.prompt.text`."""
    items = flattened.nested(span.attributes, prefix)
    return [
        json_text.object_under(item, name).get("text") for item in items if isinstance(item, dict)
    ]


def _tool_keys(shape: Shape) -> tuple[str, ...]:
    return tuple(key for key in shape.keys if key.startswith(TOOLS))


_known_tools: dict[Any, list[Any] | None] = {}


def tools(attributes: Attributes) -> list[Any] | None:
    """Return the tools that a call offers; the calls of an agent, which repeat them, share them."""
    keys = shape_of(attributes).plan(_tool_keys)
    if not keys:
        return None
    written = keys, tuple([attributes[key] for key in keys])
    if written not in _known_tools:
        if len(_known_tools) >= MOST_TOOLS:
            _known_tools.clear()
        items = flattened.nested(attributes, TOOLS)
        _known_tools[written] = tool_values.flat_tools(
            [_definition(item.get("tool", {})) for item in items]
        )
    return _known_tools[written]


def _definition(tool: dict[str, Any]) -> Any:
    """Return a tool's definition from `json_schema`.

    The schema is either the whole definition, or only that of the parameters. In the second case
    the name and the description come from the attributes beside it.
    """
    schema = json_text.parse(tool.get("json_schema"))
    known = tool.keys() & {"name", "description"} if isinstance(schema, dict) else ()
    alone = known and schema.keys().isdisjoint({"name", "function"})
    return {**{key: tool[key] for key in known}, "parameters": schema} if alone else schema


def value(text: str | None) -> Any:
    """Return the parsed value of a JSON text, or the text. The MIME type is not reliable."""
    parsed = json_text.parse(text)
    # The text `null` is a result: the tool returned nothing.
    return text if parsed is None and text != "null" else parsed


def is_joined(request: Any) -> bool:
    """Return whether a request is one text of all messages, as LangChain joins them (Flowise)."""
    match request:
        case [str(text)]:
            return text.startswith(("System: ", "Human: "))
        case _:
            return False


def plain(span: Span, key: str, role: str) -> list[Message]:
    """Return the message of a value that is a plain text, as in spans that people write by hand.

    Beside flattened messages, such a text is an error, or an object that was made a text.
    """
    text = json_text.plain(span.attributes.get(key))
    known = text and text != REDACTED and not shape_of(span.attributes).has_any(FLATTENED)
    return messages.conversation([{"role": role, "content": text}]) if known else []
