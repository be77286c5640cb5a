"""Feedback over HTTP: turn JSON judgements into OpenTelemetry's log records for evaluations.

As log records they go through the spool, the table `logs` and each derivation like other records.
An invalid item is refused alone; the other items of the request are stored.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from otel_lightning.collector.otlp.json_encoding import shown
from otel_lightning.instrumentation import attributes as names

SCOPE = "lightning-ingest /v1/feedback"
ATTRIBUTES = {
    "id": names.FEEDBACK_ID,
    "name": names.EVALUATION_NAME,
    "value": names.EVALUATION_SCORE_VALUE,
    "label": names.EVALUATION_SCORE_LABEL,
    "explanation": names.EVALUATION_EXPLANATION,
    "rollout_id": names.ROLLOUT_ID,
    "response_id": names.RESPONSE_ID,
    "task_id": names.TASK_ID,
}
JUDGED = ("rollout_id", "trace_id", "response_id")

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """An item that is not stored: its index in the request, its id if it has one, and why."""

    index: int
    id: str | None
    reason: str


class Feedback(NamedTuple):
    """A parsed body: the request to store, the number of its items, and the refused items."""

    request: ExportLogsServiceRequest
    stored: int
    refused: list[Refused]

    def answer(self) -> dict[str, Any]:
        """Return the JSON answer: the number of stored items, and the refused ones."""
        return {"stored": self.stored, "rejected": [asdict(one) for one in self.refused]}


def read_feedback(body: bytes, now_ns: int) -> Feedback:
    """Read one judgement or a list of them.

    Args:
        body: JSON.
        now_ns: Time of receipt, Unix nanoseconds. If two judgements have the same id, the one
            received later replaces the other.

    Raises:
        ValueError: If it is neither an object nor a list in JSON.
    """
    try:
        data = json.loads(body)  # accepts NaN, so that only the item with it is refused
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(data, dict | list):
        raise ValueError("expected a JSON object or an array of them")  # noqa: TRY004
    records, refused = [], []
    for index, item in enumerate(data if isinstance(data, list) else [data]):
        try:
            # Adding the index keeps the order of items that arrive in one request.
            records.append(judgement_record(item, now_ns + index))
        except ValueError as error:
            refused.append(Refused(index, _known_id(item), str(error)))
    return Feedback(as_request(records), len(records), refused)


def as_request(records: Iterable[LogRecord]) -> ExportLogsServiceRequest:
    """Build the request that stores these judgements."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    scope.scope.name = SCOPE
    scope.log_records.extend(records)
    return request


def judgement_record(item: Any, now_ns: int) -> LogRecord:
    """Convert one judgement to a log record.

    Args:
        item: The judgement, as parsed from JSON.
        now_ns: Time of receipt, Unix nanoseconds.

    Raises:
        ValueError: If a field is missing, unknown or invalid; the message says which.
    """
    if not isinstance(item, dict):
        raise ValueError(f"expected a JSON object, got {shown(item)}")  # noqa: TRY004
    unknown = item.keys() - READERS.keys()
    if unknown:
        raise ValueError(f"unknown field {shown(min(unknown))}. Known: {', '.join(READERS)}.")
    fields = {name: value for name, value in item.items() if value not in (None, "")}
    values = {name: READERS[name](name, value) for name, value in fields.items()}
    _check(values)
    record = LogRecord(
        event_name=names.EVALUATION_RESULT,
        observed_time_unix_nano=now_ns,
        time_unix_nano=values.get("time", 0),
        trace_id=values.get("trace_id", b""),
        span_id=values.get("span_id", b""),
    )
    for name, key in ATTRIBUTES.items():
        if name in values:
            kind = "double_value" if name == "value" else "string_value"
            record.attributes.add(key=key, value=AnyValue(**{kind: values[name]}))
    return record


def _check(values: Item) -> None:
    if "id" not in values:
        raise ValueError(
            "id is missing: give a text that no other judgement has, so that sending again is safe."
        )
    if "value" not in values and "label" not in values:
        raise ValueError("value and label are missing: give one of them.")
    if "span_id" in values and "trace_id" not in values:
        raise ValueError("span_id needs its trace_id.")
    if not values.keys() & set(JUDGED):
        raise ValueError(f"it does not name the judged object: give one of {', '.join(JUDGED)}.")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {shown(value)}.")  # noqa: TRY004
    # JSON can contain half of a surrogate pair, which UTF-8, and so protobuf, cannot.
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"{name} is not valid Unicode.")
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {shown(value)}.")  # noqa: TRY004
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {shown(value)}.")
    return number


def _hex(digits: int) -> Callable[[str, Any], bytes]:
    def read(name: str, value: Any) -> bytes:
        if not isinstance(value, str) or not re.fullmatch(rf"[0-9a-fA-F]{{{digits}}}", value):
            raise ValueError(f"{name} must be {digits} hex digits, got {shown(value)}.")
        if not int(value, 16):
            raise ValueError(f"{name} must not be all zero.")
        return bytes.fromhex(value)

    return read


def _time(name: str, value: Any) -> int:
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError("no time zone")  # noqa: TRY301  answered like every other fault
        # Python's times have microseconds; rounding removes the error of the float.
        nanoseconds = round(moment.timestamp() * 1e6) * 1000
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must be ISO 8601 with a zone, such as 2026-11-20T17:00:00Z, "
            f"got {shown(value)}."
        ) from error
    if not 0 < nanoseconds < 1 << 63:
        raise ValueError(f"{name} must lie between the years 1970 and 2262, got {shown(value)}.")
    return nanoseconds


def _known_id(item: Any) -> str | None:
    own_id = item.get("id") if isinstance(item, dict) else None
    return own_id if isinstance(own_id, str) else None


READERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(ATTRIBUTES, _text),
    "value": _number,
    "trace_id": _hex(32),
    "span_id": _hex(16),
    "time": _time,
}
