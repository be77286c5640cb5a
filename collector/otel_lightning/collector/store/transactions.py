"""Begin a transaction, also after one whose rollback failed."""

import duckdb

ABORTED = "transaction is aborted"
"""Part of DuckDB's error for a transaction in which a statement failed, until it is rolled back."""


def begin(connection: duckdb.DuckDBPyConnection) -> None:
    """Begin a transaction.

    Raises:
        duckdb.Error: If one has begun already, or for any other reason.
    """
    try:
        connection.begin()
    except duckdb.TransactionException as error:
        # The last rollback failed, as for lack of memory. Without another one, each transaction of
        # this connection would fail.
        if ABORTED not in str(error):
            raise
        connection.rollback()
        connection.begin()
