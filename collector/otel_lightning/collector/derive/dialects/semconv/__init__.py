"""OpenTelemetry's GenAI conventions, and the packages that follow them.

Traceloop 0.50 and later, the official `genai-*` and contrib packages, JavaScript, pydantic-ai,
agent-framework, Google ADK and Anthropic's own tracer. They differ in where the messages are
(attributes, one details event, one event per message; span event or log record), and in how they
write arguments, finish reasons and system prompts.

This file tells which kind of span is read by which function. Begin in `calls.py` for model calls:
`settings.py` reads what the calls of an agent repeat, `call_messages.py` the messages (from
attributes, `events.py` or whole requests and responses, `bodies.py`), `counts.py` the tokens.
`tools.py` and `retrievals.py` read the other spans. Dialects that add keys of their own to those of
the conventions call `read_call`.
"""

from functools import partial

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.dialects.semconv import (
    call_messages,
    counts,
    failed_early,
    retrievals,
    tools,
)
from otel_lightning.collector.derive.dialects.semconv.call_messages import (
    COMPLETION_JSON,
    INPUT,
    OUTPUT,
    PROMPT_JSON,
)
from otel_lightning.collector.derive.dialects.semconv.calls import (
    OPERATIONS,
    all_attributes,
    offered,
    read_call,
    tool_definitions,
)
from otel_lightning.collector.derive.dialects.semconv.settings import (
    REASONS,
    REQUEST,
    finish_reasons,
)
from otel_lightning.collector.derive.passes.answers.answering_agents import INVOKED
from otel_lightning.collector.derive.rows import AgentRun, Reader, Row, Span

__all__ = [
    "NAME",
    "OPERATIONS",
    "REASONS",
    "REQUEST",
    "finish_reasons",
    "is_answered",
    "matches",
    "offered",
    "read",
    "read_call",
    "reader",
    "unnamed_operation",
]

NAME = "semconv"
RANK = 90
CONVERSATION_KEYS = (
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "gen_ai.thread.id",
    "conversation.id",
    "gcp.vertex.agent.session_id",
    "spring.ai.chat.client.conversation.id",
    "microsoft.session.id",
)
AGENT_KEYS = ("traceloop.association.properties.lc_agent_name",)
NODE_KEYS = (
    "traceloop.association.properties.langgraph_checkpoint_ns",
    "traceloop.association.properties.langgraph_node",
)
COST_KEYS = (
    *("operation.cost", "gen_ai.usage.cost", "gen_ai.usage.total_cost"),
    "vercel.ai_gateway.cost.total",
)
AGENT_KINDS = {
    **dict.fromkeys((INVOKED, "agent"), "agent"),
    **dict.fromkeys(("invoke_workflow", "workflow"), "workflow"),
    **dict.fromkeys(("handoff", "agent_handoff"), "handoff"),
}
KINDS = {"llm", "tool", "agent", "embedding"}
METHOD = "rpc.method"
INVOKED_MODELS = {"InvokeModel", "InvokeModelWithResponseStream"}
"""Requests to Bedrock whose spans OpenTelemetry's package for JavaScript gives no operation."""
INPUT_KEYS = {INPUT, PROMPT_JSON}
ANSWER_KEYS = {"gen_ai.response.id", OUTPUT, COMPLETION_JSON}
"""Keys of a call's input, and of its answer."""
MODEL = "gen_ai.request.model"
COUNTED = {
    "gen_ai.response.model",
    *counts.USAGE[1],
    *REASONS[:2],
    *("gen_ai.completion", "gen_ai.response.text", "gen_ai.response.tool_calls"),
}
"""Keys of what only an answer has: one of them, with the requested model, makes a call."""
ADK_REQUEST = "gcp.vertex.agent.llm_request"
NOT_CALLS = {
    *("chain", "create_agent", "execute_task", "execute_event_loop_cycle", "plan", "task"),
    *(f"{what}_memory" for what in ("create", "delete", "search", "update", "upsert")),
    "unknown",
}
"""Operations whose spans repeat the messages or usage of their child calls, and are no calls."""


