"""SELECTs through the ingester's HTTP port, for a process that needs no more than a few rows.

`open_store` loads DuckDB, Arrow and two extensions to reach a served store: 0.3 CPU-seconds. This
client sends the statement as text and reads JSON, so it starts at once. It is for our own short
questions; everything else uses `open_store`.
"""

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

from otel_lightning.collector.ingester_client.http import connected
from otel_lightning.collector.store.answering import is_silent
from otel_lightning.collector.store.errors import StoreError
from otel_lightning.collector.store.files.server_file import Server, read_server

PATH = "/v1/sql"
SECONDS = 150.0
"""Longest wait for an answer; the ingester ends a statement after 120 seconds."""


class SqlClient:
    """Asks the ingester that serves a store. It is a `Rows`."""

    def __init__(self, server: Server) -> None:
        """Ask this ingester; no connection is made yet."""
        self.server: Server | None = server
        self._server = server

    def rows(self, select: str) -> list[dict[str, Any]]:
        """Run a SELECT and return its rows by column.

        Values that JSON does not have, such as times, are text.

        Raises:
            StoreError: If the ingester does not answer, or refuses the statement.
        """
        headers = {
            "Authorization": f"Bearer {self._server.token}",
            "Content-Type": "application/sql",
        }
        with connected(self._server, None, SECONDS) as connection:
            connection.request("POST", PATH, select.encode("utf-8", "replace"), headers)
            answer = connection.getresponse()
            body = answer.read()
        if answer.status != HTTPStatus.OK:
            raise StoreError(body.decode("utf-8", "replace"))
        rows: list[dict[str, Any]] = json.loads(body)
        return rows


def sql_client(path: Path) -> SqlClient | None:
    """Return a client of the ingester that serves a store, or None if there is none that answers.

    An ingester of an older version, or one that asks for a client certificate, does not answer.
    """
    server = read_server(path)
    if server is None or is_silent(server):
        return None
    client = SqlClient(server)
    try:
        client.rows("SELECT 1 AS one")
    except (StoreError, ValueError):
        return None
    return client
