"""Open, migrate and query the DuckDB file. Only this package imports duckdb.

Modules that load DuckDB are imported when they are first used. So a client that only needs to know
who serves a store, such as `lightning-learn run`, loads neither DuckDB nor pyarrow: 0.2
CPU-seconds.

Begin in `opening.py`, and in `connection.py`, which has the class `Store`. `sql_server.py` lets
other processes run SQL, which `clients/` checks and limits. `deduplication/` finds duplicates
before they are inserted, and `files/` has the files on disk.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from otel_lightning.collector.store.errors import BrokenStoreError, OutOfMemoryError, StoreError
from otel_lightning.collector.store.files.server_file import (
    Server,
    read_server,
    server_file,
    write_server,
)
from otel_lightning.collector.store.memory import LEAST_MEMORY_BYTES, MEMORY_BYTES
from otel_lightning.collector.store.sql_text import Sql, is_select, quote_literal, statement

if TYPE_CHECKING:
    from otel_lightning.collector.store.connection import SKIPPED_TO, Store
    from otel_lightning.collector.store.files.replacement import ROW_GROUP_ROWS
    from otel_lightning.collector.store.opening import (
        StoreLike,
        check_server,
        keep_files_private,
        open_file,
        open_store,
        open_when_free,
        opened,
    )
    from otel_lightning.collector.store.print_rows import copy_to

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
    "check_server",
    "copy_to",
    "is_select",
    "keep_files_private",
    "open_file",
    "open_store",
    "open_when_free",
    "opened",
    "quote_literal",
    "read_server",
    "server_file",
    "statement",
    "write_server",
]
MODULES = {
    "connection": "SKIPPED_TO Store",
    "files.replacement": "ROW_GROUP_ROWS",
    "opening": (
        "StoreLike check_server keep_files_private open_file open_store open_when_free opened"
    ),
    "print_rows": "copy_to",
}
"""Modules that load DuckDB, and the public names that each defines."""
MODULE_OF = {name: module for module, names in MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in MODULE_OF:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(f"{__name__}.{MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
