"""Model calls under the keys of the conventions, their early spellings and those of packages."""

from functools import lru_cache
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.attributes.compiled_fields import Field, Fields, text
from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of, values_of
from otel_lightning.collector.derive.dialects.semconv import (
    call_messages,
    counts,
    lost_tool_calls,
    redacted,
    tools,
)
from otel_lightning.collector.derive.dialects.semconv.call_messages import SENTRY_TOOLS
from otel_lightning.collector.derive.dialects.semconv.events import USAGE_EVENT, logprobs
from otel_lightning.collector.derive.dialects.semconv.settings import Settings, is_setting
from otel_lightning.collector.derive.histories import lost_arguments
from otel_lightning.collector.derive.messages import payloads, token_counts, tool_values
from otel_lightning.collector.derive.messages.openai_agents_responses import without_made_up_id
from otel_lightning.collector.derive.passes.inputs import lost_items
from otel_lightning.collector.derive.rows import Attributes, LlmCall, Span
from otel_lightning.collector.derive.text import json_text

DETAILS = "gen_ai.client.inference.operation.details"
OPERATIONS = {
    **dict.fromkeys(("chat", "completion", "acompletion", "responses", "aresponses"), "chat"),
    **dict.fromkeys(("llm", "anthropic_messages"), "chat"),  # the second is LiteLLM's
    **dict.fromkeys(("text_completion", "atext_completion", "textcompletion"), "text_completion"),
    "text_completions": "text_completion",  # Semantic Kernel's
    **dict.fromkeys(("embeddings", "embedding", "aembedding"), "embeddings"),
    **dict.fromkeys(("generate_content", "generatecontent"), "generate_content"),
    # Rig's.
    "chat_streaming": "chat",
    **dict.fromkeys(("interactions", "interactions_streaming"), "generate_content"),
}
NAMED = "spring.ai.model.request.tool.names"
TOOLS = ("gen_ai.tool.definitions", SENTRY_TOOLS, "model_request_parameters", "tools", NAMED)
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
"""Key of the time until a streamed answer began."""
MOST_SETTINGS = 64
"""Maximum number of different settings that are kept per shape."""
LAST_PIECES = {"opentelemetry.instrumentation.google_generativeai"}
"""The scopes of packages that keep only the last piece of a streamed answer, and do not say which
answers were streamed."""
LOSE_ARGUMENTS = {"@traceloop/instrumentation-anthropic", "opentelemetry.instrumentation.bedrock"}
"""The scopes of packages that lose the arguments of tool calls in streams of Anthropic's models."""
LOGFIRES_STREAMS = "streaming response from "
"""Prefix of the messages in which Logfire records the ends of streams."""
SCRUBBED = "logfire.scrubbed"
"""Logfire's key of the places of the values that it replaced, which seemed to be secrets."""
OF_MESSAGES = {
    *("raw_input", "events", "request_data", "response_data", "response", "all_messages_events"),
    *("gen_ai.input.messages", call_messages.OUTPUT, "gen_ai.system_instructions"),
}
"""Logfire's keys of messages."""
OPENLIT = {lost_items.SCOPE, lost_items.IN_JAVASCRIPT}
"""The scopes of OpenLIT for OpenAI, which loses items of the Responses API."""
LOSE_TEXTS = {"opentelemetry.instrumentation.botocore.bedrock-runtime"}
"""The scopes of packages that leave out the text of an answer that has tool calls."""
LOSSY = {*LAST_PIECES, *LOSE_ARGUMENTS, *OPENLIT, *LOSE_TEXTS, lost_tool_calls.SCOPE}
"""The scopes of all packages that lose parts of answers without a sign of it."""


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


