"""OpenTelemetry's GenAI conventions, and the packages that follow them.

Traceloop 0.50 and later, the official `genai-*` and contrib packages, JavaScript, pydantic-ai,
agent-framework, Google ADK and Anthropic's own tracer. They differ in where the messages are
(attributes, one details event, one event per message; span event or log record), and in how they
write arguments, finish reasons and system prompts.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.attributes.compiled_fields import Field, Fields, lower, text
from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of, values_of
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
    SENTRY_INPUT,
    SENTRY_TOOLS,
)
from otel_lightning.collector.derive.dialects.semconv.events import USAGE_EVENT, logprobs
from otel_lightning.collector.derive.histories import lost_arguments
from otel_lightning.collector.derive.messages import finish, payloads, tool_values
from otel_lightning.collector.derive.messages.openai_agents_responses import without_made_up_id
from otel_lightning.collector.derive.passes.answers.answering_agents import INVOKED
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Attributes,
    LlmCall,
    Reader,
    Row,
    Span,
)
from otel_lightning.collector.derive.text import json_text

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
AGENT_KEYS = (
    "traceloop.association.properties.lc_agent_name",
    "traceloop.association.properties.langgraph_node",
)
COST_KEYS = (
    *("operation.cost", "gen_ai.usage.cost", "gen_ai.usage.total_cost"),
    "vercel.ai_gateway.cost.total",
)
DETAILS = "gen_ai.client.inference.operation.details"
REQUEST = "gen_ai.request."
HISTORY_NAMES = ("previous_response_id", "conversation")
"""Parameters that name a history which the provider stores; the first is read under any prefix."""
PREVIOUS = "previous_response.id"
"""The conventions' own name of the first, since 1.42."""
OPERATIONS = {
    **dict.fromkeys(("chat", "completion", "acompletion", "responses", "aresponses"), "chat"),
    "llm": "chat",
    **dict.fromkeys(("text_completion", "atext_completion", "textcompletion"), "text_completion"),
    "text_completions": "text_completion",  # Semantic Kernel's
    **dict.fromkeys(("embeddings", "embedding", "aembedding"), "embeddings"),
    **dict.fromkeys(("generate_content", "generatecontent"), "generate_content"),
    # Rig's.
    "chat_streaming": "chat",
    **dict.fromkeys(("interactions", "interactions_streaming"), "generate_content"),
}
AGENT_KINDS = {
    **dict.fromkeys((INVOKED, "agent"), "agent"),
    **dict.fromkeys(("invoke_workflow", "workflow"), "workflow"),
    **dict.fromkeys(("handoff", "agent_handoff"), "handoff"),
}
KINDS = {"llm", "tool", "agent", "embedding"}
METHOD = "rpc.method"
INVOKED_MODELS = {"InvokeModel", "InvokeModelWithResponseStream"}
"""Requests to Bedrock whose spans OpenTelemetry's package for JavaScript gives no operation."""
ASKING = {INPUT, PROMPT_JSON}
ANSWERED = {"gen_ai.response.id", OUTPUT, COMPLETION_JSON}
"""Keys of a call's input, and of its answer."""
NAMED = "spring.ai.model.request.tool.names"
TOOLS = ("gen_ai.tool.definitions", SENTRY_TOOLS, "model_request_parameters", "tools", NAMED)
ASKED_FOR = ("model", "openai.request.model", "param.model")
"""Keys of the requested model where the conventions' key has the responding one."""
ASKED_FOR_KEYS = frozenset(ASKED_FOR)
REASONS = (
    "gen_ai.response.finish_reasons",
    "gen_ai.response.finish_reason",
    "anthropic.message.stop_reason",
    "cloudflare.agents.response.finish_reason",
)
"""Keys of the finish reasons: the first has a list of them, the others have one."""
MOST_SETTINGS = 64
"""Maximum number of different settings that are kept per shape."""
LAST_PIECES = {"opentelemetry.instrumentation.google_generativeai"}
"""The scopes of packages that keep only the last piece of a streamed answer, and do not say which
answers were streamed."""
LOSE_ARGUMENTS = {"@traceloop/instrumentation-anthropic", "opentelemetry.instrumentation.bedrock"}
"""The scopes of packages that lose the arguments of tool calls in streams of Anthropic's models."""
LEAVE_CACHED_OUT = {"@traceloop/instrumentation-anthropic", "openlit.instrumentation.anthropic"}
"""The scopes of packages that leave Anthropic's cached tokens out of the input tokens, and of the
total beside them."""
MODEL = "gen_ai.request.model"
COUNTED = {
    "gen_ai.response.model",
    *counts.USAGE[1],
    *REASONS[:2],
    *("gen_ai.completion", "gen_ai.response.text", "gen_ai.response.tool_calls"),
}
"""Keys of what only an answer has: one of them, with the requested model, makes a call."""
NOT_CALLS = {
    *("chain", "create_agent", "execute_task", "execute_event_loop_cycle", "plan", "task"),
    *(f"{what}_memory" for what in ("create", "delete", "search", "update", "upsert")),
    "unknown",
}
"""Operations whose spans repeat the messages or usage of their child calls, and are no calls."""


