"""Gemini CLI: model calls in the conventions' keys, and tools as the records of its scheduler.

The ids of tool calls in an answer begin with the tool's name, while those in later histories, and
in what the provider gets, lack it.
"""

from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.dialects.semconv.call_messages import INPUT, OUTPUT
from otel_lightning.collector.derive.messages import messages, payloads
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Reader, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "gemini_cli"
RANK = 65
AGENT, OPERATION = "gen_ai.agent.name", "gen_ai.operation.name"
CALL_ID = "gen_ai.tool.call_id"
BETWEEN = "__"
"""Separates the name of the tool from the rest of a tool call's id."""


def matches(span: Span) -> bool:
    """Return whether Gemini CLI wrote the span."""
    return span.attributes.get(AGENT) == "gemini-cli" and OPERATION in span.attributes


def reader(span: Span) -> Reader:
    """Return the function that reads the spans of this operation."""
    return _READERS.get(span.attributes[OPERATION], span_rows.no_row)


def _read_call(span: Span) -> LlmCall:
    call = semconv.read_call(span, NAME, "generate_content")
    for message in call.output_messages or ():
        for part in message["parts"]:
            if part["type"] == "tool_call":
                part["id"] = _without_name(part["id"], part["name"])
    return call


def _without_name(call_id: object, name: object) -> Any:
    """Return the id of a tool call as histories have it."""
    return call_id.removeprefix(f"{name}{BETWEEN}") if isinstance(call_id, str) else call_id


def _read_tool(span: Span) -> ToolCall:
    """Read an execution: the scheduler's record of its request, and that of how it ended."""
    attributes = span.attributes
    request, ended = (
        json_text.as_object(json_text.parse(attributes.get(key))) for key in (INPUT, OUTPUT)
    )
    name = attributes.get("gen_ai.tool.name") or request.get("name")
    tool = span_rows.tool_call(
        span,
        name,
        tool_call_id=_without_name(attributes.get(CALL_ID) or request.get("callId"), name),
        arguments=request.get("args"),
        result=_result(json_text.object_under(ended, "response")),
    )
    if ended.get("status") in {"error", "cancelled"}:
        tool.error_type = tool.error_type or "tool_error"
    return tool


def _result(response: payloads.Payload) -> Any:
    """Return what the model was told: the first response, without the object around its text."""
    turns = messages.conversation([{"role": "user", "parts": response.get("responseParts") or []}])
    parts = (part for message in turns for part in message["parts"] if "response" in part)
    value = next((part["response"] for part in parts), None)
    return value["output"] if isinstance(value, dict) and value.keys() == {"output"} else value


def _read_agent(span: Span) -> AgentRun:
    return span_rows.agent_run(span, "agent", span.attributes[AGENT])


_READERS: dict[str, Reader] = {
    "llm_call": _read_call,
    "tool_call": _read_tool,
    "agent_call": _read_agent,
}
