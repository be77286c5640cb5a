"""The DuckDB file: opening, migrating, asking. Only this package imports duckdb."""

from otel_lightning.collector.store.connection import (
    LEAST_MEMORY_BYTES,
    MEMORY_BYTES,
    ROW_GROUP_ROWS,
    SKIPPED_TO,
    OutOfMemoryError,
    Server,
    Store,
    StoreError,
    copy_to,
    is_select,
    open_store,
    read_server,
    server_file,
    write_server,
)
from otel_lightning.collector.store.sql_text import Sql, quote_literal, statement

__all__ = [
    "LEAST_MEMORY_BYTES",
    "MEMORY_BYTES",
    "ROW_GROUP_ROWS",
    "SKIPPED_TO",
    "OutOfMemoryError",
    "Server",
    "Sql",
    "Store",
    "StoreError",
    "copy_to",
    "is_select",
    "open_store",
    "quote_literal",
    "read_server",
    "server_file",
    "statement",
    "write_server",
]