@lru_cache(maxsize=64)
def _tools(text: str) -> list[Any] | None:
    """Return the tools that a text defines. Cached, as all calls of an agent repeat the same text.

    Returns:
        An empty list if the text states that there are no tools, None if it states nothing.
    """
    definitions = json_text.parse(text)
    # pydantic-ai's `model_request_parameters`.
    if isinstance(definitions, dict):
        definitions = definitions.get("function_tools")
    return (tool_values.flat_tools(definitions) or []) if isinstance(definitions, list) else None


def offered(*texts: str | None) -> list[Any] | None:
    """Return the tools that the first of these texts defines that is not empty."""
    text = next(filter(None, texts), None)
    return _tools(text) if text else None


FIELDS = Fields(
    response_id=text("gen_ai.response.id"),
    tool_definitions=Field(TOOLS, offered),
)
PROVIDERS = ("gen_ai.provider.name", "gen_ai.system", "gen_ai.model.provider")
ANSWERING = ("gen_ai.response.model", "openai.response.model", "gen_ai.response.model_name")
SETTINGS = Fields(
    provider=lower(*PROVIDERS),
    request_model=text("gen_ai.request.model"),
    response_model=text(*ANSWERING),
)
SETTINGS_KEYS = frozenset((*PROVIDERS, *ANSWERING, *ASKED_FOR, *REASONS))


def matches(span: Span) -> bool:
    """Tell whether the span names a GenAI operation, or has keys of a model call or a tool."""
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
    run.tool_definitions = _tool_definitions(_all_attributes(span))
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
    asked = MODEL in attributes and not ASKING.isdisjoint(attributes)
    return asked or not ANSWERED.isdisjoint(attributes) or attributes.get(METHOD) in INVOKED_MODELS


def is_answered(span: Span) -> bool:
    """Tell whether the span has a requested model, and something of its answer."""
    # Logfire writes no more than both models of a failed response of the OpenAI Agents SDK.
    return MODEL in span.attributes and not COUNTED.isdisjoint(span.attributes)


def _agent_name(span: Span) -> str | None:
    keys = ("gen_ai.agent.name", "gen_ai.workflow.name", "traceloop.entity.name")
    return reading.text(span.attributes, *keys, "traceloop.workflow.name") or span.name


class _Settings:
    """What a call states that most calls of an agent repeat: models, parameters, finish reasons."""

    __slots__ = (
        "finish_reason",
        "parameters",
        "provider",
        "reasons",
        "request_model",
        "response_model",
    )

    provider: str | None
    request_model: str | None
    response_model: str | None

    def __init__(self, attributes: Attributes) -> None:
        """Read the attributes whose keys `_says_settings` names; there may be others."""
        self.provider = self.request_model = self.response_model = None
        SETTINGS.fill(self, attributes)
        if not ASKED_FOR_KEYS.isdisjoint(attributes):
            asked = _model_asked_for(attributes)
            if asked != self.request_model:
                self.response_model = self.response_model or self.request_model
            self.request_model = asked
        self.parameters = _parameters(attributes, _parameter_names(tuple(attributes)))
        self.reasons = finish_reasons(attributes)
        self.finish_reason = finish.reason(self.reasons[0])


