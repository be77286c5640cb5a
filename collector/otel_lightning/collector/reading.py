"""What every dialect reader needs: typed values of text attributes, and what all calls share."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from otel_lightning.collector import json_text
from otel_lightning.collector.records import AgentRun, Attributes, LlmCall, Message, Span, ToolCall
from otel_lightning.instrumentation import attributes as names

LARGEST, LARGEST_TOKEN = 2**63, 2**31
CONVERSATION_KEYS = (
    "gen_ai.conversation.id",
    "session.id",
    "gen_ai.session.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "langsmith.metadata.session_id",
    "langsmith.metadata.thread_id",
    "ai.telemetry.metadata.sessionId",
)
"""The spellings of a conversation's id, the most reliable first."""
_CONVERSATION = frozenset(CONVERSATION_KEYS)


def text(attributes: Attributes, *keys: str) -> str | None:
    """Return the first of these attributes that says anything."""
    for key in keys:
        if value := attributes.get(key):
            return value
    return None


def integer(attributes: Attributes, *keys: str) -> int | None:
    """Return the first of these attributes that holds a whole number."""
    for key in keys:
        if key not in attributes:
            continue
        value = json_text.parse(attributes[key])
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if is_count(value):
            return int(value)
    return None


def is_count(value: object) -> bool:
    """Tell whether a value is a whole number that a column can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def array(attributes: Attributes, key: str) -> list[Any] | None:
    """Return an attribute that is a non-empty array, else None."""
    text = attributes.get(key)
    value = json_text.parse(text) if text else None
    return value if isinstance(value, list) and value else None


def token_ids(value: object) -> list[int] | None:
    """Return a non-empty list of token ids, or None if the value is anything else."""
    if not isinstance(value, list) or not value:
        return None
    return value if all(is_count(one) and 0 <= one < LARGEST_TOKEN for one in value) else None


def logprobs(value: object) -> list[float] | None:
    """Return a non-empty list of log probabilities, or None if the value is anything else."""
    if not isinstance(value, list) or not value:
        return None
    known = [float(one) for one in value if isinstance(one, int | float)]
    return known if len(known) == len(value) else None


def nested(attributes: Attributes, prefix: str) -> Any:
    """Rebuild what was flattened under a prefix; numbered keys become lists, gaps closed.

    Example:
        >>> nested({"p.0.role": "user", "p.7.role": "tool"}, "p.")
        [{'role': 'user'}, {'role': 'tool'}]
    """
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if key.startswith(prefix):
            _insert(tree, key.removeprefix(prefix).split("."), value)
    return _listed(tree)


def _insert(tree: dict[str, Any], path: list[str], value: str) -> None:
    *branches, leaf = path
    for branch in branches:
        below = tree.setdefault(branch, {})
        if not isinstance(below, dict):
            return
        tree = below
    tree.setdefault(leaf, value)


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(key.isdecimal() for key in node):
        return [_listed(node[key]) for key in sorted(node, key=int)]
    return {key: _listed(below) for key, below in node.items()}


def conversation_id(attributes: Attributes) -> str | None:
    """Return the conversation that a span or event says it belongs to."""
    if _CONVERSATION.isdisjoint(attributes):
        return None
    return text(attributes, *CONVERSATION_KEYS)


def failed(span: Span) -> bool:
    """Tell whether the span ended in an error. A recorded exception alone is none."""
    return span.status_code.endswith("ERROR")


def error(span: Span) -> tuple[str | None, str | None]:
    """Return the type and message of the error that a span ended in, if it did."""
    if not failed(span):
        return None, None
    last: Attributes = next(
        (event.attributes for event in reversed(span.events) if event.name == "exception"), {}
    )
    kind = text(span.attributes, "error.type") or text(last, "exception.type") or "_OTHER"
    return kind, span.status_message or text(last, "exception.message")


def llm_call(span: Span, dialect: str) -> LlmCall:
    """Return what a model call's span says in every dialect: place, time, error, our own names."""
    kind, message = error(span)
    attributes = span.attributes
    return LlmCall(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        dialect=dialect,
        service_name=text(span.resource, "service.name"),
        agent_name=text(attributes, "gen_ai.agent.name", "agent.name"),
        prompt_token_ids=token_ids(array(attributes, names.PROMPT_TOKEN_IDS)),
        completion_token_ids=token_ids(array(attributes, names.COMPLETION_TOKEN_IDS)),
        completion_logprobs=logprobs(array(attributes, names.COMPLETION_LOGPROBS)),
        conversation_id=conversation_id(attributes),
        error_type=kind,
        error_message=message,
    )