class _Plan:
    """How to read the model calls of a shape: decided once, by its keys."""

    __slots__ = (
        "_keys",
        "_known",
        "_values",
        "fill",
        "fill_counts",
        "has_id_inside",
        "has_total",
        "is_named",
        "may_say_cut",
        "messages",
    )

    def __init__(self, shape: Shape) -> None:
        known = shape.known
        self._keys = tuple(filter(is_setting, shape.keys))
        self._values = values_of(self._keys)
        self._known: dict[tuple[str, ...], Settings] = {}
        self.fill = FIELDS.filler(shape)
        is_whole = not known.isdisjoint(("response", *counts.RAW_USAGE))
        self.fill_counts = _fill_whole if is_whole else counts.COUNTS.filler(shape)
        self.messages = call_messages.Plan(shape)
        self.has_id_inside = "response_data" in known
        self.is_named = "gen_ai.tool.call.id" in known
        self.has_total = not known.isdisjoint(counts.TOTALS)
        self.may_say_cut = FIRST_CHUNK in known or SCRUBBED in known

    def settings(self, attributes: Attributes) -> Settings:
        """Return the settings of a call; those that calls repeat are read once."""
        values = self._values(attributes)
        found = self._known.get(values)
        if found is None:
            if len(self._known) >= MOST_SETTINGS:
                self._known.clear()
            # From these attributes alone, so the others cannot change what is kept.
            found = Settings(dict(zip(self._keys, values, strict=True)))
            self._known[values] = found
        return found


def read_call(span: Span, dialect: str, operation: str) -> LlmCall:
    """Read a model call that follows the conventions; other dialects then add their own keys."""
    span = redacted.removed(span)
    attributes = all_attributes(span)
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
    call.is_broken_off = call.is_broken_off or _is_left(call, span, attributes)
    if mark := tools.CUT_MARKS.get(span.scope_name or ""):
        cut = tools.drop_mark(call, mark, span.memory) or cut
    plan.fill_counts(call, attributes)
    if plan.has_total:
        span_rows.count_hidden(call, reading.integer(attributes, *counts.TOTALS))
    counts.correct(call, span)
    if plan.is_named:
        tools.name_requests(call, attributes)
    if span_rows.is_gemini(call):
        tools.read_as_gemini(call, span.memory)
    if span.events:
        _fill_from_events(call, span)
    if plan.may_say_cut:
        cut = cut or _says_cut(call, attributes)
    lost = span.scope_name in LOSSY and _note_losses(call, span, attributes)
    call = span_rows.completed(call, cut=cut or lost)
    if lost and _may_have_asked(call):
        call.finish_reason = None
    return span_rows.without_doubtful_reason(call, settings.reasons[0])


def _fill_from_events(call: LlmCall, span: Span) -> None:
    """Set log probabilities and token counts that packages write as span events."""
    call.completion_logprobs = call.completion_logprobs or logprobs(span)
    for event in span.events:
        if event.name == USAGE_EVENT:
            token_counts.fill_usage(call, counts.usage(event.attributes))


def _fill_whole(call: LlmCall, attributes: Attributes) -> None:
    """Set the fields of a call also from the provider's response or usage, which Logfire keeps."""
    response = without_made_up_id(json_text.parse(attributes.get("response")))
    if payloads.fill_from_response(call, response):
        call.tool_definitions = call.tool_definitions or payloads.request_tools(response)
    token_counts.fill_usage(call, counts.usage(attributes))
    if raw := reading.text(attributes, *counts.RAW_USAGE):
        token_counts.fill_usage(call, token_counts.usage(json_text.parse(raw)))


def _id_inside(attributes: Attributes) -> str | None:
    """Return the response id from the streamed response that Logfire keeps."""
    response = json_text.parse(attributes.get("response_data"))
    inside = (response, response.get("message")) if isinstance(response, dict) else ()
    ids = [one.get("id") for one in inside if isinstance(one, dict)]
    return next((one for one in ids if isinstance(one, str) and one), None)


def _named_model(span: Span) -> str | None:
    """Return the model in the name of a span whose first attributes are lost: `chat gpt-5`.

    OpenTelemetry's composite samplers, which Elastic's distribution has by default, drop the
    attributes that a span starts with: the operation and all that was asked for.
    """
    operation, _, model = span.name.partition(" ")
    is_named = operation in OPERATIONS and "gen_ai.operation.name" not in span.attributes
    return model if is_named and model and " " not in model else None


