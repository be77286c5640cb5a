"""Divide what one export sends, so that no request is larger than receivers accept.

OpenTelemetry limits a batch by the number of its records. After a pause of the collector, hundreds
of calls with long messages are in one batch. The exporter drops a request above 64 MiB as a whole,
and so do receivers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

LARGEST: Final = 16 * 1024 * 1024
"""Characters in one request. UTF-8 takes up to four bytes for one, so 64 MiB are hardly reached."""


def divided(records: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Divide a batch into parts of at most `LARGEST` characters, in order.

    Args:
        records: Spans or log records of the SDK. One that is larger is a part of its own.
    """
    begin = size = 0
    for place, record in enumerate(records):
        more = _characters(record)
        if size + more > LARGEST and place > begin:
            yield records[begin:place]
            begin, size = place, 0
        size += more
    yield records[begin:]


def _characters(record: Any) -> int:
    # A log record is in an envelope, together with its resource.
    held = getattr(record, "log_record", record)
    events = getattr(held, "events", ())
    attributes = [getattr(holder, "attributes", None) for holder in (held, *events)]
    return _length(getattr(held, "body", None)) + sum(map(_length, attributes))


def _length(value: Any) -> int:
    """Count the characters of all texts in a value."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_length, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_length, value))
    return 0
