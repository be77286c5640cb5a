"""What a rule is given: rollouts or calls as polars frames, read as far as they are looked at."""

from collections.abc import Iterator

import polars as pl
from polars.io.plugins import register_io_source

from otel_lightning.collector.store import Store, statement

ORDER = {
    "rule_rollouts": "rollout_id",
    "rule_calls": "rollout_id, step, span_id",
    "rule_judgements": '"time", reward_id',
}


def scan(store: Store, name: str) -> pl.LazyFrame:
    """Answer the statement `sql/<name>.sql` lazily: columns that nobody looks at are not read.

    Args:
        store: An open store; it must stay open until the frame is collected.
        name: `rule_rollouts`, `rule_calls` or `rule_judgements`.
    """
    query = f"(\n{statement(__package__, name)}\n)"

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = ", ".join(f'"{column}"' for column in columns) if columns else "*"
        ordered = f"SELECT {wanted} FROM {query} ORDER BY {ORDER[name]}"
        frame = pl.DataFrame(store.query(ordered))
        frame = frame if predicate is None else frame.filter(predicate)
        yield frame if rows is None else frame.head(rows)

    schema = pl.DataFrame(store.query(f"SELECT * FROM {query} LIMIT 0")).schema
    return register_io_source(read, schema=schema)
