"""Tool executions of OpenTelemetry's GenAI conventions, under each known spelling of their keys."""

from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.attributes.compiled_fields import first
from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of
from otel_lightning.collector.derive.dialects.semconv import lost_tool_calls, redacted
from otel_lightning.collector.derive.messages import messages, text_blocks, tool_parts, tool_values
from otel_lightning.collector.derive.messages.hosted_tools import ITEM
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.rows import Attributes, LlmCall, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

ARGUMENTS = (
    "gen_ai.tool.call.arguments",
    "tool.arguments",
    "tool_arguments",
    "gcp.vertex.agent.tool_call_args",
    "adk.tool_call_args",  # ADK-TS's
    "gen_ai.tool.input",
    "gen_ai.tool.arguments",  # Axiom's
    "gen_ai.tool.args",  # any-agent's
    "traceloop.entity.input",
    "spring.ai.tool.call.arguments",
    "input.value",
    "gen_ai.prompt.0.content",  # Eino's
)
RESULTS = (
    "gen_ai.tool.call.result",
    "tool_response",
    "gcp.vertex.agent.tool_response",
    "adk.tool_response",
    "gen_ai.tool.output",
    "gen_ai.tool.message",  # Axiom's
    "gen_ai.output",  # any-agent's
    "traceloop.entity.output",
    "spring.ai.tool.call.result",
    "output.value",
    "gen_ai.completion.0.content",
)
CUT_MARKS = {"opentelemetry.instrumentation.ag2": "...[truncated]"}
"""The scopes of packages that cut long results of tools, with what they put behind the rest."""
TOOL_ERROR = "tool_error"
"""The error type of a tool that told the model of its error: the conventions' word for MCP."""
FAILED = "gen_ai.tool.error.type"
"""Rig's key of the type of a tool's error."""
SPRING = "spring.ai.tool.definition.name"
NAMES = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name", SPRING)
IDS = (
    *("gen_ai.tool.call.id", "spring.ai.tool.call.id", "tool_call.id"),
    "gen_ai.tool_call.id",  # Google ADK's in Java
)
WRAPPERS = frozenset(("input_str", "tool_name", "args", "ArgumentsInJSON"))
"""Each wrapper that frameworks put around arguments has one of these keys."""
_ALONE = {"result": {"is_error"}, "Response": {"Extra", "ToolOutput"}}
"""Keys of a result that is alone in an object, each with what else the object may hold: Traceloop's
for MCP is the first, Eino's the second."""
UNSPECIFIED = ("<not specified>", "<not_specified>")
"""The ids that Google's ADK and ADK-TS write for a tool call that has none."""
MERGED_TOOLS = "(merged tools)"
"""Google ADK's name for a span that only sums up parallel tool executions."""


def read(span: Span) -> ToolCall | None:
    """Read the execution of a tool.

    Returns:
        The execution; None if the span only sums up other executions, or does not say which tool
        it is.
    """
    span = redacted.removed(span)
    attributes = span.attributes
    plan = shape_of(attributes).plan(_Plan)
    name = plan.name(attributes)
    if name == MERGED_TOOLS:
        return None
    given = plan.arguments(attributes) or _message_content(attributes, "input")
    text = plan.result(attributes) or _message_content(attributes, "output")
    if text and (mark := CUT_MARKS.get(span.scope_name or "")):
        text = text.removesuffix(mark)
    result = _result(text)
    if given == "{}" and attributes.get("gcp.vertex.agent.tool_response") == "{}":
        given = result = None  # Google ADK writes `{}` for both if content is not recorded
    message = tool_values.tool_message(result)
    if plan.is_named_by_class:
        name = message.get("name") or name
    if span.scope_name == lost_tool_calls.SCOPE and not message.get("name"):
        return None  # a tool that failed: nothing says which one, nor who asked for it
    tool = span_rows.tool_call(
        span,
        name=name or span.name.removeprefix("execute_tool "),
        tool_call_id=_specified(plan.call_id(attributes)) or message.get("tool_call_id"),
        arguments=_arguments(given),
        result=text_blocks.outcome(message.get("content", result)),
    )
    # The span of a tool whose error was told to the model may end without an error.
    if plan.flags and tool.error_type is None and "true" in map(attributes.get, plan.flags):
        tool.error_type = TOOL_ERROR
    tool.error_type = tool.error_type or attributes.get(FAILED)
    return tool


def _specified(call_id: str | None) -> str | None:
    return None if call_id in UNSPECIFIED else call_id


class _Plan:
    """How to read the fields of an execution from the keys of a shape."""

    __slots__ = ("arguments", "call_id", "flags", "is_named_by_class", "name", "result")

    def __init__(self, shape: Shape) -> None:
        known = shape.known
        self.name, self.call_id = first(shape, NAMES), first(shape, IDS)
        self.arguments, self.result = first(shape, ARGUMENTS), first(shape, RESULTS)
        # Keys whose values may say that a tool failed, such as `mcp.tool.isError`.
        self.flags = [key for key in shape.keys if key.endswith(("is_error", "isError"))]
        # Then the span's name is that of a class, not of the tool.
        self.is_named_by_class = "gen_ai.tool.name" not in known


def _message_content(attributes: Attributes, side: str) -> str | None:
    """Return the content of a tool's message: TanStack writes arguments and results there."""
    listed = reading.array(attributes, f"gen_ai.{side}.messages") or []
    parts = (one["parts"][0] for one in messages.conversation(listed) if one["role"] == "tool")
    value = next((part.get("response") for part in parts), None)
    return value if value is None or isinstance(value, str) else json_text.dumps(value).decode()