def agent_run(span: Span, kind: str, name: str | None) -> AgentRun:
    """Return the run of an agent, workflow or handoff that a span records."""
    return AgentRun(
        trace_id=span.trace_id,
        span_id=span.span_id,
        name=name,
        kind=kind,
        parent_span_id=span.parent_span_id,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        conversation_id=conversation_id(span.attributes),
    )


def tool_call(span: Span, name: str | None, **said: Any) -> ToolCall:
    """Return the execution of a tool that a span records, with what the dialect says of it."""
    return ToolCall(
        name=name,
        trace_id=span.trace_id,
        span_id=span.span_id,
        error_type=error(span)[0],
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        **said,
    )


def completed(call: LlmCall, *sources: str | None, cut: bool = False) -> LlmCall:
    """Settle what follows from the rest: the finish reason, and how much of the content is there.

    Args:
        call: A call whose messages are set.
        sources: The texts that its messages were read from.
        cut: Whether one of those is known to have been cut.
    """
    outputs = call.output_messages or []
    call.finish_reason = call.finish_reason or next(
        (message["finish_reason"] for message in outputs if "finish_reason" in message), None
    )
    if call.finish_reason == "stop" and asks_for_tools(call):
        call.finish_reason = "tool_calls"
    if call.error_type and not outputs:
        call.finish_reason = "error"
    call.content = _content(call, cut or any(map(json_text.is_cut, sources)))
    return call


def _content(call: LlmCall, cut: bool) -> str:  # noqa: FBT001
    if not call.input_messages and not call.output_messages:
        return "truncated" if cut else "absent"
    if any(map(_left_out, [*(call.input_messages or []), *(call.output_messages or [])])):
        return "redacted"
    answered = call.output_messages or call.error_type or call.operation == "embeddings"
    return "truncated" if cut or not call.input_messages or not answered else "full"


def _left_out(message: Message) -> bool:
    """Tell whether a message is only an outline: its text or arguments were not recorded."""
    parts = message["parts"]
    outline = message["role"] != "assistant" and not parts
    return outline or any(not _CARRIES.get(part["type"], bool)(part) for part in parts)


def asks_for_tools(call: LlmCall) -> bool:
    """Tell whether the call's output holds a tool call."""
    outputs = call.output_messages or ()
    return any(part["type"] == "tool_call" for output in outputs for part in output["parts"])


_CARRIES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "tool_call": lambda part: "arguments" in part,
    "tool_call_response": lambda part: "response" in part,
}


def flat_tools(definitions: Iterable[Any]) -> list[Any] | None:
    """Return tool definitions in the conventions' form: type, name, description, parameters."""
    tools = [_flat_tool(tool) for tool in definitions if isinstance(tool, Mapping)]
    return tools or None


def _flat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    body = tool.get("function") or tool.get("toolSpec") or tool
    flat = {"type": "function", "name": body.get("name"), "description": body.get("description")}
    for key in ("parameters", "input_schema", "inputSchema"):
        if body.get(key):
            flat["parameters"] = _schema(body[key])
            break
    return {key: value for key, value in flat.items() if value is not None}


def _schema(value: Any) -> Any:
    """Return a JSON schema, whether it came as text, wrapped by Bedrock, or as it is."""
    if isinstance(value, str):
        return json_text.parse(value)
    return value.get("json", value) if isinstance(value, Mapping) else value
