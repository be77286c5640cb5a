"""OpenTelemetry's GenAI conventions, and the packages that follow them.

Traceloop 0.50 and later, the official `genai-*` and contrib packages, JavaScript, pydantic-ai,
agent-framework, Google ADK and Anthropic's own tracer. They differ in where the messages are
(attributes, one details event, one event per message; span event or log record), and in how they
write arguments, finish reasons and system prompts.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Any

from otel_lightning.collector.derive import reading
from otel_lightning.collector.derive.dialects import semconv_tools
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Attributes,
    LlmCall,
    Log,
    Message,
    Retrieval,
    Span,
    ToolCall,
)
from otel_lightning.collector.derive.text import json_text, messages, payloads, repeated
from otel_lightning.collector.derive.text.hosted_tools import ITEM

NAME = "semconv"
RANK = 90
DETAILS = "gen_ai.client.inference.operation.details"
CHOICE = "gen_ai.choice"
EVENTS = "events"
"""The attribute in which early pydantic-ai lists the events that others send separately."""
REQUEST = "gen_ai.request."
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
SENT, OFFERED = "gen_ai.request.messages", "gen_ai.request.available_tools"
SAID, ASKED = "gen_ai.response.text", "gen_ai.response.tool_calls"
"""Sentry's keys: the messages sent, the tools offered, the answer's texts and its tool calls."""
HISTORY_NAMES = ("previous_response_id", "conversation")
"""Parameters that name a history which the provider stores; the first is read under any prefix."""
STREAMED = ("gen_ai.is_streaming", "gen_ai.request.stream")
MESSAGE_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    CHOICE: "assistant",
}
WHOLE_EVENTS = {
    "gen_ai.content.prompt": ("gen_ai.user.message", "gen_ai.prompt"),
    "gen_ai.content.completion": (CHOICE, "gen_ai.completion"),
}
"""Early conventions' events with a whole history: the event of each message, and the attribute."""
OPERATIONS = {
    **dict.fromkeys(("chat", "completion", "acompletion", "responses", "aresponses"), "chat"),
    "llm": "chat",
    **dict.fromkeys(("text_completion", "atext_completion"), "text_completion"),
    **dict.fromkeys(("embeddings", "embedding", "aembedding"), "embeddings"),
    "generate_content": "generate_content",
}
AGENT_KINDS = {
    "invoke_agent": "agent",
    "agent": "agent",
    "invoke_workflow": "workflow",
    "workflow": "workflow",
    "handoff": "handoff",
    "agent_handoff": "handoff",
}
RETRIEVALS = {"retrieval": "retriever", "rerank": "reranker", "reranking": "reranker"}
QUERY, DOCUMENTS = "gen_ai.retrieval.query.text", "gen_ai.retrieval.documents"
USAGE = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
    (
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "gen_ai.usage.reasoning_output_tokens",
        "gen_ai.usage.details.reasoning_tokens",
        "gen_ai.usage.thinking_tokens",
    ),
    (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.details.cache_write_tokens",
    ),
)
"""The spellings of each token count, in the order of `payloads.Usage`."""
NOT_CALLS = {"chain", "create_agent", "execute_task", "execute_event_loop_cycle", "task", "unknown"}
"""Operations whose spans repeat the messages or usage of their child calls, and are no calls."""


