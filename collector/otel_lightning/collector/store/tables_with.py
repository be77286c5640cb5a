"""The tables from which rows are deleted by an id: ours, and those that users made in the store."""

from otel_lightning.collector.store.connection import Store
from otel_lightning.collector.store.sql_text import quote_name, statement


def tables_with(store: Store, column: str) -> list[str]:
    """Return the tables of the store that have a column, as quoted names with their schema.

    Args:
        store: A direct store.
        column: Name of the column, such as `trace_id`.
    """
    rows = store.rows(statement(__package__, "tables_with", column=column))
    return [f"{quote_name(row['schema'])}.{quote_name(row['name'])}" for row in rows]
