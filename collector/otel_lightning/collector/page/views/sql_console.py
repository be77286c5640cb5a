"""The SQL console: one SELECT within limits; the address is the query."""

import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from otel_lightning.collector.page.process import Answer
from otel_lightning.collector.page.view_request import View, ViewRequest
from otel_lightning.collector.store import StoreError

MOST_ROWS = 1000
MOST_SAVED_ROWS = 100_000
MOST_CHARACTERS = 300
FORMULA = ("=", "+", "-", "@", "\t", "\r")
EXAMPLES = {
    "Newest rollouts": "FROM rollouts ORDER BY start_time DESC LIMIT 20",
    "Tokens by model and day": (
        "SELECT response_model, start_time::DATE AS day, count(*) AS calls,\n"
        "    sum(input_tokens) AS input, sum(output_tokens) AS output\n"
        "FROM llm_calls GROUP BY ALL ORDER BY day DESC, calls DESC"
    ),
    "Tools that fail": (
        "SELECT name, count(*) AS calls, count(error_type) AS failed\n"
        "FROM tool_calls GROUP BY name ORDER BY failed DESC, calls DESC"
    ),
    "Mean reward by arm": (
        "SELECT arm_key, arm, count(DISTINCT rollout_id) AS rollouts, avg(return_to_go) AS mean\n"
        "FROM transition_rows WHERE step = 0 GROUP BY ALL ORDER BY ALL"
    ),
    "Why rollouts were left out": (
        "SELECT excluded, count(*) AS rollouts\n"
        "FROM transition_rollouts GROUP BY excluded ORDER BY rollouts DESC"
    ),
    "Tasks with different rewards": (
        "SELECT task_id, count(*) AS rollouts, min(final_reward) AS least,\n"
        "    max(final_reward) AS most\n"
        "FROM rollouts GROUP BY task_id HAVING least < most ORDER BY rollouts DESC LIMIT 50"
    ),
    "States with different actions": (
        "SELECT c.state_hash, count(*) AS visits, min(t.return_to_go) AS least,\n"
        "    max(t.return_to_go) AS most\n"
        "FROM transition_rows t JOIN llm_calls c USING (trace_id, span_id)\n"
        "GROUP BY ALL HAVING visits > 1 ORDER BY most - least DESC LIMIT 50"
    ),
    "Slowest calls": (
        "SELECT rollout_id, step, response_model, end_time - start_time AS took, output_tokens\n"
        "FROM llm_calls ORDER BY took DESC LIMIT 20"
    ),
    "Errors of model calls": (
        "SELECT error_type, left(error_message, 80) AS message, count(*) AS calls\n"
        "FROM llm_calls WHERE error_type IS NOT NULL GROUP BY ALL ORDER BY calls DESC"
    ),
    "Judgements by name": (
        "SELECT name, source, count(*) AS judgements, avg(value) AS mean\n"
        "FROM judgements GROUP BY ALL ORDER BY judgements DESC"
    ),
    "Runs and their gates": (
        "SELECT run_id, command, outcome, gate ->> '$.gain' AS gain, gate ->> '$.lower' AS lower\n"
        "FROM runs ORDER BY started DESC LIMIT 20"
    ),
    "Attributes of spans": (
        "SELECT unnest(map_keys(attributes)) AS key, count(*) AS spans\n"
        "FROM (FROM spans ORDER BY start_time DESC LIMIT 10000) GROUP BY key ORDER BY spans DESC"
    ),
}


def show(ask: ViewRequest) -> View:
    """Run the statement of the address, if there is one, and show its rows."""
    query = ask.text("q")
    found, error = None, None
    if query:
        try:
            found = ask.source.ask_typed(query, MOST_ROWS)
        except StoreError as failed:
            error = str(failed)
    return View(
        "sql.html",
        "SQL",
        {
            "query": query or "",
            "error": error,
            "table": _table(found) if found is not None else None,
            "examples": EXAMPLES,
            "tables": ask.rows("tables"),
            "most_rows": MOST_ROWS,
        },
    )


def as_csv(ask: ViewRequest) -> Answer:
    """Return the rows as CSV; a cell that a spreadsheet would run begins with an apostrophe."""
    found = _saved(ask)
    rows = pa.table(
        {f"{i}": pa.array(_harmless(_texts(c))) for i, c in enumerate(found.columns)}
    ).rename_columns(_harmless(found.column_names))
    out = io.BytesIO()
    pyarrow.csv.write_csv(rows, out)
    return _file(out, "text/csv; charset=utf-8", "rows.csv")


def as_parquet(ask: ViewRequest) -> Answer:
    """Return the rows as a Parquet file."""
    out = io.BytesIO()
    pyarrow.parquet.write_table(_saved(ask), out)
    return _file(out, "application/vnd.apache.parquet", "rows.parquet")


def _saved(ask: ViewRequest) -> pa.Table:
    found = ask.source.ask_typed(ask.text("q") or "SELECT 'no query' AS error", MOST_SAVED_ROWS)
    return found.slice(0, MOST_SAVED_ROWS)


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


def _table(found: pa.Table) -> dict[str, Any]:
    shown = found.slice(0, MOST_ROWS)
    numeric = [pa.types.is_integer(t) or pa.types.is_floating(t) for t in shown.schema.types]
    columns = [_texts(column) for column in shown.columns]
    cut = [[t if t is None else t[:MOST_CHARACTERS] for t in column] for column in columns]
    return {
        "names": list(zip(shown.column_names, numeric, strict=True)),
        "rows": [list(zip(row, numeric, strict=True)) for row in zip(*cut, strict=True)],
        "more": found.num_rows > MOST_ROWS,
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
        values = column.to_pylist(maps_as_pydicts="lossy")
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
        seconds, rest = divmod(micros, 10**6)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        fraction = f".{rest:06}".rstrip("0") if rest else ""
        parts.append(f"{'-' if nanoseconds < 0 else ''}{clock}{fraction}")
    return " ".join(parts)
