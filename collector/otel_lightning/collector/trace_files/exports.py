"""Records of other trace stores, put together into requests of OTLP."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from otel_lightning.collector.trace_files.formats import FORMATS
from otel_lightning.collector.trace_files.otlp_requests import (
    Contents,
    PlacedRecord,
    from_records,
    placed,
)
from otel_lightning.collector.trace_files.records import (
    Exported,
    ExportedJudgement,
    ExportedLog,
    ExportedSpan,
    LeftOut,
)

RECORDS_AT_ONCE = 1_000
"""Most spans, or log records, of another store in one request."""
REQUEST_BYTES = 16_000_000
"""A request with several of these records is at most this large: a running ingester refuses
requests above its `--max-body`."""
SHOWN_COLUMNS, SHOWN_LETTERS = 12, 30
"""How much of the names of an unknown table's columns an error message shows."""

Item = Contents | ExportedJudgement | LeftOut
"""An item of a file: to be stored, or the reason why it cannot be stored."""


class Row(NamedTuple):
    """A record, and where it stands, for error messages."""

    where: str
    record: Any
    is_of_table: bool = False


def read_rows(rows: Iterable[Row | Contents]) -> Iterator[Item]:
    """Yield what records hold; requests as they are.

    Neighbouring spans, and neighbouring log records, are put together into requests.

    Raises:
        ValueError: If a record is of no known store or is invalid; the message says which.
    """
    waiting, size = list[PlacedRecord](), 0
    for row in rows:
        if isinstance(row, Contents):
            yield row
            continue
        for one in _exported(row):
            if not isinstance(one, ExportedSpan | ExportedLog):
                yield one
                continue
            record = placed(row.where, one)
            if waiting and not _fits(record, waiting, size):
                yield from_records(waiting)
                waiting, size = [], 0
            waiting.append(record)
            size += len(record.body)
    if waiting:
        yield from_records(waiting)


def _fits(record: PlacedRecord, waiting: Sequence[PlacedRecord], size: int) -> bool:
    """Return whether a record may be in one request with others, which have `size` bytes."""
    is_of_kind = type(record.exported) is type(waiting[0].exported)
    is_small = size + len(record.body) <= REQUEST_BYTES
    return is_of_kind and is_small and len(waiting) < RECORDS_AT_ONCE


def _exported(row: Row) -> list[Exported]:
    where, record, _ = row
    format_ = next((f for f in FORMATS if isinstance(record, dict) and f.matches(record)), None)
    if format_ is None:
        raise ValueError(_unknown(row))
    try:
        return list(format_.read(record))
    except KeyError as error:
        raise ValueError(f"{where}: a record of {format_.NAME} lacks {error}.") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{where}: a record of {format_.NAME} cannot be read ({error})."
        ) from error


def _unknown(row: Row) -> str:
    """Return an error message: the record is of no known store."""
    stores = ", ".join(one.NAME for one in FORMATS)
    if not row.is_of_table:
        return (
            f"{row.where}: is JSON, but neither OTLP (it has neither resourceSpans nor "
            f"resourceLogs) nor an export of {stores}."
        )
    names = [str(name)[:SHOWN_LETTERS] for name in row.record]
    more = ", …" if len(names) > SHOWN_COLUMNS else ""
    return (
        f"{row.where}: is a table, but no export of {stores}. Its columns are "
        f"{', '.join(names[:SHOWN_COLUMNS])}{more}. Export all columns, with their names."
    )