def _says_settings(key: str) -> bool:
    """Tell whether a key may hold one of the values of `_Settings`."""
    return key in SETTINGS_KEYS or bool(_parameter_names((key,)))


class _Plan:
    """What the keys of a shape say about how to read a model call."""

    __slots__ = (
        "_keys",
        "_known",
        "_values",
        "fill",
        "fill_counts",
        "has_id_inside",
        "has_total",
        "is_named",
        "messages",
    )

    def __init__(self, shape: Shape) -> None:
        known = shape.known
        self._keys = tuple(filter(_says_settings, shape.keys))
        self._values = values_of(self._keys)
        self._known: dict[tuple[str, ...], _Settings] = {}
        self.fill = FIELDS.filler(shape)
        is_whole = not known.isdisjoint(("response", *counts.RAW_USAGE))
        self.fill_counts = _fill_whole if is_whole else counts.COUNTS.filler(shape)
        self.messages = call_messages.Plan(shape)
        self.has_id_inside = "response_data" in known
        self.is_named = "gen_ai.tool.call.id" in known
        self.has_total = not known.isdisjoint(counts.TOTALS)

    def settings(self, attributes: Attributes) -> _Settings:
        """Return the settings of a call; those that calls repeat are read once."""
        values = self._values(attributes)
        found = self._known.get(values)
        if found is None:
            if len(self._known) >= MOST_SETTINGS:
                self._known.clear()
            # From these attributes alone, so the others cannot change what is kept.
            found = _Settings(dict(zip(self._keys, values, strict=True)))
            self._known[values] = found
        return found


def read_call(span: Span, dialect: str, operation: str) -> LlmCall:
    """Read a model call that follows the conventions; other dialects then add their own keys."""
    attributes = _all_attributes(span)
    plan = shape_of(attributes).plan(_Plan)
    call = span_rows.llm_call(span, dialect)
    call.operation = operation
    plan.fill(call, attributes)
    settings = plan.settings(attributes)
    call.provider = settings.provider
    call.request_model = settings.request_model or _named_model(span)
    call.response_model, call.finish_reason = settings.response_model, settings.finish_reason
    call.request_params = settings.parameters.copy()
    if plan.has_id_inside:
        call.response_id = call.response_id or _id_inside(attributes)
    # An item of the Responses API has two ids (fc_… and call_…), and packages write either one.
    call.lost_ids = call.response_id is not None and call.response_id.startswith("resp_")
    cut = call_messages.fill(call, span, attributes, plan.messages, len(settings.reasons))
    plan.fill_counts(call, attributes)
    if plan.is_named:
        tools.name_requests(call, attributes)
    if span_rows.is_gemini(call):
        tools.read_as_gemini(call, span.memory)
    if plan.has_total:
        span_rows.count_hidden(call, reading.integer(attributes, *counts.TOTALS))
    if span.scope_name in LEAVE_CACHED_OUT and call.input_tokens:
        cached = (call.cached_input_tokens, call.cache_creation_input_tokens)
        call.input_tokens += sum(filter(None, cached))
    if span.scope_name in LOSE_ARGUMENTS:
        lost_arguments.forget(call)
    if span.events:
        call.completion_logprobs = call.completion_logprobs or logprobs(span)
        for event in span.events:  # Ax writes the counts as an event of their own
            if event.name == USAGE_EVENT:
                payloads.fill_usage(call, counts.usage(event.attributes))
    cut = cut or (span.scope_name in LAST_PIECES and _has_text(call))
    call = span_rows.completed(call, cut=cut)
    return span_rows.without_doubtful_reason(call, settings.reasons[0])


