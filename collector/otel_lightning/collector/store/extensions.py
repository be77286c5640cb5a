"""DuckDB's client-server extensions, which are installed as Python packages."""

from importlib import import_module
from pathlib import Path

import duckdb

from otel_lightning.collector.store.sql_text import quote_literal

EXTENSIONS = ("httpfs", "quack")  # quack sends its requests through httpfs
UNSIGNED = {"allow_unsigned_extensions": "true"}
"""Setting of a connection whose extensions `load_extensions` loads. DuckDB takes it only when it
opens a database."""


def load_extensions(connection: duckdb.DuckDBPyConnection) -> None:
    """Load the client-server extensions from their Python packages; nothing is downloaded.

    To check the signatures of these 55 MB takes 0.2 CPU-seconds at each start. The files come from
    the same package index as DuckDB itself, whose own library nobody checks when it is loaded. So
    they are loaded unchecked, if the connection was opened with `UNSIGNED`, and from then on DuckDB
    refuses every extension without a signature.
    """
    for name in EXTENSIONS:
        folder = Path(str(import_module(f"duckdb_extension_{name}").__file__)).parent
        file = next(folder.rglob(f"{name}.duckdb_extension"))
        connection.execute(f"LOAD {quote_literal(str(file))}")
    connection.execute("SET GLOBAL allow_unsigned_extensions = false")
