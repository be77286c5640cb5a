"""Open, migrate and query the DuckDB file. Only this package imports duckdb."""

from otel_lightning.collector.store.connection import (
    LEAST_MEMORY_BYTES,
    MEMORY_BYTES,
    ROW_GROUP_ROWS,
    SKIPPED_TO,
    Store,
)
from otel_lightning.collector.store.errors import BrokenStoreError, OutOfMemoryError, StoreError
from otel_lightning.collector.store.location import StoreLike, opened
from otel_lightning.collector.store.opening import keep_files_private, open_file, open_store
from otel_lightning.collector.store.print_rows import copy_to
from otel_lightning.collector.store.server_file import (
    Server,
    read_server,
    server_file,
    write_server,
)
from otel_lightning.collector.store.sql_text import Sql, is_select, quote_literal, statement

__all__ = [
    "LEAST_MEMORY_BYTES",
    "MEMORY_BYTES",
    "ROW_GROUP_ROWS",
    "SKIPPED_TO",
    "BrokenStoreError",
    "OutOfMemoryError",
    "Server",
    "Sql",
    "Store",
    "StoreError",
    "StoreLike",
    "copy_to",
    "is_select",
    "keep_files_private",
    "open_file",
    "open_store",
    "opened",
    "quote_literal",
    "read_server",
    "server_file",
    "statement",
    "write_server",
]
