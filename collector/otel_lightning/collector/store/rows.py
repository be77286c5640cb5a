"""The interface for reading a few rows: an open `Store`, or the ingester's HTTP port."""

from typing import Any, Protocol

from otel_lightning.collector.store.files.server_file import Server


class Rows(Protocol):
    """Runs SELECTs whose answers are small; needs neither Arrow nor DuckDB."""

    server: Server | None
    """The ingester that serves the store, if one does."""

    def rows(self, select: str) -> list[dict[str, Any]]:
        """Run a SELECT and return its rows by column.

        Raises:
            StoreError: If it fails.
        """
