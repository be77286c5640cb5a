"""Vercel's AI SDK: `ai.*` attributes on inner `….doGenerate`, `.doStream` and `.doEmbed` spans.

The outer spans, such as `ai.generateText`, sum up the inner ones. They are not read as calls.
Traceloop's SDK moves the content to the keys of the conventions.
"""

from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.dialects.semconv.call_messages import INPUT
from otel_lightning.collector.derive.messages import finish, messages, token_counts, tool_values
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Message, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "vercel"
RANK = 50
CONVERSATION_KEYS = (
    "ai.telemetry.metadata.sessionId",
    "ai.telemetry.metadata.raindrop.convoId",  # of Raindrop's wrapper
)
OPERATIONS = {"doGenerate": "chat", "doStream": "chat", "doEmbed": "embeddings"}
TOOL, NAMED = "toolCall", "ai.toolCall.name"
RUN = "ai.operation"
"""Laminar's key of the operation around model calls. Its spans of the calls follow the conventions,
and its tools have the AI SDK's keys without an operation."""
RUNS = {"ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject"}
ARGUMENTS = ("ai.toolCall.args", "gen_ai.tool.call.arguments")
RESULTS = ("ai.toolCall.result", "gen_ai.tool.call.result")
SETTINGS = "ai.settings."
SENT, THOUGHT = "ai.prompt.messages", "ai.response.reasoning"
REASON = "ai.response.finishReason"
MADE_UP = ("aitxt-", "aiobj-")  # prefixes of ids that the SDK makes up for responses without id


def matches(span: Span) -> bool:
    """Return whether the span has the AI SDK's operation id, or is a tool or a run of Laminar's."""
    attributes = span.attributes
    return "ai.operationId" in attributes or NAMED in attributes or attributes.get(RUN) in RUNS


def read(span: Span) -> LlmCall | ToolCall | AgentRun | None:
    """Read a span of the AI SDK."""
    laminars = TOOL if NAMED in span.attributes else RUN
    operation = span.attributes.get("ai.operationId", laminars)
    last = operation.rpartition(".")[2]
    if last in OPERATIONS:
        return _read_call(span, OPERATIONS[last])
    if last == TOOL:
        return _read_tool(span)
    name = reading.text(span.attributes, "ai.telemetry.functionId", "ai.functionId")
    return span_rows.agent_run(span, "agent", name) if name else None


def _read_call(span: Span, operation: str) -> LlmCall:
    attributes = span.attributes
    if SENT not in attributes and INPUT in attributes:
        return _read_moved(span, operation)
    call = span_rows.llm_call(span, NAME)
    call.operation = operation
    call.agent_name = reading.text(attributes, "ai.telemetry.functionId")
    api = reading.provider(attributes, "ai.model.provider", "gen_ai.system")
    call.provider = api and api.partition(".")[0]  # `openai.chat`: the provider and its API
    call.request_model = reading.text(attributes, "ai.model.id", "gen_ai.request.model")
    call.response_model = reading.text(attributes, "ai.response.model", "gen_ai.response.model")
    answered = reading.text(attributes, "ai.response.id", "gen_ai.response.id")
    call.response_id = None if (answered or "").startswith(MADE_UP) else answered
    call.request_params = _settings(span)
    tools = reading.array(attributes, "ai.prompt.tools") or []
    call.tool_definitions = tool_values.flat_tools(
        json_text.parse(tool) for tool in tools if isinstance(tool, str)
    )
    call.finish_reason = finish.reason(attributes.get(REASON))
    system = messages.system_parts(attributes.get("gen_ai.system_instructions"))  # Sentry's
    sent = messages.conversation(_sent(span), span.memory)
    call.input_messages = messages.with_system(system, sent, span.memory) or None
    call.output_messages = _answer(span, call.finish_reason)
    token_counts.fill_usage(call, _usage(span))
    _fill_from_provider(call, attributes.get("ai.response.providerMetadata"))
    span_rows.settle_broken_stream(call, attributes.get(REASON))
    keys = (SENT, "ai.response.toolCalls")
    return span_rows.completed(call, *(attributes.get(key) for key in keys))