def matches(span: Span) -> bool:
    """Tell whether the span names a GenAI operation, or has keys of a model call or a tool."""
    return _operation(span) is not None or _has_call_evidence(span) or _is_tool(span, "")


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read a span that follows the conventions."""
    operation = _operation(span) or ""
    if _is_tool(span, operation):
        return semconv_tools.read(span)
    if operation in AGENT_KINDS:
        kind = AGENT_KINDS[operation]
        to_agent = reading.text(span.attributes, "gen_ai.handoff.to_agent")
        run = reading.agent_run(span, kind, to_agent or _agent_name(span))
        run.tool_definitions = _tool_definitions(_all_attributes(span))
        return run
    if operation in RETRIEVALS:
        return _read_retrieval(span, RETRIEVALS[operation])
    if operation in OPERATIONS or (operation not in NOT_CALLS and _has_call_evidence(span)):
        embeds = not operation and OUTPUT not in span.attributes and "embed" in span.name.lower()
        name = "embeddings" if embeds else OPERATIONS.get(operation, operation or "chat")
        return read_call(span, NAME, name)
    return None


def _read_retrieval(span: Span, kind: str) -> Retrieval:
    found = reading.array(span.attributes, DOCUMENTS)
    return reading.retrieval(span, kind, span.attributes.get(QUERY), found)


def _is_tool(span: Span, operation: str) -> bool:
    if operation in {"execute_tool", "tool"} or "tool.arguments" in span.attributes:
        return True
    return not operation and "gen_ai.tool.call.id" in span.attributes


def _operation(span: Span) -> str | None:
    attributes = span.attributes
    return attributes.get("gen_ai.operation.name") or attributes.get("traceloop.span.kind") or None


def _has_call_evidence(span: Span) -> bool:
    return "gen_ai.response.id" in span.attributes or OUTPUT in span.attributes


def _agent_name(span: Span) -> str | None:
    keys = ("gen_ai.agent.name", "gen_ai.workflow.name", "traceloop.entity.name")
    return reading.text(span.attributes, *keys, "traceloop.workflow.name") or span.name


def read_call(span: Span, dialect: str, operation: str) -> LlmCall:
    """Read a model call that follows the conventions; other dialects then add their own keys."""
    attributes = _all_attributes(span)
    call = reading.llm_call(span, dialect)
    call.operation = operation
    call.provider = reading.provider(attributes, "gen_ai.provider.name", "gen_ai.system")
    call.request_model = _model_asked_for(attributes)
    call.response_model = reading.text(attributes, "gen_ai.response.model", "openai.response.model")
    call.response_id = attributes.get("gen_ai.response.id") or _id_inside(attributes)
    # An item of the Responses API has two ids (fc_… and call_…), and packages write either one.
    call.lost_ids = (call.response_id or "").startswith("resp_")
    call.request_params = _parameters(attributes)
    call.tool_definitions = _tool_definitions(attributes)
    reasons = finish_reasons(attributes)
    call.finish_reason = messages.finish_reason(reasons[0])
    cut = _fill_messages(call, span, attributes, len(reasons))
    if "response" in attributes:
        _fill_whole(call, json_text.parse(attributes["response"]))
    if "gen_ai.tool.call.id" in attributes:
        _name_requests(call, attributes)
    if reading.is_gemini(call):
        _drop_positions(call)
    payloads.fill_usage(call, usage(attributes))
    if raw := reading.text(attributes, "gen_ai.usage.raw", "mirascope.response.usage"):
        payloads.fill_usage(call, payloads.usage(json_text.parse(raw)))
    call.completion_logprobs = call.completion_logprobs or _logprobs(span)
    reading.completed(call, cut=cut)
    # An empty answer that "stopped" may have lost its tool calls: the true reason is unknown.
    if (
        call.finish_reason == "stop"
        and _hides_requests(call)
        and reasons[0] in (None, "stop", "completed")
    ):
        call.finish_reason = None
    return call


def _fill_whole(call: LlmCall, response: Any) -> None:
    """Set the fields of a call from the provider's response, which Logfire keeps as well."""
    if payloads.fill_from_response(call, response):
        call.tool_definitions = call.tool_definitions or payloads.request_tools(response)


def _id_inside(attributes: Attributes) -> str | None:
    """Return the response id from the streamed response that Logfire keeps."""
    told = json_text.parse(attributes.get("response_data"))
    inside = (told, told.get("message")) if isinstance(told, Mapping) else ()
    ids = [one.get("id") for one in inside if isinstance(one, Mapping)]
    return next((one for one in ids if isinstance(one, str) and one), None)


def _model_asked_for(attributes: Attributes) -> str | None:
    """Return the requested model.

    MLflow and ddtrace write the responding model there, and the requested one under their own keys.
    """
    asked = json_text.parse(attributes.get("model")) or attributes.get("openai.request.model")
    return asked if isinstance(asked, str) else attributes.get("gen_ai.request.model") or None


