"""The curve of a training run, into the table `run_steps` while it is trained."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

import polars as pl

from otel_lightning.collector.store import StoreError, StoreLike, opened
from otel_lightning.learner.named_sql import arrow

EVERY_S = 10.0
"""Seconds between two writes, so that a page can follow the run and the store is seldom locked."""

SCHEMA = {
    "run_id": pl.String(),
    "step": pl.Int64(),
    "name": pl.String(),
    "value": pl.Float64(),
}


class Curve:
    """Collects metrics of a run, and writes them to the store every few seconds."""

    def __init__(self, store: StoreLike, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._rows: list[dict[str, object]] = []
        self._written = time.monotonic()

    def __enter__(self) -> Self:
        """Begin to gather."""
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Write the remaining rows. If the run has failed already, an error here is ignored."""
        with suppress(*([StoreError] if error else [])):
            self.write(self._store)

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep the metrics of a step."""
        self._rows += [
            {"run_id": self._run_id, "step": step, "name": name, "value": value}
            for name, value in metrics.items()
        ]
        if time.monotonic() - self._written > EVERY_S:
            # Another process may hold the store for a moment: the rows wait for the next time.
            with suppress(StoreError):
                self.write(self._store)

    def write(self, store: StoreLike) -> None:
        """Write the rows that are not in the store yet; an open store need not be opened again."""
        self._written = time.monotonic()
        if not self._rows:
            return
        with opened(store) as db:
            db.insert("run_steps", arrow(pl.DataFrame(self._rows, schema=SCHEMA)))
        self._rows.clear()
