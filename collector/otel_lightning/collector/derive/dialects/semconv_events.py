"""Messages of OpenTelemetry's GenAI conventions that came as span events or log records.

Early conventions send one event per message, or one event with a whole history; early pydantic-ai
lists the events in one attribute.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.rows import Attributes, Log, Span
from otel_lightning.collector.derive.text import json_text, payloads

CHOICE = "gen_ai.choice"
COUNTED = "gen_ai.usage"
"""The event that has Ax's token counts."""
EVENTS = "events"
"""The attribute in which early pydantic-ai lists the events that others send separately."""
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


def records(span: Span) -> Iterator[tuple[str, Any]]:
    """Yield (event name, message) for the messages sent as events or logs, in order."""
    for fields in reading.array(span.attributes, EVENTS) or ():
        if isinstance(fields, dict) and str(fields.get("event.name")) in MESSAGE_EVENTS:
            yield fields["event.name"], _with_role(fields["event.name"], fields)
    for event in span.events:
        if event.name in MESSAGE_EVENTS:
            yield event.name, _event_message(event.name, event.attributes)
        elif event.name in WHOLE_EVENTS:
            name, key = WHOLE_EVENTS[event.name]
            yield from ((name, value) for value in listed(event.attributes.get(key)) or ())
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
    asked = [
        str(call.get("id"))
        for _, said in known
        if isinstance(calls := said.get("tool_calls"), list)
        for call in calls
        if isinstance(call, dict)
    ]
    # Reversed, so that of several tool calls with one id the first counts.
    asks = {call_id: position for position, call_id in reversed(list(enumerate(asked)))}
    ranks = list(MESSAGE_EVENTS)

    def place(record: tuple[Log, dict[str, Any]]) -> tuple[int, ...]:
        log, said = record
        number = said.get("index") if log.event_name == CHOICE else asks.get(str(said.get("id")))
        at = log.time_ns or 0, log.observed_ns or 0, ranks.index(log.event_name or "")
        return (*at, number if isinstance(number, int) else -1)

    yield from ((log.event_name or "", said) for log, said in sorted(known, key=place))


def _event_message(name: str, attributes: Attributes) -> dict[str, Any]:
    whole = json_text.parse(attributes.get("gen_ai.event.content"))
    if isinstance(whole, dict):
        return _with_role(name, whole)
    text = attributes.get("message", attributes.get("content"))
    blocks = json_text.parse(text)
    content = blocks if isinstance(blocks, list) else text
    given = {key: attributes[key] for key in ("id", "finish_reason") if key in attributes}
    return {"role": MESSAGE_EVENTS[name], "content": content, **given}


def _log_message(name: str, log: Log) -> dict[str, Any]:
    """Return a message whose fields are the record's body or, without a body, its attributes."""
    fields = json_text.parse(log.body)
    if not isinstance(fields, dict):
        told = _event_message(name, log.attributes)
        return told if log.body is None else {**told, "content": log.body}
    return _with_role(name, fields)


def _with_role(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    inner = fields.get("message")
    inner = inner if isinstance(inner, dict) else {"content": inner} if inner else {}
    return {**fields, **inner, "role": MESSAGE_EVENTS[name]}


def listed(text: str | None) -> list[Any] | None:
    """Return the messages of an attribute: a JSON list, a single JSON message, or plain text."""
    value = json_text.parse(text)
    if isinstance(value, dict):
        return [value]
    if value is None and text and text[:1] not in "[{":
        return [text]
    return value if isinstance(value, list) and value else None


def logprobs(span: Span) -> list[float] | None:
    """Return the log probabilities that Traceloop for JavaScript writes as a span event."""
    for event in span.events:
        if event.name == "logprobs":
            return payloads.logprobs(reading.array(event.attributes, "logprobs") or [])
    return None