def _name_requests(call: LlmCall, attributes: Attributes) -> None:
    """Replace item ids (fc_…) of tool calls by the ids (call_…) that their responses use.

    OpenLIT writes the item ids of the Responses API into messages, and the others on the span.
    """
    keys = ("gen_ai.tool.name", "gen_ai.tool.call.id")
    names, ids = (attributes.get(key, "").split(",") for key in keys)
    told = dict(zip(map(str.strip, names), map(str.strip, ids), strict=False))
    for message in call.output_messages or ():
        for part in message["parts"]:
            if part["type"] == "tool_call" and str(part["id"]).startswith(ITEM):
                part["id"] = told.get(part["name"], part["id"])


def _drop_positions(call: LlmCall) -> None:
    """Drop tool call ids of the form NAME_POSITION, which packages make up for Gemini.

    They do not identify a call: the id of a tool call and that of its response may differ.
    """
    sent, answered = call.input_messages or [], call.output_messages or []
    names = {part.get("name") for said in (*sent, *answered) for part in said["parts"]}
    for side, keep in ((sent, repeated.one_copy), (answered, dict)):
        for at, said in enumerate(side):
            made_up = [_is_place(part, names) for part in said["parts"]]
            if any(made_up):
                pairs = zip(said["parts"], made_up, strict=True)
                parts = [part | {"id": None} if drop else part for part, drop in pairs]
                side[at] = keep({**said, "parts": parts})


def _is_place(part: dict[str, Any], names: set[str | None]) -> bool:
    name, _, place = str(part.get("id")).rpartition("_")
    return place.isdecimal() and name in names


def _tool_definitions(attributes: Attributes) -> list[Any] | None:
    text = reading.text(attributes, "gen_ai.tool.definitions", OFFERED, "model_request_parameters")
    return _tools(text) if text else None


@lru_cache(maxsize=64)
def _tools(text: str) -> list[Any] | None:
    """Return the tools that a text defines. Cached, as all calls of an agent repeat the same text.

    Returns:
        An empty list if the text states that there are no tools, None if it states nothing.
    """
    definitions = json_text.parse(text)
    if isinstance(definitions, Mapping):
        definitions = definitions.get("function_tools")
    return (reading.flat_tools(definitions) or []) if isinstance(definitions, list) else None


def _hides_requests(call: LlmCall) -> bool:
    """Tell whether the answer is empty: the instrumentation may have dropped its tool calls."""
    outputs = call.output_messages or []
    return call.content == "full" and not any(message["parts"] for message in outputs)


def _all_attributes(span: Span) -> Attributes:
    """Return the span's attributes, merged with those of its details event or log record."""
    if not span.events and not span.logs:
        return span.attributes
    events = [event.attributes for event in span.events if event.name == DETAILS]
    logs = [log.attributes for log in span.logs if log.event_name == DETAILS]
    if not events and not logs:
        return span.attributes
    merged: dict[str, str] = {}
    for attributes in (*logs, *events, span.attributes):
        merged.update(attributes)
    return merged


def _parameters(attributes: Attributes) -> dict[str, Any]:
    given = {}
    for key, name in _parameter_names(tuple(attributes)):
        value = json_text.parse(attributes[key])
        value = attributes[key] if value is None and name in HISTORY_NAMES else value
        if value is not None:
            given[name] = value
    return given


