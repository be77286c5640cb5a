"""Connect to a database: a file, or the SQL server of a process that holds it."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import duckdb

from otel_lightning.collector.store.extensions import UNSIGNED, load_extensions
from otel_lightning.collector.store.sql_text import quote_literal


def connect(
    path: Path | str, config: Mapping[str, str], *, read_only: bool = False
) -> duckdb.DuckDBPyConnection:
    """Open a database without DuckDB's progress bar.

    In a notebook, a shell and `python -c`, DuckDB prints the bar of a statement of more than two
    seconds to the standard output, between what the program prints.
    """
    connection = duckdb.connect(str(path), read_only=read_only, config=dict(config))
    # The configuration is locked if this process serves that file.
    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    return connection


def attach(address: str, token: str) -> duckdb.DuckDBPyConnection:
    """Connect to a served store and attach it as the database `remote`.

    Raises:
        duckdb.Error: If nobody answers there, or the token is wrong.
    """
    connection = connect(":memory:", {"autoinstall_known_extensions": "false", **UNSIGNED})
    load_extensions(connection)
    # Without this, each statement opens a new TCP connection.
    connection.execute("SET httpfs_connection_caching = true")
    connection.execute(f"CREATE SECRET (TYPE quack, TOKEN {quote_literal(token)})")
    connection.execute(f"ATTACH {quote_literal(address)} AS remote")
    return connection