def matches(span: Span) -> bool:
    """Return whether the span names a GenAI operation, or has keys of a model call or a tool.

    Google ADK for Java names its own operation, and has the messages where `generic` reads them.
    """
    if ADK_REQUEST in span.attributes and _operation(span) == failed_early.ADK_CALL:
        return False
    return _operation(span) is not None or _has_call_evidence(span) or _is_tool(span, "")


def read(span: Span) -> Row | None:
    """Read a span that follows the conventions."""
    return reader(span)(span)


def reader(span: Span) -> Reader:
    """Return the function that reads the spans of this operation."""
    operation = _operation(span) or ""
    if retrieval := retrievals.kind(span, operation):
        return partial(retrievals.read, kind=retrieval)
    if _is_tool(span, operation):
        return tools.read
    answers = operation == INVOKED and "gen_ai.response.id" in span.attributes
    if operation in AGENT_KINDS and not answers:
        return partial(_read_agent, kind=AGENT_KINDS[operation])
    is_call = _has_call_evidence(span) or (operation and is_answered(span))
    if operation in OPERATIONS or (operation not in NOT_CALLS and is_call):
        name = OPERATIONS.get(operation, operation) or unnamed_operation(span)
        return partial(read_call, dialect=NAME, operation=name)
    return span_rows.no_row


def unnamed_operation(span: Span) -> str:
    """Return the operation of a call that does not name it."""
    # Only the names of the span and model tell an embedding from a chat.
    named = f"{span.name} {span.attributes.get('gen_ai.request.model')}".lower()
    return "embeddings" if OUTPUT not in span.attributes and "embed" in named else "chat"


def _read_agent(span: Span, kind: str) -> AgentRun:
    to_agent = reading.text(span.attributes, "gen_ai.handoff.to_agent")
    run = span_rows.agent_run(span, kind, to_agent or _agent_name(span))
    run.tool_definitions = tool_definitions(all_attributes(span))
    if run.error[0]:
        run.messages = call_messages.of_run(span)
    return run


def _is_tool(span: Span, operation: str) -> bool:
    if operation in {"execute_tool", "tool"}:
        return True
    if "tool.arguments" in span.attributes or tools.SPRING in span.attributes:
        return True
    if span.attributes.get("mcp.method.name") == "tools/call":
        return "gen_ai.tool.name" in span.attributes
    return not operation and "gen_ai.tool.call.id" in span.attributes


def _operation(span: Span) -> str | None:
    attributes = span.attributes
    named = attributes.get("gen_ai.operation.name") or attributes.get("traceloop.span.kind")
    kind = attributes.get("gen_ai.span.kind", "").lower()  # LLM, TOOL, AGENT: Alibaba's
    # In lower case: Agent 365 writes `Chat` and `TextCompletion`.
    stated = (named and named.lower()) or (kind if kind in KINDS else None)
    return stated or failed_early.operation(span, OPERATIONS)


def _has_call_evidence(span: Span) -> bool:
    attributes = span.attributes
    # A call that failed has neither an id nor an answer, only what it asked of which model.
    asked = MODEL in attributes and not INPUT_KEYS.isdisjoint(attributes)
    return (
        asked or not ANSWER_KEYS.isdisjoint(attributes) or attributes.get(METHOD) in INVOKED_MODELS
    )


def is_answered(span: Span) -> bool:
    """Return whether the span has a requested model, and something of its answer."""
    # Logfire writes no more than both models of a failed response of the OpenAI Agents SDK.
    return MODEL in span.attributes and not COUNTED.isdisjoint(span.attributes)


def _agent_name(span: Span) -> str | None:
    keys = ("gen_ai.agent.name", "gen_ai.workflow.name", "traceloop.entity.name")
    named = reading.text(span.attributes, *keys, "traceloop.workflow.name")
    # OpenTelemetry's package for LangChain calls the span of an agent without a name like that.
    return named or (None if span.name == INVOKED else span.name)
