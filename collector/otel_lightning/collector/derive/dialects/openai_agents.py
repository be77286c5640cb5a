"""The contrib package `openai-agents-v2` 0.1: GenAI conventions with `repr()` texts in messages.

Its messages hold the `repr()` of SDK objects instead of parts. These texts are parsed as syntax and
never executed. The package writes the same agent name on every span, so the name is ignored.
"""

import ast
import json
from typing import Any

from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Retrieval, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "openai_agents"
RANK = 70
CONSTANT = "OpenAI Agents instrumentation"
"""The agent description that the package writes on every span."""
BESIDE = ("tool_calls", "tool_call_id", "refusal")
"""The fields of an OpenAI message besides its role and content."""
MESSAGES = ("gen_ai.input.messages", "gen_ai.output.messages")


def matches(span: Span) -> bool:
    """Return whether the span has the agent description of the package."""
    return span.attributes.get("gen_ai.agent.description") == CONSTANT


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read a span of the conventions after converting its messages to parts."""
    attributes = {
        key: _respelled(text) if key in MESSAGES else text for key, text in span.attributes.items()
    }
    if attributes.get("gen_ai.agent.name") == "OpenAI Agent":
        del attributes["gen_ai.agent.name"]
    row = semconv.read(span._replace(attributes=attributes))
    if isinstance(row, LlmCall):
        row.dialect = NAME
    return row


def _respelled(text: str) -> str:
    """Return the JSON messages with parsed parts; a text that is no JSON list is unchanged."""
    history = json_text.parse(text)
    if not isinstance(history, list):
        return text
    return json.dumps([_respelled_message(one) for one in history if isinstance(one, dict)])


def _respelled_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose parts are parsed from their `repr()` texts."""
    fields = dict(message)
    parts: list[Any] = []
    given = message.get("parts")
    for part in given if isinstance(given, list) else ():
        if not isinstance(part, dict):
            continue
        objects = _from_repr(part.get("content"))
        value = json_text.as_object(objects)
        if isinstance(objects, list):  # the blocks of a content
            parts += objects
        elif isinstance(value.get("output"), list):  # the response of a streamed chat completion
            for item in value["output"]:
                content = json_text.as_object(item).get("content")
                parts += content if isinstance(content, list) else [item]
        elif "role" in value:
            fields |= {key: value[key] for key in BESIDE if value.get(key)}
            content = value.get("content") or []
            parts += content if isinstance(content, list) else [content]
        else:
            parts.append(value if "type" in value else part)
    return {**fields, "parts": parts}


def _from_repr(text: Any) -> Any:
    """Return the object, or the list of objects, in a `repr()` text; None for any other text."""
    if not isinstance(text, str) or not text.endswith(("}", ")", "}]")):
        return None
    try:
        value = _fields(ast.parse(text, mode="eval").body)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, list):
        return value if all(isinstance(one, dict) and "type" in one for one in value) else None
    return value if isinstance(value, dict) else None


def _fields(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        # `word.arg` is None for `**fields`, which no `repr()` has.
        return {word.arg: _fields(word.value) for word in node.keywords if word.arg}
    if isinstance(node, ast.List):
        return [_fields(item) for item in node.elts]
    return ast.literal_eval(node)
