"""Records of other trace stores, put together into requests of OTLP."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from otel_lightning.collector.trace_files.formats import FORMATS
from otel_lightning.collector.trace_files.otlp_requests import (
    Contents,
    PlacedSpan,
    from_spans,
    placed,
)
from otel_lightning.collector.trace_files.records import (
    Exported,
    ExportedJudgement,
    ExportedSpan,
    LeftOut,
)

SPANS_AT_ONCE = 1_000
"""Most spans of another store in one request."""
REQUEST_BYTES = 16_000_000
"""A request with several of these spans is at most this large: a running ingester refuses requests
above its `--max-body`."""
SHOWN_COLUMNS, SHOWN_LETTERS = 12, 30
"""How much of the names of an unknown table's columns an error message shows."""

Item = Contents | ExportedJudgement | LeftOut
"""What is stored of a file, or cannot be stored."""


class Row(NamedTuple):
    """A record, and where it stands, for error messages."""

    where: str
    record: Any
    is_of_table: bool = False


def read_rows(rows: Iterable[Row | Contents]) -> Iterator[Item]:
    """Yield what records hold, with their spans put together into requests; requests as they are.

    Raises:
        ValueError: If a record is of no known store or is invalid; the message says which.
    """
    spans, size = list[PlacedSpan](), 0
    for row in rows:
        if isinstance(row, Contents):
            yield row
            continue
        for one in _exported(row):
            if not isinstance(one, ExportedSpan):
                yield one
                continue
            span = placed(row.where, one)
            if spans and (len(spans) == SPANS_AT_ONCE or size + len(span.body) > REQUEST_BYTES):
                yield from_spans(spans)
                spans, size = [], 0
            spans.append(span)
            size += len(span.body)
    if spans:
        yield from_spans(spans)


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
