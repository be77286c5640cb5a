"""How far storing and deriving lag, when that is an alarm, and how the spool slows senders by it.

The alarm `lagging` has one rule, in `Lag.watch`: `/metrics` and `lightning-ingest check` show it.
"""

import time
from collections.abc import Iterable

from otel_lightning.collector.alarms import LAGGING, Alarms
from otel_lightning.collector.load.flow_control.pacing import Pacing
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.load.trusted_clock import steady_ns
from otel_lightning.collector.refresh.stale import find_stale
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import Store

LONGEST_PUT_OFF_SECONDS = 300.0
"""Lag from which a growing rollout is an alarm, too. It waits up to four times as long as
deriving it took (`Backoff`), so a long one may exceed the largest lag for good reason."""


class Lag:
    """The lag of one process, and the pauses for its senders.

    Senders are slowed by requests that this process received. Those that a former process left on
    the spool or without derived rows are part of the lag that is reported, but slow nobody: that
    work may take hours after a long stop.
    """

    def __init__(self, spool: Spool, settings: LoaderSettings, alarms: Alarms) -> None:
        self._spool, self._derives, self._alarms = spool, settings.derive, alarms
        self._max_lag = settings.max_lag_seconds
        self._started_ns, self._started_steady_ns = time.time_ns(), steady_ns()
        self._inherited = spool.backlog()
        self._pacing = Pacing(settings.max_lag_seconds)
        self._new_ids = self._ids_before = 0
        self._new_ns: int | None = None
        self._oldest_ns: int | None = None
        self._late_from_ns: int | None = None
        self._put_off_ns: int | None = None
        self._unstored_ns: int | None = None

    def derive_seconds(self) -> float:
        """Return the age in seconds of the oldest stored request with rows to derive."""
        return self.age(self._oldest_ns)

    def age(self, received_ns: int | None) -> float:
        """Return how many seconds ago a request was received; 0 for none.

        Args:
            received_ns: When it was received by the clock of that moment, Unix nanoseconds.
        """
        if received_ns is None:
            return 0.0
        now_ns, since_ns = time.time_ns(), self._since_ns()
        if received_ns > now_ns:  # the clock was set back since then
            received_ns -= self._started_ns - since_ns
        if received_ns > now_ns:  # before this process began; no more is known
            received_ns = since_ns
        return (now_ns - received_ns) / 1e9

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
        """Record that `size` bytes were stored; call `note` before it."""
        self._inherited = max(self._inherited - size, 0)
        self._pacing.stored(size, max(self._new_ids - self._ids_before, 0), seconds)

    def derived(self, traces: int, seconds: float) -> None:
        """Record that traces and log records were derived."""
        self._pacing.derived(traces, seconds)

    def note(self, store: Store, waiting: Iterable[str], unstored_ns: int | None) -> None:
        """Measure the lag after a batch, and watch it.

        Args:
            store: The store.
            waiting: Rollouts that were put off; they do not slow senders.
            unstored_ns: When the oldest request that is not stored was received, Unix nanoseconds.
        """
        if self._derives:
            since_ns = self._since_ns()
            stale = find_stale(store, since_ns, waiting)
            self._ids_before, self._new_ids = self._new_ids, stale.new_ids
            self._new_ns = stale.new_ns
            self._put_off_ns = _latest(stale.put_off_ns, since_ns)
            self._late_from_ns = _latest(stale.oldest_ns, since_ns)
            undated = self._started_ns if stale.has_undated else None
            times = [at for at in (stale.oldest_ns, undated) if at is not None]
            self._oldest_ns = min(times, default=None)
        self.watch(unstored_ns)

    def watch(self, unstored_ns: int | None) -> None:
        """Raise the alarm `lagging` if something waits too long, and clear it if nothing does.

        Any thread may call it, also while the loader does not come to its next batch. The wait
        of work that a former process left counts from the start of this one. Traces that an upgrade
        or --rebuild marked have no time, and raise no alarm.

        Args:
            unstored_ns: When the oldest request that is not stored was received, Unix nanoseconds.
        """
        since_ns = self._since_ns()
        is_own = unstored_ns is not None and unstored_ns >= since_ns
        self._unstored_ns = unstored_ns if is_own else None
        lag = max(self.age(self._late_from_ns), self.age(_latest(unstored_ns, since_ns)))
        put_off = self.age(self._put_off_ns)
        # Two thresholds (hysteresis), so that a lag near the limit does not fill the log.
        share = 0.5 if self._alarms.is_raised(LAGGING) else 1.0
        if put_off > share * max(LONGEST_PUT_OFF_SECONDS, self._max_lag):
            lag = max(lag, put_off)
        elif lag <= share * self._max_lag:
            self._alarms.clear(LAGGING)
            return
        if not self._alarms.is_raised(LAGGING):
            reason = f"a request has waited {lag:.0f} s; --max-lag is {self._max_lag:g} s"
            self._alarms.raise_alarm(LAGGING, reason)

    def _since_ns(self) -> int:
        """Return when this process began, in Unix nanoseconds."""
        # Again at each look: a clock that was set back dates what comes now before the first one.
        start_ns = time.time_ns() - (steady_ns() - self._started_steady_ns)
        return min(self._started_ns, start_ns)

    def _own_seconds(self) -> float:
        """Return the age in seconds of this process's oldest request with anything left to do."""
        return max(self.age(self._new_ns), self.age(self._unstored_ns))

    def _unstored(self) -> int:
        return max(self._spool.backlog() - self._inherited, 0)


def _latest(at_ns: int | None, since_ns: int) -> int | None:
    return None if at_ns is None else max(at_ns, since_ns)
