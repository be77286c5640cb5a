"""The canonical parts of a message that call tools and answer them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from otel_lightning.collector.derive.messages.text_blocks import is_denial, plain
from otel_lightning.collector.derive.text.json_text import parse, parse_literal

Part = dict[str, Any]
ADK = "adk-"
"""Prefix of the ids that Google's ADK makes up for Gemini's tool calls. Histories lack them."""
DENIED = "denied"
"""Key of a tool call's response that says that the tool was not allowed to run."""


def tool_call_part(call_id: object, name: object, arguments: Any) -> Part:
    """Return a tool call; arguments given as text are parsed and also kept as `arguments_raw`.

    Example:
        >>> tool_call_part("call_1", "add", '{"a": 2}')["arguments"]
        {'a': 2}
        >>> tool_call_part("call_1", "ping", "")["arguments"]
        {}
    """
    if isinstance(name, str) and name.startswith("'"):  # a package wrote the repr() of both texts
        name, arguments = parse_literal(name), parse_literal(str(arguments))
    part: Part = {"type": "tool_call", "id": _name(call_id), "name": _name(name)}
    if isinstance(arguments, str):
        part["arguments"], part["arguments_raw"] = parsed_arguments(arguments), arguments
    elif arguments is not None:
        part["arguments"] = arguments
    return part


def parsed_arguments(text: str) -> Any:
    """Return the value of a tool call's arguments; an empty text is how Anthropic streams `{}`."""
    return parse(text) if text else {}


def response_part(call_id: object, response: Any) -> Part:
    """Return a tool call's response; a list of text blocks becomes their text.

    The response to a tool that was not allowed to run also has `denied`.
    """
    part: Part = {"type": "tool_call_response", "id": _name(call_id)}
    content = plain(response)
    if is_denial(response if type(response) is dict else content):
        part[DENIED] = True
    return part if content is None else {**part, "response": content}


def _name(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def distinct_calls(parts: list[Part]) -> list[Part]:
    """Drop duplicate tool calls: a message may hold one in its content and in `tool_calls`."""
    if len(parts) == 1:
        return parts
    seen: dict[str, Part] = {}
    distinct = []
    for part in parts:
        call_id = part.get("id") if part["type"] == "tool_call" else None
        first = part if call_id is None else seen.setdefault(call_id, part)
        if first is part:
            distinct.append(part)
        elif not first.get("arguments"):  # the content block of a stream may lack arguments
            first.update(part)
    return distinct


def forget_completed_arguments(broken_off: Iterable[Mapping[str, Any]]) -> bool:
    """Forget the arguments of the tool calls in which answers were broken off.

    LangChain's and Anthropic's clients complete the JSON of a stream that ended in the middle of
    it, so that `{"days": 12` becomes `{"days": 12}`, where the model may have meant 123. The
    model's own text does not parse then, and is kept.

    Args:
        broken_off: The answers; changed in place.

    Returns:
        Whether arguments were forgotten.
    """
    forgotten = False
    for message in broken_off:
        last = message["parts"][-1] if message["parts"] else {}
        if last.get("type") == "tool_call" and last.get("arguments") is not None:
            last.pop("arguments_raw", None)
            last["arguments"], forgotten = None, True
    return forgotten


def parts_of(messages: Iterable[Mapping[str, Any]] | None, kind: str) -> Iterator[Part]:
    """Yield the parts of one type, such as `tool_call`, of some messages in order."""
    for message in messages or ():
        yield from (part for part in message["parts"] if part["type"] == kind)
