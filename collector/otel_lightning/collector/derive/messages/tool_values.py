"""Tools as spans record them: definitions, arguments and results, without frameworks' wrappers."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from otel_lightning.collector.derive.text import json_text

_GEMINI = ("parameters_json_schema", "parametersJsonSchema")
SCHEMAS = ("parameters", "input_schema", "inputSchema", *_GEMINI, "arguments")
"""The spellings of the schema of a tool's parameters."""
# For example `content='5' name='add' tool_call_id='call_1'`.
MESSAGE_REPR = re.compile(
    rf"content={json_text.QUOTED}( .*)? tool_call_id='(?P<id>[^']+)'.*", re.DOTALL
)
"""The `repr()` of LangChain's tool messages."""
COMMAND = {"graph", "update", "resume", "goto"}
"""The keys of LangGraph's `Command`: handoffs return one, and the tools of `deepagents`."""
IN_JAVASCRIPT = "lg_name"
"""The key of the class in JavaScript, where keys without values are absent."""

OUTCOME = re.compile(
    r"status='(?:success|failure)' result=(?P<result>.*) error=(?P<error>None|'.*'|\".*\")"
    r"(?: [a-z_]+=\S.*)?",
    re.DOTALL,
)
"""The `repr()` of Agno's record of an execution."""


def flat_tools(definitions: Any) -> list[Any] | None:
    """Return tool definitions in the conventions' form: type, name, description, parameters.

    Args:
        definitions: The definitions; anything but an iterable holds none.
    """
    if isinstance(definitions, str) or not isinstance(definitions, Iterable):
        return None
    tools = [
        _flat_tool(tool)
        for definition in definitions
        if isinstance(definition, dict | str)
        for tool in _declared(definition)
    ]
    return tools or None


def _declared(definition: Mapping[str, Any] | str) -> list[Mapping[str, Any]]:
    """Return the tools of one definition, which may be only a tool's name.

    A definition in Gemini's form holds several.
    """
    if isinstance(definition, str):
        return [{"name": definition}] if definition else []
    declared = definition.get("function_declarations", definition.get("functionDeclarations"))
    if not isinstance(declared, list):
        return [definition]
    return [tool for tool in declared if isinstance(tool, dict)]


def _flat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    inside = (tool.get(key) for key in ("function", "toolSpec"))
    body = next((value for value in inside if isinstance(value, dict)), tool)
    kind = str(tool.get("type") or "function")
    if body is tool and len(tool) == 1 and isinstance(next(iter(tool.values())), dict):
        (name,) = tool  # Gemini's own tools: `{"google_search": {}}`
        return {"type": name, "name": name, **tool}
    # A tool that the provider runs has no name and no schema; it is kept unchanged.
    if body is tool and "name" not in tool and kind != "function":
        return {"type": kind, "name": tool.get("server_label") or kind, **tool}
    flat = {"type": "function", "name": body.get("name"), "description": body.get("description")}
    for key in SCHEMAS:
        if body.get(key):
            flat["parameters"] = _schema(body[key])
            break
    return {key: value for key, value in flat.items() if value is not None}


def _schema(value: Any) -> Any:
    """Return a JSON schema that came as JSON text, in Bedrock's wrapper `{"json": …}`, or plain."""
    value = json_text.parse(value) if isinstance(value, str) else value
    value = value.get("json", value) if isinstance(value, dict) else value
    if not isinstance(value, dict):
        return value
    if value and all(
        isinstance(details, dict) and _is_typed(details) for details in value.values()
    ):
        # Smolagents' own list of a tool's parameters. It tells the model that `any` is a text.
        known = {"any": {"type": "string"}}
        value = {
            "properties": {k: {**one, **known.get(one["type"], {})} for k, one in value.items()}
        }
    if "properties" not in value:
        return value
    # Some packages leave the type out, or write fields without a value as null.
    return {"type": "object", **{key: each for key, each in value.items() if each is not None}}


