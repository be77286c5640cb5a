"""When the loader derives rows, and how many spans at once."""

import time
from collections.abc import Callable

from otel_lightning.collector.alarms import RETRYING, Alarms
from otel_lightning.collector.load.flow_control.lag import Lag
from otel_lightning.collector.load.flow_control.scheduling import BatchSize, TimeShare
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.refresh.refresher import Refresher

PROMPT_SECONDS = 2.0
"""Lag above which deriving starts at once, without waiting for more spans."""
LATE_SHARE = 1 / 3
"""Part of `--max-lag` above which rows come late, so that batches may take longer."""
MAX_RETRIES = 25
"""Retries of the same traces after which an alarm is raised; batches that give way to each other
need a few."""


class Deriving:
    """Derives a batch when it is due, in the thread of the loader."""

    def __init__(
        self,
        refresher: Refresher,
        settings: LoaderSettings,
        lag: Lag,
        alarms: Alarms,
        note_lag: Callable[[], None],
    ) -> None:
        """Begin with nothing to derive.

        Args:
            refresher: Derives a batch.
            settings: Whether to derive, and how many spans at once.
            lag: Gets the time that deriving took.
            alarms: Gets the alarm `retrying`.
            note_lag: Measures the lag again.
        """
        self._refresher, self._settings = refresher, settings
        self._lag, self._alarms, self._note_lag = lag, alarms, note_lag
        self._earliest = 0.0  # time of the next batch while deriving keeps up
        self._batch_size = BatchSize(settings.spans_at_once)
        self.time_share = TimeShare()
        """The time that storing owes to deriving."""
        self.is_postponed = False
        """Whether a batch has to be derived soon even if no request arrives."""
        self.has_succeeded = False
        """Whether the last step derived something, or nothing was left to derive."""

    def step(self, *, paced: bool) -> bool:
        """Derive a batch if it is due; return whether there may be more to derive at once.

        While deriving keeps up it takes at most half of the time, because larger batches cost less
        per row. A long conversation that grows waits longer, as `Backoff` says.

        Args:
            paced: Whether batches may be postponed; False to derive all that is left.
        """
        began = time.monotonic()
        self.has_succeeded = False
        self.is_postponed = paced and not self._is_due(began)
        if self.is_postponed or not self._settings.derive:
            return False
        if not paced:
            self._refresher.wait()
        step = self._refresher.step(self._batch_size.spans, paced=paced)
        # A batch that was only sent to a worker may fail as the one before.
        self.has_succeeded = step.ids > 0 or not (step.is_busy or self._refresher.is_working)
        self._raise_or_clear_alarm()
        self._note_lag()
        if not step.is_busy:
            self.is_postponed = bool(paced and self._refresher.backoff.waiting())
            return self._refresher.is_working and not paced
        ended = time.monotonic()
        self.time_share.derived(ended - began)
        if step.ids:
            self._lag.derived(step.ids, step.seconds)
            self._batch_size.took(
                step.batch_seconds,
                is_full=self._lag.has_more,
                is_late=self._lag.work() > LATE_SHARE * self._settings.max_lag_seconds,
            )
            self._earliest = ended + (ended - began)  # a pause as long as the work
        return True

    def derive_all(self, *, with_quarantined: bool) -> None:
        """Derive all that is stale, without a pause.

        Args:
            with_quarantined: Whether to derive also traces on which workers died; another one may.
        """
        if with_quarantined:
            self._refresher.quarantine.retry_now()
        step, spans = self._refresher.step, self._batch_size.spans
        while step(spans, paced=False).is_busy or self._refresher.wait():
            pass
        # Otherwise senders would be slowed for the lag that was measured before.
        self._note_lag()

    def _is_due(self, now: float) -> bool:
        is_late = self._lag.work() > PROMPT_SECONDS
        return now >= self._earliest or is_late or self._refresher.is_ready

    def _raise_or_clear_alarm(self) -> None:
        """Raise an alarm if the same traces are given up again and again; clear it otherwise.

        Giving up is no error, so without this alarm only a growing lag would show it.
        """
        if self._refresher.retries < MAX_RETRIES:
            self._alarms.clear(RETRYING)
            return
        reason = f"the same traces were given up {MAX_RETRIES} times or more"
        self._alarms.raise_alarm(RETRYING, reason)