@lru_cache(maxsize=1024)
def _parameter_names(keys: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (key, parameter name) pairs. Cached, because spans of one kind have the same keys."""
    given = set(keys) - {SENT, OFFERED}
    found = [
        (key, key.removeprefix(REQUEST)) for key in keys if key.startswith(REQUEST) and key in given
    ]
    ends = ((key, key.rpartition(".")[2]) for key in keys)
    return [*found, *((key, name) for key, name in ends if name == HISTORY_NAMES[0])]


def finish_reasons(attributes: Attributes) -> list[Any]:
    """Return the reported finish reasons, one per choice."""
    listed = reading.array(attributes, "gen_ai.response.finish_reasons") or []
    # `in_progress` belongs to a chunk of a stream, not to a choice.
    listed = [reason for reason in listed if reason != "in_progress"]
    single = ("gen_ai.response.finish_reason", "anthropic.message.stop_reason")
    return listed or [reading.text(attributes, *single)]


def usage(attributes: Attributes) -> payloads.Usage:
    """Return the token counts under the conventions' keys, including early spellings."""
    return payloads.Usage(*(reading.integer(attributes, *keys) for keys in USAGE))


def _logprobs(span: Span) -> list[float] | None:
    """Return the log probabilities that Traceloop for JavaScript writes as a span event."""
    for event in span.events:
        if event.name == "logprobs":
            return payloads.logprobs(reading.array(event.attributes, "logprobs") or [])
    return None


def _fill_messages(call: LlmCall, span: Span, attributes: Attributes, reasons: int) -> bool:
    """Set the messages; return whether a text was truncated or a stream abandoned."""
    sent, answered = reading.text(attributes, INPUT, SENT), attributes.get(OUTPUT)
    system = attributes.get(SYSTEM)
    # Laminar writes the system prompt in the older, flattened layout only.
    if attributes.get("gen_ai.prompt.0.role") == "system":
        system = system or attributes.get("gen_ai.prompt.0.content")
    turns = None if EVENTS in attributes else messages.continued(sent)
    history, outputs = turns or _listed(sent), _listed(answered)
    listed = history
    cut_input = history is None and json_text.is_cut(sent)
    cut_output = outputs is None and json_text.is_cut(answered)
    told = span.events or span.logs or EVENTS in attributes
    records = list(_message_records(span)) if told else []
    if history is None and not cut_input:
        history = [message for name, message in records if name != CHOICE]
    if outputs is None and not cut_output:
        outputs = _said(attributes) or [message for name, message in records if name == CHOICE]
    if not outputs and EVENTS in attributes:
        history, outputs = _without_answer(history or [])
    if turns is None:
        turns = _turns(sent, history or [], is_text=history is listed)
    call.input_messages = messages.with_system(messages.system_parts(system), turns) or None
    call.output_messages = _choices(outputs or [], reasons) or None
    cut = cut_input or cut_output or json_text.is_cut(system)
    return cut or _is_abandoned(attributes, outputs or [])


def _turns(text: str | None, history: list[Any], *, is_text: bool) -> list[Message]:
    """Return the messages of a history, and keep those that a text holds as they are."""
    turns = messages.conversation(_sent_items(history))
    if is_text and text and len(history) > 1:
        messages.keep(text, [*turns])
    return turns


def _said(attributes: Attributes) -> list[Any]:
    """Return the choices of an answer that has its texts under one key and tool calls in another.

    Sentry writes this form. The tool calls belong to the first choice.
    """
    text, items = attributes.get(SAID), reading.array(attributes, ASKED) or []
    texts = reading.array(attributes, SAID) or [text]
    said = [{"role": "assistant", "content": one or None} for one in texts]
    calls = [item for item in items if isinstance(item, dict) and item.get("type") != "message"]
    return [{**said[0], "tool_calls": calls}, *said[1:]] if text or calls else []


def _without_answer(history: list[Any]) -> tuple[list[Any], list[Any]]:
    """Split off the final assistant messages, in which Logfire writes the answer."""
    told = [isinstance(one, Mapping) and one.get("role") == "assistant" for one in history]
    end = len(history) - len(list(takewhile(bool, reversed(told))))
    return history[:end], history[end:]


def _listed(text: str | None) -> list[Any] | None:
    """Return the messages of an attribute: a JSON list, a single JSON message, or plain text."""
    value = json_text.parse(text)
    if isinstance(value, Mapping):
        return [value]
    if value is None and text and text[:1] not in "[{":
        return [text]
    return value if isinstance(value, list) and value else None


def _is_abandoned(attributes: Attributes, outputs: list[Any]) -> bool:
    """Tell whether a stream was abandoned before its end: then its finish reason is empty text."""
    if "true" not in [attributes.get(key) for key in STREAMED]:
        return False
    return "" in [output.get("finish_reason") for output in outputs if isinstance(output, Mapping)]


def _sent_items(history: list[Any]) -> list[Any]:
    """Return the items of a Responses request; Traceloop for JavaScript writes them as one text."""
    if len(history) != 1:
        return history
    try:
        (part,) = history[0]["parts"]
        items = json_text.parse(part["content"]) if part["content"].startswith("[") else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return history
    known = isinstance(items, list) and all(
        isinstance(item, dict) and ("role" in item or "call_id" in item) for item in items
    )
    return items if known and items else history


def _choices(outputs: list[Any], reasons: int) -> list[Message]:
    """Return one message per choice; messages that share one finish reason are one turn."""
    if reasons < len(outputs) and not _numbered(outputs):
        return messages.one_turn(outputs)
    return [turn for output in outputs for turn in messages.one_turn([output])]


def _numbered(outputs: list[Any]) -> bool:
    return all(isinstance(output, Mapping) and "index" in output for output in outputs)


def _message_records(span: Span) -> Iterator[tuple[str, Any]]:
    """Yield (event name, message) for the messages sent as events or logs, in order."""
    for fields in reading.array(span.attributes, EVENTS) or ():
        if isinstance(fields, Mapping) and fields.get("event.name") in MESSAGE_EVENTS:
            yield fields["event.name"], _told(fields["event.name"], fields)
    for event in span.events:
        if event.name in MESSAGE_EVENTS:
            yield event.name, _event_message(event.name, event.attributes)
        elif event.name in WHOLE_EVENTS:
            name, key = WHOLE_EVENTS[event.name]
            yield from ((name, value) for value in _listed(event.attributes.get(key)) or ())
    yield from _in_order(
        (log, _log_message(log.event_name or "", log))
        for log in span.logs
        if log.event_name in MESSAGE_EVENTS
    )


def _in_order(records: Iterable[tuple[Log, dict[str, Any]]]) -> Iterator[tuple[str, Any]]:
    """Yield the messages of log records in time order, because delivery may have reordered them.

    JavaScript's clock gives many records the same time. Then the order of roles decides, and among
    tool responses and choices their number. Records that are still equal (two turns of one user
    within a millisecond) keep the order in which they were received.
    """
    known = list(records)
    asked = [call.get("id") for _, said in known for call in said.get("tool_calls") or []]
    asks = {call_id: position for position, call_id in reversed(list(enumerate(asked)))}
    ranks = list(MESSAGE_EVENTS)

    def place(record: tuple[Log, dict[str, Any]]) -> tuple[int, ...]:
        log, said = record
        number = said.get("index") if log.event_name == CHOICE else asks.get(said.get("id"))
        at = log.time_ns or 0, log.observed_ns or 0, ranks.index(log.event_name or "")
        return (*at, number if isinstance(number, int) else -1)

    yield from ((log.event_name or "", said) for log, said in sorted(known, key=place))


def _event_message(name: str, attributes: Attributes) -> dict[str, Any]:
    whole = json_text.parse(attributes.get("gen_ai.event.content"))
    if isinstance(whole, Mapping):
        return _told(name, whole)
    text = attributes.get("message", attributes.get("content"))
    blocks = json_text.parse(text)
    content = blocks if isinstance(blocks, list) else text
    given = {key: attributes[key] for key in ("id", "finish_reason") if key in attributes}
    return {"role": MESSAGE_EVENTS[name], "content": content, **given}


def _log_message(name: str, log: Log) -> dict[str, Any]:
    """Return a message whose fields are the record's body or, without a body, its attributes."""
    fields = json_text.parse(log.body)
    if not isinstance(fields, Mapping):
        told = _event_message(name, log.attributes)
        return told if log.body is None else {**told, "content": log.body}
    return _told(name, fields)


def _told(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    inner = fields.get("message")
    inner = inner if isinstance(inner, Mapping) else {"content": inner} if inner else {}
    return {**fields, **inner, "role": MESSAGE_EVENTS[name]}