def _arguments(text: str | None) -> Any:
    """Return a tool's arguments without the wrappers that frameworks put around them."""
    value = json_text.parse(text)
    if not isinstance(value, dict):
        return text if value is None else value
    if WRAPPERS.isdisjoint(value):
        return value
    if isinstance(value.get("input_str"), str):
        return json_text.parse_literal(value["input_str"]) or value["input_str"]
    if set(value) == {"tool_name", "arguments"}:
        return value["arguments"]
    if "ArgumentsInJSON" in value:  # Eino
        value = {"args": [value["ArgumentsInJSON"]]}
    match value:
        case {"args": [str(one)]} if len(value) == 1:  # LangChain for JavaScript: one JSON text
            return json_text.parse(one) or value
    return tool_values.named_arguments(value)


def _result(text: str | None) -> Any:
    """Return a tool's result; LangChain wraps it in a serialised message."""
    value = json_text.parse(text)
    if value is None:
        return text and tool_values.outcome(text)
    if isinstance(value, dict) and set(value) == {"id", "name", "response"}:
        value = value["response"]  # Gemini's, in OpenInference for Google ADK
    if not isinstance(value, dict):
        return value
    if set(value) == {"output"} and isinstance(value["output"], str):
        return value["output"]  # Qwen Code: Gemini's API takes objects only
    alone = next((key for key, beside in _ALONE.items() if value.keys() - beside == {key}), None)
    return tool_values.plain_result(value) if alone is None else value[alone]


def name_requests(call: LlmCall, attributes: Attributes) -> None:
    """Replace item ids (fc_…) of tool calls by the ids (call_…) that their responses use.

    OpenLIT writes the item ids of the Responses API into messages, and the others on the span.
    """
    keys = ("gen_ai.tool.name", "gen_ai.tool.call.id")
    names, ids = (attributes.get(key, "").split(",") for key in keys)
    free = [(name.strip(), known.strip()) for name, known in zip(names, ids, strict=False)]
    for message in call.output_messages or ():
        for part in message["parts"]:
            if part["type"] == "tool_call" and str(part["id"]).startswith(ITEM):
                # Parallel calls of one tool have its name several times, in their order.
                own = next((pair for pair in free if pair[0] == part["name"]), None)
                if own is not None:
                    free.remove(own)
                    part["id"] = own[1]


def drop_mark(call: LlmCall, mark: str, memory: MessageMemory | None) -> bool:
    """Drop the mark at the end of tool results that the package cut; return whether there are any.

    Args:
        call: The call; changed in place.
        mark: The text that the package writes after the part that it kept (`CUT_MARKS`).
        memory: The messages that are shared with other calls.
    """
    sent = call.input_messages or []
    # A message may be shared with other calls, so it is replaced and not changed.
    keep = memory.one_copy if memory else dict
    is_cut = False
    for at, message in enumerate(sent):
        parts = [_without_mark(part, mark) for part in message["parts"]]
        if parts != message["parts"]:
            sent[at] = keep({**message, "parts": parts})
            is_cut = True
    return is_cut


def _without_mark(part: dict[str, Any], mark: str) -> dict[str, Any]:
    response = part.get("response")
    if isinstance(response, str) and response.endswith(mark):
        return part | {"response": response.removesuffix(mark)}
    return part


def read_as_gemini(call: LlmCall, memory: MessageMemory | None) -> None:
    """Give the tool calls and responses of a Gemini call the form that Gemini has them in.

    Ids of the form NAME_POSITION are dropped: packages make them up, and the id of a tool call and
    that of its response may differ. So are Google ADK's own ids, which it writes into streamed
    answers only, with positions in the inputs after them. A response is an object, which Traceloop
    writes as JSON text and OpenLIT as a Python literal. OpenLIT writes the text `None` beside the
    tool calls of an answer without text.
    """
    sent, answered = call.input_messages or [], call.output_messages or []
    names = {part.get("name") for message in (*sent, *answered) for part in message["parts"]}
    # A message of the input may be shared with other calls, so it is replaced and not changed, and
    # the new one is shared in turn.
    for side, keep in ((sent, memory.one_copy if memory else dict), (answered, dict)):
        for at, message in enumerate(side):
            known = message["parts"]
            spoken = _without_no_text(known)
            parts = [_geminis_part(part, names) for part in spoken]
            if spoken is not known or any(
                one is not p for one, p in zip(parts, spoken, strict=True)
            ):
                side[at] = keep({**message, "parts": parts})


def _without_no_text(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop the text `None` beside tool calls."""
    asks = any(part["type"] == "tool_call" for part in parts)
    if not asks or all(part.get("content") != "None" for part in parts):
        return parts
    return [part for part in parts if part.get("content") != "None"]


def _geminis_part(part: dict[str, Any], names: set[str | None]) -> dict[str, Any]:
    call_id = str(part.get("id"))
    name, _, place = call_id.rpartition("_")
    if call_id.startswith(tool_parts.ADK) or (place.isdecimal() and name in names):
        part = part | {"id": None}
    response = part.get("response")
    text = response if isinstance(response, str) and response[:1] == "{" else ""
    value = json_text.parse_literal(text) if text else None
    return part | {"response": value} if isinstance(value, dict) else part
