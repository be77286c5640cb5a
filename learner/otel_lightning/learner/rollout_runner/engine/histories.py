"""The attempts of each rollout so far, and the rollouts that are due."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from otel_lightning.collector.store.rows import Rows
from otel_lightning.learner.rollout_runner.attempts import LOST, status_of
from otel_lightning.learner.rollout_runner.context import rows_of
from otel_lightning.learner.rollout_runner.launcher.journal import RUNNER_KILLED, Journal
from otel_lightning.learner.rollout_runner.launcher.processes import INTERRUPTED
from otel_lightning.learner.rollout_runner.plan import Job, Planned

LOST_WITH_ITS_MACHINE = "its runner on another machine ended before it"
"""Reason of an attempt that has calls in the store, but whose end no machine reports."""
INTERRUPTIONS = frozenset({INTERRUPTED, RUNNER_KILLED, LOST_WITH_ITS_MACHINE})
"""Reasons in the store of attempts that the runner's end, or Ctrl-C, cut off."""


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """The results of the attempts at one planned rollout, by attempt number."""

    ends: Sequence[tuple[str, bool]] = ()
    """Status of each attempt, and whether a kill or Ctrl-C cut it off."""

    @property
    def status(self) -> str | None:
        """Status of the last attempt."""
        return self.ends[-1][0] if self.ends else None

    @property
    def lost(self) -> int:
        """Number of attempts that were lost for another reason than the runner's end."""
        return sum(status == LOST and not cut for status, cut in self.ends)

    @property
    def had_second_chance(self) -> bool:
        """Whether an attempt before the last one ended in another way than by the runner's end."""
        return any(not cut for _, cut in self.ends[:-1])

    @property
    def was_cut_off(self) -> bool:
        """Whether the last attempt was cut off by the runner's end or Ctrl-C."""
        return bool(self.ends) and self.ends[-1][1]

    def is_open(self, retries: int) -> bool:
        """Return whether the rollout needs an attempt."""
        if self.status is None:
            return True
        # An attempt that was cut off by the runner's end does not count as one of the retries.
        return self.status == LOST and (self.was_cut_off or self.lost <= retries)


class Due(NamedTuple):
    """The rollouts that a start runs."""

    open: list[Planned]
    """Rollouts that have not ended, or were lost and may be tried again."""
    rerun: list[Planned]
    """Rollouts that ended with a status that the job runs once more."""
    cut_off: int
    """Number of the open ones whose last attempt was cut off by the runner's end."""


def histories_of(
    rollouts: Sequence[Planned], journal: Journal, store: Rows | None
) -> dict[str, AttemptHistory]:
    """Read the attempts of each rollout from the journal, or from the store if that is lost."""
    ends_by_id = {
        name: (status_of(end)[0], end.status == INTERRUPTED) for name, end in journal.ended.items()
    }
    if store is not None:
        for row in rows_of(store, "known_attempts", run_id=journal.folder.name):
            was_cut_off = row["reason"] in INTERRUPTIONS  # the store has no other mark of it
            ends_by_id.setdefault(row["rollout_id"], (row["status"], was_cut_off))
    histories = {}
    for planned in rollouts:
        ends: list[tuple[str, bool]] = []
        # Attempts are numbered from 0 without gaps, so the first one that is missing ends the
        # history.
        while (end := ends_by_id.get(planned.rollout_id(len(ends)))) is not None:
            ends.append(end)
        histories[planned.key] = AttemptHistory(ends)
    return histories


def due_rollouts(job: Job, rollouts: Sequence[Planned], past: Mapping[str, AttemptHistory]) -> Due:
    """Find the rollouts to run: those that are open, and those that shall run again."""
    open_ones = [planned for planned in rollouts if past[planned.key].is_open(job.retries)]
    rerun = [
        planned
        for planned in rollouts
        if past[planned.key].status in job.rerun and planned not in open_ones
    ]
    return Due(open_ones, rerun, sum(past[planned.key].was_cut_off for planned in open_ones))


def last_id(planned: Planned, past: Mapping[str, AttemptHistory]) -> str:
    """Return the id of the last attempt; of the first one if there was none."""
    return planned.rollout_id(max(len(past[planned.key].ends) - 1, 0))
