"""Messages of OpenTelemetry's GenAI conventions that came as span events or log records.

Early conventions send one event per message, or one event with a whole history; early pydantic-ai
lists the events in one attribute.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.messages import payloads
from otel_lightning.collector.derive.rows import Attributes, Log, Span
from otel_lightning.collector.derive.text import json_text

_Record = tuple[Log, dict[str, Any]]
ASSISTANT, TOOL, CHOICE = "gen_ai.assistant.message", "gen_ai.tool.message", "gen_ai.choice"
USAGE_EVENT = "gen_ai.usage"
"""The event that has Ax's token counts."""
EVENTS = "events"
"""The attribute in which early pydantic-ai lists the events that others send separately."""
MESSAGE_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.tool.developer": "system",  # Semantic Kernel's in .NET
    "gen_ai.user.message": "user",
    ASSISTANT: "assistant",
    TOOL: "tool",
    CHOICE: "assistant",
}
_IN_MESSAGES = {
    *("role", "parts", "content", "tool_calls", "message", "type", "kwargs", "data"),
    *("finish_reason", "additional_kwargs"),
}
"""An object that is a message has at least one of these keys."""
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
            # NeMo Guardrails has the text as `content`.
            text = event.attributes.get(key, event.attributes.get("content"))
            yield from ((name, value) for value in listed(text) or ())
    yield from _in_order(
        (log, _log_message(log.event_name or "", log))
        for log in span.logs
        if log.event_name in MESSAGE_EVENTS
    )


def _in_order(records: Iterable[_Record]) -> Iterator[tuple[str, Any]]:
    """Yield the messages of log records in time order, because delivery may have reordered them.

    JavaScript's clock gives many records the same time. Then the order in which they were received
    decides, if a conversation can have it; otherwise that of roles, and among choices their number.
    Tool responses of one time are in the order of the calls that they answer.
    """
    known = sorted(records, key=_time)
    if _is_conversation([(log.event_name or "", message) for log, message in known]):
        known = _in_order_of_calls(known)
    else:
        known = _by_role(known)
    yield from ((log.event_name or "", message) for log, message in known)


def _time(record: _Record) -> tuple[int, ...]:
    return record[0].order


def _is_conversation(found: list[tuple[str, dict[str, Any]]]) -> bool:
    """Return whether messages are in an order that a conversation can have.

    The system speaks first, then the user. Tool calls are answered at once, and choices come last,
    in the order of their numbers.
    """
    last, choice, waiting = "gen_ai.system.message", -1, set[str]()
    for name, message in found:
        if name == CHOICE:
            last, index = name, message.get("index")
            if isinstance(index, int) and index < choice:
                return False
            choice = index if isinstance(index, int) else choice
            continue
        begins = last == "gen_ai.system.message"
        answers = name == TOOL
        allowed = begins or name != "gen_ai.system.message"
        if last == CHOICE or not allowed or (waiting and not answers):
            return False
        if begins and name == ASSISTANT:
            return False
        if answers and str(message.get("id")) not in waiting:
            return False
        waiting.discard(str(message.get("id")))
        if name == ASSISTANT:
            waiting = set(_tool_call_ids(message))
        last = name
    return True


def _tool_call_ids(message: Mapping[str, Any]) -> list[str]:
    """Return the ids of the tool calls in a message."""
    calls = message.get("tool_calls")
    known = calls if isinstance(calls, list) else ()
    return [str(call.get("id")) for call in known if isinstance(call, dict)]


def _in_order_of_calls(known: list[_Record]) -> list[_Record]:
    """Put neighbouring tool responses of one time into the order of the calls that they answer."""
    ordered: list[_Record] = []
    positions: dict[str, int] = {}

    def place(record: _Record) -> tuple[int, ...]:
        return (*_time(record), positions.get(str(record[1].get("id")), -1))

    for name, records_of_name in groupby(known, lambda record: record[0].event_name):
        some = list(records_of_name)
        if name == TOOL:
            some.sort(key=place)
        elif name == ASSISTANT:
            positions = {
                call_id: number for number, call_id in enumerate(_tool_call_ids(some[-1][1]))
            }
        ordered += some
    return ordered


def _by_role(known: list[_Record]) -> list[_Record]:
    asked = [call_id for _, message in known for call_id in _tool_call_ids(message)]
    # Reversed, so that of several tool calls with one id the first counts.
    asks = {call_id: position for position, call_id in reversed(list(enumerate(asked)))}
    ranks = list(MESSAGE_EVENTS)

    def place(record: _Record) -> tuple[int, ...]:
        log, message = record
        number = (
            message.get("index") if log.event_name == CHOICE else asks.get(str(message.get("id")))
        )
        rank = ranks.index(log.event_name or "")
        return (*_time(record), rank, number if isinstance(number, int) else -1)

    return sorted(known, key=place)


def _event_message(name: str, attributes: Attributes) -> dict[str, Any]:
    whole = json_text.parse(attributes.get("gen_ai.event.content"))
    if isinstance(whole, dict):
        return _with_role(name, whole)
    text = attributes.get("message", attributes.get("content"))
    blocks = json_text.parse(text)
    content = blocks if isinstance(blocks, list) else text
    given = {key: attributes[key] for key in ("id", "finish_reason") if key in attributes}
    # LiveKit for Python writes each tool call as a text of its own.
    calls = reading.array(attributes, "tool_calls") or ()
    asked = [json_text.parse(one) if isinstance(one, str) else one for one in calls]
    known = {"tool_calls": asked} if asked else {}
    return {"role": MESSAGE_EVENTS[name], "content": content, **given, **known}


def _log_message(name: str, log: Log) -> dict[str, Any]:
    """Return a message whose fields are the record's body or, without a body, its attributes."""
    fields = json_text.parse(log.body)
    if not isinstance(fields, dict):
        message = _event_message(name, log.attributes)
        return message if log.body is None else {**message, "content": log.body}
    return _with_role(name, fields)


def _with_role(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    inner = fields.get("message")
    inner = inner if isinstance(inner, dict) else {"content": inner} if inner else {}
    message = {**fields, **inner, "role": MESSAGE_EVENTS[name]}
    content = message.get("content")
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        # Google ADK for Go writes Gemini's content, and its answers as messages of the user.
        del message["content"]
        message |= {"parts": content["parts"], "role": content.get("role") or message["role"]}
    return message


def listed(text: str | None) -> list[Any] | None:
    """Return the messages of an attribute: a JSON list, a single JSON message, or plain text.

    Microsoft's Agent 365 puts the list into an object beside the version of its schema.
    """
    value = json_text.parse(text)
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        value = value["messages"]
    if isinstance(value, dict):
        return None if _IN_MESSAGES.isdisjoint(value) else [value]
    if value is None and text and text[:1] not in "[{":
        return [text]
    return value if isinstance(value, list) and value else None


def logprobs(span: Span) -> list[float] | None:
    """Return the log probabilities that Traceloop for JavaScript writes as a span event."""
    for event in span.events:
        if event.name == "logprobs":
            return payloads.logprobs(reading.array(event.attributes, "logprobs") or [])
    return None