def _read_moved(span: Span, operation: str) -> LlmCall:
    """Read a call whose content Traceloop's SDK moved to the keys of the conventions."""
    attributes = span.attributes
    call = semconv.read_call(span, NAME, operation)
    call.agent_name = call.agent_name or reading.text(attributes, "ai.telemetry.functionId")
    if (call.response_id or "").startswith(MADE_UP):
        call.response_id = None
    token_counts.fill_usage(call, _usage(span))
    span_rows.settle_broken_stream(call, attributes.get(REASON))
    if THOUGHT in attributes:  # it stays where it was
        thought = {"type": "reasoning", "content": attributes[THOUGHT]}
        (answer, *_) = call.output_messages or [messages.choice([], call.finish_reason)]
        call.output_messages = [{**answer, "parts": [thought, *answer["parts"]]}]
    return span_rows.completed(call)


def _settings(span: Span) -> dict[str, Any]:
    given = {key: text for key, text in span.attributes.items() if key.startswith(SETTINGS)}
    return {key.removeprefix(SETTINGS): json_text.parse(text) for key, text in given.items()}


def _sent(span: Span) -> list[Any]:
    sent = reading.array(span.attributes, SENT)
    values = reading.array(span.attributes, "ai.values") or []
    return sent or [json_text.parse(str(value)) or value for value in values]


def _answer(span: Span, finish_reason: str | None) -> list[Message] | None:
    attributes = span.attributes
    calls = reading.array(attributes, "ai.response.toolCalls") or []
    blocks = [{"type": "tool-call", **call} for call in calls if isinstance(call, dict)]
    # `ai.response.object` is the answer's text, unless it holds the arguments of a tool call.
    text_key = (
        "text" if finish_reason == "tool_calls" or "ai.response.text" in attributes else "object"
    )
    for name, kind in ((text_key, "text"), ("reasoning", "reasoning")):
        if text := attributes.get(f"ai.response.{name}"):
            blocks.insert(0, {"type": kind, "content": text})
    turn = messages.one_turn([{"role": "assistant", "content": blocks}]) if blocks else []
    return [messages.choice(message["parts"], finish_reason) for message in turn] or None


def _usage(span: Span) -> token_counts.Usage:
    inputs = ("ai.usage.inputTokens", "gen_ai.usage.input_tokens", "ai.usage.tokens")
    outputs = ("ai.usage.outputTokens", "gen_ai.usage.output_tokens")
    shares = (("ai.usage.cachedInputTokens",), ("ai.usage.reasoningTokens",))
    counts = (reading.integer(span.attributes, *keys) for keys in (inputs, outputs, *shares))
    return token_counts.Usage(*counts)


def _fill_from_provider(call: LlmCall, text: str | None) -> None:
    """Set token counts from the provider's metadata, which has counts that early versions lack."""
    metadata = json_text.parse(text)
    for own in metadata.values() if isinstance(metadata, dict) else ():
        if isinstance(own, dict):
            beside = {"input_tokens": call.input_tokens, **own}
            counts = token_counts.usage(own.get("usage", own.get("usageMetadata", beside)))
            call.input_tokens = counts.input_tokens or call.input_tokens
            if "usageMetadata" in own:  # version 5 leaves Gemini's thoughts out of the output
                call.output_tokens = counts.output_tokens or call.output_tokens
            token_counts.fill_usage(call, counts)


def _read_tool(span: Span) -> ToolCall:
    return span_rows.tool_call(
        span,
        name=reading.text(span.attributes, NAMED, "gen_ai.tool.name"),
        tool_call_id=reading.text(span.attributes, "ai.toolCall.id", "gen_ai.tool.call.id"),
        arguments=json_text.parse(reading.text(span.attributes, *ARGUMENTS)),
        result=json_text.parse(reading.text(span.attributes, *RESULTS)),
    )