def tool_definitions(attributes: Attributes) -> list[Any] | None:
    """Return the tools that a span offers to the model, under any of their keys."""
    return offered(*filter(None, map(attributes.get, TOOLS)))


def _is_left(call: LlmCall, span: Span, attributes: Attributes) -> bool:
    """Return whether a span is Logfire's record of a stream that did not end.

    Logfire gives the end of a stream as a finish reason, and writes none if the stream broke off or
    the client left it. Early versions wrote no reason of tool calls either.
    """
    if not span_rows.is_logfires(span) or call_messages.REASONS in attributes:
        return False
    is_of_stream = attributes.get("logfire.msg_template", "").startswith(LOGFIRES_STREAMS)
    is_stated = any("finish_reason" in message for message in call.output_messages or ())
    is_ended = is_stated or call_messages.is_counted(attributes)
    return is_of_stream and call_messages.OUTPUT in attributes and not is_ended


def _says_cut(call: LlmCall, attributes: Attributes) -> bool:
    """Return whether a key of the span tells that a part of the messages is lost.

    Where no message is there, content was not recorded, and none of it is lost.
    """
    began = FIRST_CHUNK in attributes and call.error_type is not None
    is_lost = began and bool(call.input_messages) and not call.output_messages
    return is_lost or (SCRUBBED in attributes and _is_scrubbed(attributes))


def _note_losses(call: LlmCall, span: Span, attributes: Attributes) -> bool:
    """Note what a package loses without a sign of it in the span.

    Returns:
        Whether a part of the messages is lost.
    """
    scope_name = span.scope_name
    if scope_name == lost_tool_calls.SCOPE:
        return lost_tool_calls.settle(call, span.memory)
    if scope_name in LOSE_ARGUMENTS:
        lost_arguments.forget(call)
    call.lost_arguments = call.lost_arguments or scope_name in LOSE_TEXTS
    if scope_name in LAST_PIECES:
        return _has_text(call)
    return scope_name in OPENLIT and _lost_items(call, scope_name, attributes)


def _may_have_asked(call: LlmCall) -> bool:
    """Return whether an answer that ends with `stop` may have asked for tools.

    OpenLIT for JavaScript leaves out tool calls; an answer that had some ends with `completed`, as
    any other.
    """
    in_javascript = call.scope_name == lost_items.IN_JAVASCRIPT
    return in_javascript and call.finish_reason == "stop" and bool(call.tool_definitions)


def _is_scrubbed(attributes: Attributes) -> bool:
    """Return whether Logfire replaced a part of the messages.

    By default it does so with each text that has a word such as `password` or `session`.
    """
    places = json_text.parse(attributes[SCRUBBED])
    listed = places if isinstance(places, list) else ()
    paths = [one.get("path") for one in listed if isinstance(one, dict)]
    return any(
        OF_MESSAGES & {str(step) for step in path[:2]} for path in paths if isinstance(path, list)
    )


def _has_text(call: LlmCall) -> bool:
    parts = (part for message in call.output_messages or () for part in message["parts"])
    return any(part["type"] == "text" for part in parts)


def _lost_items(call: LlmCall, scope_name: str | None, attributes: Attributes) -> bool:
    """Return whether a response lacks tool calls, or its request what the user said.

    Of an answer that is not streamed, OpenLIT writes only the last one of parallel tool calls. A
    request may have nothing but results of tools, which it leaves out.
    """
    if attributes.get("openai.api.type") != "responses":
        return False
    if scope_name == lost_items.IN_JAVASCRIPT:
        return call.error_type is None and lost_items.may_lack_turns(call)
    asked = "user" in [message["role"] for message in call.input_messages or ()]
    is_streamed = attributes.get("gen_ai.request.stream") == "true"
    return not asked or (not is_streamed and span_rows.asks_for_tools(call))


def all_attributes(span: Span) -> Attributes:
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
