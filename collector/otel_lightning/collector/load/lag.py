"""How far storing and deriving lag, and how the spool slows senders by it."""

import logging
import time
from collections.abc import Iterable

from otel_lightning.collector.load.pacing import Pacing
from otel_lightning.collector.load.retention import LoaderSettings
from otel_lightning.collector.load.trusted_clock import steady_ns
from otel_lightning.collector.refresh.refresh import find_stale
from otel_lightning.collector.spool import Spool
from otel_lightning.collector.store import Store

logger = logging.getLogger(__name__)


class Lag:
    """The lag of one process, and the pauses for its senders.

    Senders are slowed by requests that this process received. Those that a former process left on
    the spool or without derived rows are part of the lag that is reported, but slow nobody: that
    work may take hours after a long stop.
    """

    def __init__(self, spool: Spool, settings: LoaderSettings) -> None:
        self._spool, self._derives = spool, settings.derive
        self._max_lag = settings.max_lag_seconds
        self._started_ns, self._started_steady_ns = time.time_ns(), steady_ns()
        self._inherited = spool.backlog()
        self._pacing = Pacing(settings.max_lag_seconds)
        self._is_long = False  # whether the log has reported a lag above the limit
        self._new_ids = self._ids_before = 0
        self._new_ns: int | None = None
        self._oldest_ns: int | None = None
        self._unstored_ns: int | None = None

    def derive_seconds(self) -> float:
        """Return the age in seconds of the oldest stored request with rows to derive."""
        return _age(self._oldest_ns)

    @property
    def has_more(self) -> bool:
        """Whether something waited to be derived when `note` last looked."""
        return self._oldest_ns is not None

    def work(self) -> float:
        """Return the lag in seconds that requests will have which are received now.

        That is the expected time for the work that waits, or the present lag if it is longer.
        """
        return max(self._pacing.expected(self._unstored(), self._new_ids), self._own_seconds())

    def pause(self, size: int) -> float:
        """Return for how many seconds the spool has to pause after it acknowledged `size` bytes."""
        return self._pacing.pause(size, self._unstored(), self.work())

    def refusal(self) -> str | None:
        """Return why requests are refused at present; None if they are accepted."""
        lag = self._own_seconds()
        if lag <= self._max_lag:
            return None
        return f"storing and deriving lag {lag:.0f} seconds, more than --max-lag"

    def stored(self, size: int, seconds: float) -> None:
        """Note that `size` bytes were stored; call `note` before it."""
        self._inherited = max(self._inherited - size, 0)
        self._pacing.stored(size, max(self._new_ids - self._ids_before, 0), seconds)

    def derived(self, traces: int, seconds: float) -> None:
        """Note that traces and log records were derived."""
        self._pacing.derived(traces, seconds)

    def note(self, store: Store, waiting: Iterable[str], unstored_ns: int | None) -> None:
        """Measure the lag; log when it exceeds the limit, and when it no longer does.

        Args:
            store: The store.
            waiting: Rollouts that wait to be derived again, which do not count.
            unstored_ns: When the oldest request that is not stored was received, Unix nanoseconds.
        """
        # Again at each look: a clock that was set back dates what comes now before the first one.
        start_ns = time.time_ns() - (steady_ns() - self._started_steady_ns)
        since_ns = min(self._started_ns, start_ns)
        is_own = unstored_ns is not None and unstored_ns >= since_ns
        self._unstored_ns = unstored_ns if is_own else None
        if self._derives:
            found = find_stale(store, since_ns, waiting)
            self._ids_before, self._new_ids = self._new_ids, found.new_ids
            self._new_ns = found.new_ns
            undated = self._started_ns if found.has_undated else None
            known = [at for at in (found.oldest_ns, undated) if at is not None]
            self._oldest_ns = min(known, default=None)
        self._log(max(self.derive_seconds(), _age(unstored_ns)))

    def _log(self, lag: float) -> None:
        # Two thresholds (hysteresis), so that a lag near the limit does not fill the log.
        if self._is_long == (lag > (self._max_lag / 2 if self._is_long else self._max_lag)):
            return
        self._is_long = not self._is_long
        if self._is_long:
            told = "Storing and deriving lag %.0f s, more than --max-lag (%g s)."
            logger.warning(told, lag, self._max_lag)
        else:
            logger.warning("Storing and deriving keep up again: they lag %.0f s.", lag)

    def _own_seconds(self) -> float:
        """Return the age in seconds of this process's oldest request with anything left to do."""
        return max(_age(self._new_ns), _age(self._unstored_ns))

    def _unstored(self) -> int:
        return max(self._spool.backlog() - self._inherited, 0)


def _age(since_ns: int | None) -> float:
    return 0.0 if since_ns is None else max(time.time_ns() - since_ns, 0) / 1e9
