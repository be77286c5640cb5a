"""The items that the formats of other trace stores yield: spans as OTLP/JSON, judgements, gaps.

The functions build OTLP/JSON from plain Python values.
"""

import math
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

import orjson

Json = Mapping[str, Any]
INTERNAL = 1  # SPAN_KIND_INTERNAL
OK, ERROR = 1, 2  # STATUS_CODE_OK, STATUS_CODE_ERROR
KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
CODES = ("UNSET", "OK", "ERROR")
TRACE_BYTES, SPAN_BYTES = 16, 8
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
INT64 = 1 << 63
BEYOND_MICROSECONDS = re.compile(r"\.\d{6}(\d{1,3})")


class ExportedSpan(NamedTuple):
    """A span as OTLP/JSON, with the attributes of its resource and the name of its scope."""

    span: Json
    resource: Json
    scope: str


class ExportedLog(NamedTuple):
    """A log record as OTLP/JSON, with the attributes of its resource and the name of its scope."""

    log: Json
    resource: Json
    scope: str


class ExportedJudgement(NamedTuple):
    """A judgement with the fields of `/v1/feedback`, and when it was made or changed last.

    `span_id` without `trace_id` names a span that has to be looked up in the store.
    """

    item: Json
    time_ns: int


class LeftOut(NamedTuple):
    """A record that cannot be stored; `reason` names it and says why."""

    reason: str


Exported = ExportedSpan | ExportedLog | ExportedJudgement | LeftOut


def span(  # noqa: PLR0913  the fields of a span
    *,
    trace_id: str,
    span_id: str,
    name: str,
    start_ns: int,
    end_ns: int | None,
    attributes: Json,
    parent_id: str | None = None,
    status: int = 0,
    message: str | None = None,
    events: Iterable[Json] = (),
    links: Iterable[Json] = (),
    trace_state: str | None = None,
    kind: int = INTERNAL,
) -> Json:
    """Build one span. Without an end, it ends when it starts."""
    return {
        "traceId": trace_id,
        "spanId": span_id,
        "parentSpanId": parent_id or "",
        "name": name,
        "kind": kind,
        "startTimeUnixNano": start_ns,
        "endTimeUnixNano": start_ns if end_ns is None else end_ns,
        "attributes": key_values(attributes),
        "events": list(events),
        "links": list(links),
        "traceState": trace_state or "",
        "status": {"code": status, "message": message or ""},
    }


def log(  # noqa: PLR0913  the fields of a log record
    *,
    time_ns: int,
    attributes: Json,
    trace_id: str | None = None,
    span_id: str | None = None,
    event_name: str | None = None,
    severity: str | None = None,
    severity_number: int = 0,
    body: Any = None,
    flags: int = 0,
) -> Json:
    """Build one log record."""
    return {
        "timeUnixNano": time_ns,
        "traceId": trace_id or "",
        "spanId": span_id or "",
        "eventName": event_name or "",
        "severityText": severity or "",
        "severityNumber": severity_number,
        "body": _any_value(body),
        "attributes": key_values(attributes),
        "flags": flags,
    }


def kind_number(value: Any) -> int:
    """Return the number of a span kind that is written as `SPAN_KIND_CLIENT`, `Client` or 3.

    Raises:
        ValueError: If there is no such kind.
    """
    return _enum(value, "SPAN_KIND_", KINDS)


def status_number(value: Any) -> int:
    """Return the number of a status that is written as `STATUS_CODE_ERROR`, `Error` or 2.

    Raises:
        ValueError: If there is no such status.
    """
    return _enum(value, "STATUS_CODE_", CODES)


def _enum(value: Any, prefix: str, names: tuple[str, ...]) -> int:
    if not isinstance(value, str):
        return value or 0
    name = value.upper().removeprefix(prefix)
    if name and name not in names:
        raise ValueError(f"'{value}' is none of {', '.join(names)}")
    return names.index(name) if name else 0


def event(name: str, time_ns: int, attributes: Json) -> Json:
    """Build one event of a span."""
    return {"name": name, "timeUnixNano": time_ns, "attributes": key_values(attributes)}


def key_values(attributes: Json) -> list[Json]:
    """Build a list of attributes; those without a value are left out."""
    return [
        {"key": key, "value": _any_value(value)}
        for key, value in attributes.items()
        if value is not None
    ]


def _any_value(value: Any) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -INT64 <= value < INT64:
        return {"intValue": value}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else str(value)}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_any_value(one) for one in value]}}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": key_values(value)}}
    return {} if value is None else {"stringValue": str(value)}


def json_text(value: Any) -> str | None:
    """Return a text as it is, and any other value as JSON; None if there is no value."""
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def nanoseconds(time: str) -> int:
    """Convert ISO 8601 to Unix nanoseconds; a time without a zone is in UTC.

    Raises:
        ValueError: If it is not ISO 8601.

    Example:
        >>> nanoseconds("1970-01-01 00:00:01.000000123")
        1000000123
    """
    moment = datetime.fromisoformat(time)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # Python's times end at microseconds, and the digits behind them are not rounded.
    beyond = BEYOND_MICROSECONDS.search(time)
    return (moment - EPOCH) // MICROSECOND * 1000 + int(f"{beyond[1]:0<3}" if beyond else 0)


def trace_id(text: str) -> str:
    """Return a trace id of 32 hex digits: the id itself, the digits of a UUID, or else a hash.

    The hash is the one of Langfuse's `create_trace_id(seed=…)`.
    """
    return _hex(text, TRACE_BYTES) or _uuid(text) or _hash(text, TRACE_BYTES)


def span_id(text: str) -> str:
    """Return a span id of 16 hex digits: the id itself, the end of a UUID, or else a hash.

    The first half of a UUID of version 7 is a time, which several spans can share.
    """
    return _hex(text, SPAN_BYTES) or _uuid(text)[-2 * SPAN_BYTES :] or _hash(text, SPAN_BYTES)


def _hex(text: str, size: int) -> str:
    """Return an id in hex that is written in hex or, by MLflow, base64; '' if it is neither."""
    if re.fullmatch(rf"[0-9a-fA-F]{{{2 * size}}}", text):
        return text.lower()
    try:
        decoded = b64decode(text, validate=True)
    except ValueError:
        return ""
    return decoded.hex() if len(decoded) == size else ""


def _uuid(text: str) -> str:
    try:
        return UUID(text).hex
    except ValueError:
        return ""


def _hash(text: str, size: int) -> str:
    return sha256(text.encode()).digest()[:size].hex()
