"""Where a run happens, and how it reaches its store."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_lightning.collector.load.position import is_up_to_date
from otel_lightning.collector.store import StoreError, read_server
from otel_lightning.collector.store.rows import Rows
from otel_lightning.collector.store.sql_text import Value, statement
from otel_lightning.learner.rollout_runner.ingester.receiver import Receiver
from otel_lightning.learner.rollout_runner.launcher.journal import Journal
from otel_lightning.learner.rollout_runner.launcher.processes import Processes


@dataclass(slots=True)
class RunContext:
    """Where a run happens: its store, its journal, its processes and the telemetry's receiver."""

    store: Path
    journal: Journal
    processes: Processes
    receiver: Receiver
    is_elsewhere: bool
    """Whether the spans go to an endpoint that was given."""
    store_timeout: float
    """Longest wait for an ingester that makes no progress, in seconds."""
    connection: Rows | None = None
    """The connection to the store from the start of the run, if an ingester serves it.

    It is kept for grading.
    """


@contextmanager
def store_at_start(context: RunContext) -> Iterator[Rows | None]:
    """Open the store if it is on this machine; a run that only sends has none, nor a new one."""
    idle = context.receiver.idle
    if (context.is_elsewhere or idle) and not context.store.exists():
        yield None
        return
    if idle is not None:
        with idle.opened() as opened:
            if is_up_to_date(opened, context.store):
                yield opened
                return
        idle.wake()
        idle.withdraw()  # waits until it serves the store
    with _opened(context.store) as opened:
        yield opened


@contextmanager
def _opened(store: Path) -> Iterator[Rows]:
    """Ask the ingester that serves a store over HTTP, or open the store."""
    if read_server(store) is not None:
        from otel_lightning.collector.ingester_client.sql import sql_client

        if (client := sql_client(store)) is not None:
            yield client
            return
    # Only here: it loads DuckDB and Arrow.
    from otel_lightning.collector.store import open_store

    with open_store(store) as opened:
        yield opened


@contextmanager
def store_at_end(context: RunContext) -> Iterator[Rows]:
    """Yield the connection of the start, or a new one if there is none or its ingester ended."""
    idle = context.receiver.idle
    if idle is not None and idle.withdraw():
        with idle.opened() as created:
            yield created
        return
    if context.connection is not None and _answers(context.connection):
        yield context.connection
        return
    with _opened(context.store) as opened:
        yield opened


def _answers(opened: Rows) -> bool:
    try:
        opened.rows("SELECT 1 AS one")
    except StoreError:
        return False
    return True


def rows_of(store: Rows, name: str, **values: Value) -> list[dict[str, Any]]:
    """Run the statement `sql/<name>.sql` of this package and return its rows by column.

    It needs no polars: a run that only starts agents does without.
    """
    return store.rows(statement(__package__, name, **values))
