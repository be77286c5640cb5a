"""PromptLayer's tracing of the OpenAI Agents SDK: flattened messages, and the provider's response.

The flattened messages lack the instructions of the Responses API and the answers of chat
completions. The response, and the input of chat completions, are there as JSON.
"""

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.dialects import indexed
from otel_lightning.collector.derive.messages import messages, payloads
from otel_lightning.collector.derive.messages.openai_agents_responses import without_made_up_id
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "promptlayer"
RANK = 65
CONVERSATION_KEYS = ("openai_agents.group_id",)
TYPE, SOURCE = "openai_agents.span_type", "promptlayer.telemetry.source"
RESPONSE = "openai_agents.response.raw_json"
SENT, ANSWERED = (f"openai_agents.generation.raw_{side}_json" for side in ("input", "output"))


def matches(span: Span) -> bool:
    """Return whether PromptLayer recorded a step of the OpenAI Agents SDK."""
    return TYPE in span.attributes and SOURCE in span.attributes


def read(span: Span) -> LlmCall | ToolCall | AgentRun | None:
    """Read a span of PromptLayer's; None if it is only structure."""
    attributes, kind = span.attributes, span.attributes[TYPE]
    if kind in {"generation", "response"}:
        return _read_call(span, is_response=kind == "response")
    if kind == "function":
        name = attributes.get("openai_agents.function.name")
        arguments = json_text.parse(attributes.get("openai_agents.function.input"))
        result = attributes.get("openai_agents.function.output")
        return span_rows.tool_call(span, name, arguments=arguments, result=result)
    name = attributes.get("openai_agents.agent.name")
    return span_rows.agent_run(span, "agent", name) if kind == "agent" else None


def _read_call(span: Span, *, is_response: bool) -> LlmCall:
    attributes = span.attributes
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    indexed.FIELDS.fill(call, attributes)
    raw = reading.text(attributes, RESPONSE if is_response else ANSWERED)
    response = without_made_up_id(json_text.parse(raw))
    sent = indexed.flat_input(span)
    if not is_response:
        listed = reading.array(attributes, SENT)
        sent = messages.conversation(listed, span.memory) if listed else sent
    is_whole = payloads.fill_from_response(call, response)
    if is_response:
        call.request_model = None  # the span repeats the responding model
        if isinstance(response, dict):
            system = messages.system_parts(response.get("instructions"))
            sent = messages.with_system(system, sent, span.memory)
            call.tool_definitions = payloads.request_tools(response)
    elif call.response_model == call.request_model:
        call.response_model = None  # the SDK built the response of a stream
    call.input_messages = sent or None
    return span_rows.completed(call, raw, cut=is_response and not is_whole)
