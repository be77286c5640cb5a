"""OpenInference: Arize's instrumentations, in Python and JavaScript.

Model calls have most keys, so `calls.py` reads them. Most packages keep what went in and
what came out of every span in `input.value` and `output.value`.
"""

from functools import partial
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import flattened, graph_nodes, reading
from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of
from otel_lightning.collector.derive.dialects.openinference import calls
from otel_lightning.collector.derive.dialects.openinference.flattened_messages import value
from otel_lightning.collector.derive.messages import text_blocks, tool_values
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Attributes,
    LlmCall,
    Reader,
    Retrieval,
    Row,
    Span,
    ToolCall,
)
from otel_lightning.collector.derive.text import json_text

NAME = calls.NAME
KIND = "openinference.span.kind"
RANK = 10
COST_KEYS = ("llm.cost.total",)
OPERATIONS = {"LLM": "chat", "EMBEDDING": "embeddings"}
RETRIEVALS = {"RETRIEVER": "retriever", "RERANKER": "reranker"}
DOCUMENTS = ("reranker.output_documents.", "retrieval.documents.", "reranker.input_documents.")
"""Prefixes of the keys of documents; a reranker's output takes precedence."""
OTHERS = frozenset(
    {
        *("ai.operationId", "gen_ai.output.messages", "gen_ai.tool.call.id", "mastra.span.type"),
        *("traceloop.span.kind", "gen_ai.prompt.0.role"),
    }
)
"""Keys of another dialect. A span that has one of them was written by another instrumentation, and
a processor only added OpenInference's keys; the other dialect's keys hold more."""
NO_TOOLS = {"openinference.instrumentation.instructor"}
"""The scopes of packages whose tool spans record no tool: Instructor's are around model calls."""
LANGCHAIN = "openinference.instrumentation.langchain"
"""The scope of the package that writes the kind `AGENT` for each run with "agent" in its name."""
HOOKS = (".before_agent", ".after_agent")
"""Suffixes of the names of runs in which LangChain's middleware acts before and after an agent."""
EVENT_OF = "metadata.path"
"""The key under which BeeAI names what an event belongs to."""
DSPY_FINISH = "finish.__call__"
"""The span with which DSPy ends its loop. It looks like a tool, but is none."""


def matches(span: Span) -> bool:
    """Return whether the span has OpenInference's span kind and no keys of another dialect.

    To Vercel's AI SDK 7, its processor adds the kind also where it adds no content.
    """
    attributes = span.attributes
    if KIND not in attributes or not OTHERS.isdisjoint(attributes):
        return False
    if "input.value" in attributes:
        return True
    # Spans that people write by hand may have the kind and else the conventions' keys only.
    is_theirs = "llm.model_name" not in attributes and "gen_ai.request.model" in attributes
    return "gen_ai.operation.name" not in attributes and not is_theirs


def read(span: Span) -> Row | None:
    """Read an OpenInference span."""
    return reader(span)(span)


def reader(span: Span) -> Reader:
    """Return the function that reads the spans of this kind."""
    kind = _kind(span)
    if kind in OPERATIONS:
        plan = shape_of(span.attributes).plan(calls.Plan)
        return partial(_read_call, plan, OPERATIONS[kind])
    if kind == "TOOL":
        return span_rows.no_row if span.scope_name in NO_TOOLS else _read_tool
    if kind in RETRIEVALS:
        return partial(_read_retrieval, RETRIEVALS[kind])
    return _read_agent if kind == "AGENT" else span_rows.no_row


def _kind(span: Span) -> str:
    """Return the kind of a span; for LangChain, the one that it has without its name."""
    kind = span.attributes[KIND]
    if kind != "AGENT" or span.scope_name != LANGCHAIN:
        return kind
    if "llm.invocation_parameters" in span.attributes:
        return "LLM"
    if "tool.name" in span.attributes:
        return "TOOL"
    return "CHAIN" if span.name.endswith(HOOKS) else kind


def _read_call(plan: calls.Plan, operation: str, span: Span) -> LlmCall | None:
    return calls.read(span, plan, operation)


def _is_event(span: Span) -> bool:
    """Return whether a span is BeeAI's event inside an agent or a tool, whose kind it has."""
    return span.attributes.get(EVENT_OF, "").endswith(f".{span.name}")


def _read_agent(span: Span) -> AgentRun | None:
    if _is_event(span):
        return None
    name = reading.text(span.attributes, "agent.name", "gen_ai.agent.name", "graph.node.id")
    if span.scope_name == LANGCHAIN:
        about = json_text.as_object(json_text.parse(span.attributes.get(calls.METADATA)))
        if graph_nodes.is_function(span.name, about):
            return None
        if span.name == graph_nodes.ONLY_NODE:
            name = name or calls.graph_node(about)
    return span_rows.agent_run(span, "agent", name or span.name)


def _documents(shape: Shape) -> list[str]:
    """Return the prefix of the keys of documents in this shape."""
    return [one for one in DOCUMENTS if shape.has_any(one)]


def _read_retrieval(kind: str, span: Span) -> Retrieval:
    attributes = span.attributes
    query = reading.text(attributes, "reranker.query") or value(attributes.get("input.value"))
    for prefix in shape_of(attributes).plan(_documents):
        if listed := flattened.nested(attributes, prefix):
            return span_rows.retrieval(span, kind, query, listed)
    return span_rows.retrieval(span, kind, query, value(attributes.get("output.value")))


def _read_tool(span: Span) -> AgentRun | ToolCall | None:
    attributes, name = span.attributes, span.name
    named = reading.text(attributes, "tool.name")
    # The OpenAI agents package writes a handoff as a tool named `handoff to NAME`. A user's tool of
    # such a name states it as `tool.name` too.
    if name.startswith("handoff to ") and named != name and (to := name[len("handoff to ") :]):
        return span_rows.agent_run(span, "handoff", to)
    if name == DSPY_FINISH or _is_event(span):
        return None
    result = value(attributes.get("output.value"))
    message = tool_values.tool_message(result)
    if "content" in message:
        result = message["content"]
    else:
        result = text_blocks.plain(tool_values.plain_result(result))  # without MCP's blocks
    return span_rows.tool_call(
        span,
        # DSPy names the span after the method.
        name=named or name.removesuffix(".__call__"),
        tool_call_id=reading.text(attributes, "tool_call.id", "tool.id")
        or message.get("tool_call_id"),
        arguments=_arguments(value(attributes.get("input.value")), attributes),
        result=result,
    )


def _arguments(given: Any, attributes: Attributes) -> Any:
    """Return a tool's arguments; of a Python tool recorded as args and kwargs, by their names."""
    if isinstance(given, str) and given.startswith("{"):
        # Some packages write the `repr()` of a dictionary.
        given = json_text.parse_literal(given) or given
    if not isinstance(given, dict):
        return given
    match given:
        case {"kwargs": dict(named)}:
            args = given.get("args") or []
            names = _parameter_names(attributes) if args else []
            if isinstance(args, list) and len(args) <= len(names):
                # The first parameters, because Python's positional arguments are in their order.
                return {**dict(zip(names, args, strict=False)), **named}
            return given
    # BeeAI's call of a tool.
    return given["input"] if given.keys() == {"input", "options"} else given


def _parameter_names(attributes: Attributes) -> list[str]:
    """Return the names of a tool's parameters: those of its schema, or of smolagents' own list."""
    schema = json_text.as_object(json_text.parse(attributes.get("tool.parameters")))
    return [*json_text.as_object(schema.get("properties") or schema)]
