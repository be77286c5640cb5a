"""Ask a served store, and ask again if the server could not even judge the statement.

DuckDB's server calls a function of ours for each statement, by a statement of its own. If that one
fails, for instance because other statements use all memory, it refuses the client's statement, as
if it was not allowed.
"""

import time

import duckdb

from otel_lightning.collector.store.clients.read_only import SENT_ROWS
from otel_lightning.collector.store.errors import OutOfMemoryError
from otel_lightning.collector.store.sql_text import quote_literal

UNJUDGED = "Authorization failed"
"""The server's error if our function did not run; also its error for rows that a client sends."""
PAUSES_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


def ask(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyConnection:
    """Run a statement in the process that serves the attached database `remote`.

    Raises:
        duckdb.Error: If it fails.
        OutOfMemoryError: If it could not be judged for some seconds.
    """
    statement = f"FROM remote.query({quote_literal(sql)})"
    for pause in PAUSES_SECONDS:
        try:
            return connection.execute(statement)
        except duckdb.Error as error:
            # The statement has not begun, so to ask again does no harm.
            if UNJUDGED not in str(error) or SENT_ROWS.match(sql):
                raise
        time.sleep(pause)
    raise OutOfMemoryError(
        "lightning-ingest could not even judge whether the statement is allowed, probably because "
        "other statements use all of its memory. Ask again when they have ended, or start it with "
        "a larger --memory."
    )