def _is_typed(details: Mapping[str, Any]) -> bool:
    return isinstance(details.get("type"), str)


def is_a_call(value: object) -> bool:
    """Return whether a value holds a function's arguments as decorators do: args, kwargs."""
    if not isinstance(value, dict) or value.keys() != {"args", "kwargs"}:
        return False
    return isinstance(value["args"] or [], list) and isinstance(value["kwargs"], dict)


def named_arguments(value: Any, first: str | None = None) -> Any:
    """Return a decorated function's arguments by name; unchanged if some have no name.

    Args:
        value: The recorded arguments, `{"args", "kwargs"}`. Any other value is returned unchanged.
        first: The name for the first positional argument. The other positional ones are dropped.
    """
    if not is_a_call(value):
        return value
    match value["args"], value["kwargs"], first:
        case [dict(named)], {}, None if not value["kwargs"]:  # a function of JavaScript gets one
            return named
        case [_, *_], _, None:
            return value
    return {**({first: value["args"][0]} if value["args"] else {}), **value["kwargs"]}


def plain_result(result: Any) -> Any:
    """Return a tool's own result without the record that LlamaIndex wraps around it.

    Example:
        >>> plain_result({"tool_name": "sun", "raw_output": "no such city", "is_error": True})
        {'error': 'no such city'}
    """
    inner = result.get("tool_output", result) if isinstance(result, dict) else result
    if not isinstance(inner, dict) or "raw_output" not in inner:
        return inner
    failed = inner.get("is_error") is True
    return {"error": inner["raw_output"]} if failed else inner["raw_output"]


def outcome(text: str) -> Any:
    """Return a tool's own result from the `repr()` of Agno's record; other texts unchanged.

    Example:
        >>> outcome("status='success' result=5 error=None images=None")
        5
        >>> outcome("status='failure' result=None error='no such city' images=None")
        {'error': 'no such city'}
    """
    match = OUTCOME.fullmatch(text) if text.startswith("status='") else None
    if match is None:
        return text
    if match["error"] != "None":
        return {"error": json_text.parse_literal(match["error"])}
    result = json_text.parse_literal(match["result"])
    return match["result"] if result is None and match["result"] != "None" else result


def unquoted(value: Any) -> Any:
    """Return a text without the quotes that writing it as JSON puts around it.

    Example:
        >>> unquoted('"It shines."'), unquoted('"a" and "b"')
        ('It shines.', '"a" and "b"')
    """
    inner = json_text.parse(value) if isinstance(value, str) and value[:1] == '"' else None
    return inner if isinstance(inner, str) else value


def tool_message(result: Any) -> Mapping[str, Any]:
    """Return the LangChain tool message that a result holds, in each known serialisation.

    A tool of LangGraph may return a command, which holds the message that the model gets.

    Returns:
        The message, with `content` and `tool_call_id`; {} if the result holds none.
    """
    if isinstance(result, str) and not result.startswith("content="):  # as most results are
        return {}
    for key in ("output", "data", "kwargs"):
        inner = result.get(key) if isinstance(result, dict) else None
        result = inner if isinstance(inner, dict | str) else result
    if isinstance(result, dict) and _is_command(result):
        return _commands_message(result)
    if isinstance(result, str) and (match := MESSAGE_REPR.fullmatch(result)):
        return {"content": json_text.parse_literal(match["quoted"]), "tool_call_id": match["id"]}
    return result if isinstance(result, dict) and "tool_call_id" in result else {}


def _is_command(result: Mapping[str, Any]) -> bool:
    if result.get(IN_JAVASCRIPT) == "Command":
        return "update" in result
    return result.keys() == COMMAND


def _commands_message(command: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tool message in a command; a handoff has the whole history before it."""
    sent = json_text.as_object(command["update"]).get("messages")
    listed = sent if isinstance(sent, list) else []
    return next(filter(None, map(tool_message, reversed(listed))), {})
