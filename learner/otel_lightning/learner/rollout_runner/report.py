"""The result of a run: how its rollouts ended, and their rewards."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from otel_lightning.learner.evaluate.few_tasks import interval_of_mean
from otel_lightning.learner.rollout_runner.attempts import FAILED, LOST, OK, TIMEOUT

if TYPE_CHECKING:
    from otel_lightning.learner.evaluate.paired import Pair, PairedComparison, Side


TAIL = 0.025
"""Error probability on each side of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run."""

    run_id: str
    planned: int
    """Number of rollouts that the job asks for."""
    done_before: int
    """How many of them had ended before this start."""
    statuses: Mapping[str, int]
    """Number of rollouts by the status of their last attempt: `ok`, `failed`, `timeout`, `lost`."""
    rewards: Mapping[str, float]
    """Reward of each graded rollout, by its id."""
    reward_name: str | None = None
    """Name of the rewards in the store, which `--reward` of other commands takes."""
    interrupted: int = 0
    """Attempts that a kill or Ctrl-C cut off; each is run again by the next start."""
    retried: int = 0
    """Attempts after the first, in this start."""
    worked_on_twice: int = 0
    """Rollouts that ran again because their attempt was cut off while a server (`--url`) worked on
    it: the server may have gone on."""
    given_up: int = 0
    """Rollouts that were lost in each attempt, so that the same call does not attempt them."""
    left_processes: int = 0
    """Processes that agents left behind, which were killed."""
    shortened: int = 0
    """Attempts with more standard output than the store and graders get."""
    silent: int = 0
    """Rollouts that ended without any model call in the store."""
    stopped: str | None = None
    """Why the run stopped before its end, if it did."""
    problems: tuple[str, ...] = ()
    """Problems of grading, a sentence each."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Number of attempts of this start by the reason why they were lost or failed."""
    without_id: int = 0
    """Tasks whose id is a hash of their fields, since the file gives them none."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Task of each rollout, by its id."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """Number of each rollout among those of its task, by its id."""
    arms: Mapping[str, str | None] = field(default_factory=dict)
    """Arm of each rollout, by its id."""

    arm_names: Sequence[str] = ()
    """The arms in the order in which they were given."""
    copies: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Tasks that repeat another one under another id, as `tasks.copies_of` returns them."""
    second_chances: Collection[str] = frozenset()
    """Rollouts of an attempt after one that was lost, failed or timed out; not after one that the
    end of the runner cut off."""
    fingerprint: str = ""
    """Hash of the tasks."""

    @property
    def missing(self) -> int:
        """Number of planned rollouts that have not ended, or were lost."""
        return self.planned - sum(self.statuses.values()) + self.statuses.get(LOST, 0)

    @property
    def mean(self) -> float | None:
        """Mean reward of the graded rollouts."""
        return sum(self.rewards.values()) / len(self.rewards) if self.rewards else None

    @property
    def only_arm(self) -> str | None:
        """The arm of a run of one arm; None for a run without arms."""
        return self.arm_names[0] if self.arm_names else None

    def counted_task(self, rollout: str) -> str:
        """Return the task that a rollout counts for: copies of a task count as one."""
        task = self.tasks.get(rollout, rollout)
        return self.copies.get(task, (task, 0))[0]

    def places(self) -> "dict[str, Pair]":
        """Return the task of each rollout, and its number among those of the task and its copies.

        Rollouts of different arms or models with the same task and sample have the same place.
        """
        samples = 1 + max(self.samples.values(), default=0)
        found: dict[str, Pair] = {}
        for rollout, task in self.tasks.items():
            first, number = self.copies.get(task, (task, 0))
            found[rollout] = first, samples * number + self.samples[rollout]
        return found

    def pairs(self, arm: str | None = None) -> "dict[Pair, float]":
        """Return the rewards by task and sample, of one arm or of a run without arms."""
        places = self.places()
        return {
            places[rollout]: value
            for rollout, value in self.rewards.items()
            if self.arms.get(rollout) == arm
        }

    def side(self, name: str, arm: str | None = None) -> "Side":
        """Return what `compare` needs of one arm, or of a run without arms."""
        from otel_lightning.learner.evaluate.paired import Side

        places = self.places()
        again = {places[r] for r in self.second_chances if self.arms.get(r) == arm}
        return Side(name, self.pairs(arm), again)

    def compare(self, least_gain: float = 0.0) -> "list[PairedComparison]":
        """Compare each arm with the first one, on the same tasks and samples.

        The level of the tests is divided by the number of comparisons. A run with fewer than two
        arms has none.
        """
        named = [arm for arm in dict.fromkeys(self.arm_names) if arm is not None]
        if not named:
            return []
        from otel_lightning.learner.evaluate.confidence import ALPHA
        from otel_lightning.learner.evaluate.paired import compare_sides

        base, candidates = named[0], named[1:]
        return [
            compare_sides(
                self.side(base, base),
                self.side(candidate, candidate),
                least_gain,
                alpha=ALPHA / len(candidates),
            )
            for candidate in candidates
        ]


def in_words(statuses: Mapping[str, int]) -> str:
    """Write the number of rollouts by status, each status apart.

    Example:
        >>> in_words({"ok": 3, "timeout": 1})
        'ok 3, failed 0, timed out 1, lost 0'
    """
    names = {OK: "ok", FAILED: "failed", TIMEOUT: "timed out", LOST: "lost"}
    return ", ".join(f"{name} {Counter(statuses)[status]}" for status, name in names.items())


def interval(report: Report) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean reward, over tasks.

    Rollouts of one task are correlated, so a task is one observation. If all rewards are 0, or all
    are 1, it is the exact interval. Two imagined rollouts of each are added to other rewards of 0
    and 1, as `policy` does for each arm.

    Returns:
        The interval; None if all tasks are equal and their rewards are not 0 or 1, since nobody
        knows the range, or if there is only one.

    Source:
        Clopper & Pearson, The use of confidence or fiducial limits (1934), for 0 or all of n.
    """
    values = set(report.rewards.values())
    by_task: dict[str, list[float]] = {}
    for rollout, value in report.rewards.items():
        by_task.setdefault(report.counted_task(rollout), []).append(value)
    tasks = list(by_task.values())
    if len(values) == 1:
        bound = TAIL ** (1 / len(tasks))
        return {1.0: (bound, 1.0), 0.0: (0.0, 1 - bound)}.get(values.pop())
    sums, rollouts = [sum(some) for some in tasks], [len(some) for some in tasks]
    if values != {0.0, 1.0}:
        return interval_of_mean(sums, rollouts)
    low, high = interval_of_mean(sums, rollouts, [(0.0, 2.0), (1.0, 2.0)]) or (0.0, 1.0)
    return max(low, 0.0), min(high, 1.0)
