"""Quarantine of the traces on which worker processes died, until they are derived.

The system may kill a worker for its memory. The next one gets a smaller batch. If that does not
help, the traces are held in quarantine: they are tried once a minute, so that others are derived
meanwhile.
"""

import time
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from otel_lightning.collector.store import Sql, Store, statement

MOST_DEATHS = 3
"""Deaths of workers in a row without a batch that was derived, or on the same traces, that count as
an error."""
MOST_HALVINGS = 6
"""How often the size of a batch is halved after deaths."""
RETRY_SECONDS = 60.0
"""Wait before traces on which `MOST_DEATHS` workers died are tried again."""


class Quarantine:
    """Counts deaths by the names of batches: rollouts, or ids of single traces."""

    def __init__(self, store: Store) -> None:
        """Start without any.

        Args:
            store: The store that has the table `stale`.
        """
        self._store = store
        self._deaths: Counter[str] = Counter()
        self.retry_at = 0.0
        """When the traces in quarantine are tried again, by the monotonic clock."""

    @property
    def has_deaths(self) -> bool:
        """Whether a worker died on traces that are not derived yet."""
        return bool(self._deaths)

    @property
    def holds_traces(self) -> bool:
        """Whether `MOST_DEATHS` workers died on the same traces, which are not derived yet."""
        return max(self._deaths.values(), default=0) >= MOST_DEATHS

    def note_death(self, names: Iterable[str]) -> None:
        """Record that a worker died on a batch."""
        self._deaths.update(names)
        if self.holds_traces:
            self.retry_at = time.monotonic() + RETRY_SECONDS

    def forget_derived(self) -> None:
        """Forget the deaths on traces that are derived by now, in whichever batch."""
        if self._deaths:
            names = pa.table({"name": pa.array(self._deaths, pa.string())})
            select = statement(__package__, "still_stale", names=Sql("{rows}"))
            stale = set(self._store.pick(names, select)["name"].to_pylist())
            self._deaths = Counter({n: k for n, k in self._deaths.items() if n in stale})

    def clear(self) -> None:
        """Forget all deaths: nothing is left to derive."""
        self._deaths.clear()

    def retry_now(self) -> None:
        """Try the traces in quarantine with the next batch."""
        self.retry_at = 0.0

    def held(self) -> set[str]:
        """Return the names that are not tried at present."""
        if time.monotonic() >= self.retry_at:
            return set()
        return {name for name, deaths in self._deaths.items() if deaths >= MOST_DEATHS}

    def batch_size(self, spans: int) -> int:
        """Return how many spans to derive in one batch, given the usual number."""
        held = self.held()
        deaths = max((k for name, k in self._deaths.items() if name not in held), default=0)
        return max(spans >> min(deaths, MOST_HALVINGS), 1)
