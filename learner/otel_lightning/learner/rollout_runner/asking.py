"""Ask the store of a run for rows, without polars: a run that only starts agents needs none."""

from typing import Any

from otel_lightning.collector.store.rows import Rows
from otel_lightning.collector.store.sql_text import Value, statement


def rows_of(store: Rows, name: str, **values: Value) -> list[dict[str, Any]]:
    """Run the statement `sql/<name>.sql` of this package and return its rows by column."""
    return store.rows(statement(__package__, name, **values))