def _fill_whole(call: LlmCall, attributes: Attributes) -> None:
    """Set the fields of a call also from the provider's response or usage, which Logfire keeps."""
    response = without_made_up_id(json_text.parse(attributes.get("response")))
    if payloads.fill_from_response(call, response):
        call.tool_definitions = call.tool_definitions or payloads.request_tools(response)
    payloads.fill_usage(call, counts.usage(attributes))
    if raw := reading.text(attributes, *counts.RAW_USAGE):
        payloads.fill_usage(call, payloads.usage(json_text.parse(raw)))


def _id_inside(attributes: Attributes) -> str | None:
    """Return the response id from the streamed response that Logfire keeps."""
    response = json_text.parse(attributes.get("response_data"))
    inside = (response, response.get("message")) if isinstance(response, dict) else ()
    ids = [one.get("id") for one in inside if isinstance(one, dict)]
    return next((one for one in ids if isinstance(one, str) and one), None)


def _model_asked_for(attributes: Attributes) -> str | None:
    """Return the requested model.

    MLflow, ddtrace and Pipecat write the responding model there, once it is known, and the
    requested one under their own keys.
    """
    model = json_text.parse(attributes.get("model")) or reading.text(attributes, *ASKED_FOR[1:])
    return model if isinstance(model, str) else attributes.get("gen_ai.request.model") or None


def _named_model(span: Span) -> str | None:
    """Return the model in the name of a span whose first attributes are lost: `chat gpt-5`.

    OpenTelemetry's composite samplers, which Elastic's distribution has by default, drop the
    attributes that a span starts with: the operation and all that was asked for.
    """
    operation, _, model = span.name.partition(" ")
    is_named = operation in OPERATIONS and "gen_ai.operation.name" not in span.attributes
    return model if is_named and model and " " not in model else None


def _tool_definitions(attributes: Attributes) -> list[Any] | None:
    return offered(*filter(None, map(attributes.get, TOOLS)))


def _has_text(call: LlmCall) -> bool:
    parts = (part for message in call.output_messages or () for part in message["parts"])
    return any(part["type"] == "text" for part in parts)


def _all_attributes(span: Span) -> Attributes:
    """Return the span's attributes, merged with those of its details event or log record."""
    if not span.events and not span.logs:
        return span.attributes
    events = [event.attributes for event in span.events if event.name == DETAILS]
    logs = [log.attributes for log in span.logs if log.event_name == DETAILS]
    if not events and not logs:
        return span.attributes
    merged: dict[str, str] = {}
    # Later ones replace earlier ones: the span's own attributes count most.
    for attributes in (*call_messages.with_whole_output(logs), *events, span.attributes):
        merged.update(attributes)
    return merged


def _parameters(attributes: Attributes, given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    found = {}
    for key, name in given:
        value = json_text.parse(attributes[key])
        # Parameters are JSON, so any other text is not one; only ids are plain text.
        value = attributes[key] if value is None and name in HISTORY_NAMES else value
        if value is not None:
            found[name] = value
    return found


def _parameter_names(keys: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (key, parameter name) pairs."""
    found = [
        (key, HISTORY_NAMES[0] if key == f"{REQUEST}{PREVIOUS}" else key.removeprefix(REQUEST))
        for key in keys
        if key.startswith(REQUEST) and key not in {SENTRY_INPUT, SENTRY_TOOLS}
    ]
    ends = ((key, key.rpartition(".")[2]) for key in keys)
    return [*found, *((key, name) for key, name in ends if name == HISTORY_NAMES[0])]


def finish_reasons(attributes: Attributes) -> Sequence[Any]:
    """Return the reported finish reasons, one per choice."""
    listed = attributes.get(REASONS[0])
    return (listed and _reasons(listed)) or (reading.text(attributes, *REASONS[1:]),)


@lru_cache(maxsize=256)
def _reasons(text: str) -> tuple[Any, ...]:
    value = json_text.parse(text)
    if value is None and text.isidentifier():  # early Mastra writes the reason itself
        return (text,)
    # `in_progress` belongs to a chunk of a stream, not to a choice.
    return tuple(one for one in value if one != "in_progress") if isinstance(value, list) else ()
