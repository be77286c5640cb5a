"""The SQL console: one SELECT within limits; the address is the query."""

import io
import json
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from otel_lightning.collector.page.process import Answer
from otel_lightning.collector.page.view_request import View, ViewRequest
from otel_lightning.collector.store import StoreError
from otel_lightning.collector.store.print_rows import is_number
from otel_lightning.collector.store.tables import INTERNAL
from otel_lightning.collector.store.times_as_text import has_nanoseconds, times_as_text

MOST_ROWS = 1000
MOST_SAVED_ROWS = 100_000
MOST_CHARACTERS = 300
PACKAGE = "otel_lightning.collector.page"
# Spreadsheets run a cell that begins with one of these (OWASP, "CSV Injection").
FORMULA = ("=", "+", "-", "@", "\t", "\r")
EXAMPLES = {
    "Newest rollouts": "newest_rollouts",
    "Tokens by model and day": "tokens_by_model_and_day",
    "Tools that fail": "tools_that_fail",
    "Mean reward by arm": "mean_reward_by_arm",
    "Why rollouts were left out": "why_rollouts_were_left_out",
    "Tasks with different rewards": "tasks_with_different_rewards",
    "States with different actions": "states_with_different_actions",
    "Slowest calls": "slowest_calls",
    "Errors of model calls": "errors_of_model_calls",
    "Judgements by name": "judgements_by_name",
    "Runs and their gates": "runs_and_their_gates",
    "Attributes of spans": "attributes_of_spans",
}
"""Titles of example statements, and their files in `sql/examples`."""


def show(ask: ViewRequest) -> View:
    """Run the statement of the address, if there is one, and show its rows."""
    query = ask.text("q")
    table, error = None, None
    if query:
        try:
            table = ask.source.ask_typed(query, MOST_ROWS)
        except StoreError as failed:
            error = str(failed)
    return View(
        "sql.html",
        "SQL",
        {
            "query": query or "",
            "error": error,
            "table": _table(table) if table is not None else None,
            "examples": _examples(),
            "tables": [row for row in ask.rows("tables") if row["table_name"] not in INTERNAL],
            "most_rows": MOST_ROWS,
        },
    )


def as_csv(ask: ViewRequest) -> Answer:
    """Return the rows as CSV; a cell that a spreadsheet would run begins with an apostrophe."""
    table = _saved(ask)
    rows = pa.table(
        # Numbered first, because a dict would lose a column whose name occurs twice.
        {f"{i}": pa.array(_harmless(_texts(c))) for i, c in enumerate(table.columns)}
    ).rename_columns(_harmless(table.column_names))
    out = io.BytesIO()
    pyarrow.csv.write_csv(rows, out)
    return _file(out, "text/csv; charset=utf-8", "rows.csv")


def as_parquet(ask: ViewRequest) -> Answer:
    """Return the rows as a Parquet file; what Parquet has no type for is text."""
    table = _saved(ask)
    rows = pa.table([_for_parquet(column) for column in table.columns], table.column_names)
    out = io.BytesIO()
    pyarrow.parquet.write_table(rows, out)
    return _file(out, "application/vnd.apache.parquet", "rows.parquet")


def _for_parquet(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    try:
        pyarrow.parquet.write_table(pa.table({"column": column.slice(0, 0)}), io.BytesIO())
    except pa.ArrowNotImplementedError:  # durations, for example
        return pa.array(_texts(column), pa.string())
    return column


def _saved(ask: ViewRequest) -> pa.Table:
    table = ask.source.ask_typed(ask.text("q") or "SELECT 'no query' AS error", MOST_SAVED_ROWS)
    return table.slice(0, MOST_SAVED_ROWS)


def _file(out: io.BytesIO, content_type: str, name: str) -> Answer:
    headers = (("content-disposition", f'attachment; filename="{name}"'),)
    return Answer(200, content_type, out.getvalue(), headers)


def _harmless(texts: list[str | None]) -> list[str | None]:
    return [f"'{t}" if t and t.startswith(FORMULA) and not _is_number(t) else t for t in texts]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _table(table: pa.Table) -> dict[str, Any]:
    first_rows = table.slice(0, MOST_ROWS)
    numeric = [is_number(kind) for kind in first_rows.schema.types]
    columns = [_texts(column) for column in first_rows.columns]
    cut = [[t if t is None else t[:MOST_CHARACTERS] for t in column] for column in columns]
    return {
        "names": list(zip(first_rows.column_names, numeric, strict=True)),
        "rows": [list(zip(row, numeric, strict=True)) for row in zip(*cut, strict=True)],
        "more": table.num_rows > MOST_ROWS,
        "cut": any(t and len(t) > MOST_CHARACTERS for column in columns for t in column),
    }


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Write each value as text, nested values as JSON; None stays None."""
    kind = column.type
    if pa.types.is_interval(kind):
        return [None if value is None else _interval(value) for value in column.to_pylist()]
    try:
        return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # nested
        values = times_as_text(column, has_nanoseconds).to_pylist(maps_as_pydicts="lossy")
        return [None if value is None else _json(value) for value in values]


def _json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, pa.MonthDayNano):  # a tuple, so JSON would take it for a list
        return _interval(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _interval(value: pa.MonthDayNano) -> str:
    """Write an interval as DuckDB does.

    Example:
        >>> _interval(pa.MonthDayNano([1, 2, 3_725_250_000_000]))
        '1 month 2 days 01:02:05.25'
    """
    months, days, nanoseconds = value
    named = [(months, "month"), (days, "day")]
    parts = [f"{n} {name}{'' if n == 1 else 's'}" for n, name in named if n]
    micros = abs(nanoseconds) // 1000
    if micros or not parts:
        seconds, fraction_micros = divmod(micros, 10**6)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        fraction = f".{fraction_micros:06}".rstrip("0") if fraction_micros else ""
        parts.append(f"{'-' if nanoseconds < 0 else ''}{clock}{fraction}")
    return " ".join(parts)


@cache
def _examples() -> dict[str, str]:
    """Return the examples, by title."""
    folder = resources.files(PACKAGE) / "sql" / "examples"
    return {
        title: (folder / f"{name}.sql").read_text(encoding="utf-8").strip()
        for title, name in EXAMPLES.items()
    }
