"""Compare two arms or models that ran on the same tasks and seeds.

Two tests must agree, both over tasks, because rollouts of one task are correlated: a lower bound of
the mean difference, and a randomisation test, which stays exact for few tasks. For rewards of 0 and
1 and one sample per task the randomisation test is McNemar's exact test.

For rewards of 0 and 1 and one sample per task the bound is that of a bootstrap. With other rewards,
a task can win a little or lose much. A bootstrap resamples the observed rollouts, so it cannot
account for a rare large loss that none of them has. Then the bound comes from betting on a fixed
number of tasks, which allows for such a loss and needs the range of the rewards.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import comb
from typing import NamedTuple

import numpy as np

from otel_lightning.collector.terminal.quantities import decimal, number_of
from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.betting import Scores
from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.few_tasks import interval_of_mean
from otel_lightning.learner.evaluate.reward_range import Range, Rewards
from otel_lightning.learner.evaluate.reward_range import reward_range as range_of
from otel_lightning.learner.evaluate.star_bets import bound_beside

Pair = tuple[str, int]
"""A task, and the number of a rollout among those of the task."""

RESAMPLES = 4000
"""Number of bootstrap samples."""
FLIPS = 20_000
"""Number of random choices of signs, if there are too many to try all."""
PARTS = 20
"""Number of parts in which resamples are drawn, so that memory stays small."""
EXACT_TASKS = 14
"""Up to this number of tasks, all signs are tried; above it, `FLIPS` drawn ones."""
MAX_UNPAIRED_SHARE = 0.05
"""Share of the pairs that may lack a reward on one side."""


class Side(NamedTuple):
    """One of the two that are compared."""

    name: str
    rewards: Mapping[Pair, float]
    repeated: Collection[Pair] = ()
    """Rollouts of a further attempt, after one that was lost or failed."""


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """The difference between two arms or models on the same tasks."""

    base: str
    other: str
    pairs: int
    tasks: int
    unpaired: int
    """Pairs with a reward on one side only, which are left out; what passes holds whatever they
    are."""
    base_mean: float
    other_mean: float
    gain: float
    """Mean over tasks of the difference of their mean rewards."""
    lower: float
    upper: float
    """95 % interval of the gain, two-sided; NaN if nothing tells how much tasks differ."""
    p_value: float
    """P-value of the randomisation test that the gain is not above `least_gain`, one-sided."""
    test: str
    least_gain: float = 0.0
    reward_range: Range | None = None
    """Least and greatest possible reward; None if it is unknown; then nothing passes."""
    refusals: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether the other is better beyond chance."""
        return not self.refusals

    def __str__(self) -> str:
        if not self.pairs:
            return f"{self.base} and {self.other}: no task has a reward on both sides."
        interval = f"95 % interval {decimal(self.lower, '+')} to {decimal(self.upper, '+')}"
        if math.isnan(self.lower):
            alike = "there is one task" if self.tasks == 1 else "it is the same in all tasks"
            interval = f"no interval, since {alike}"
        return (
            f"{self.base} {decimal(self.base_mean)}, {self.other} {decimal(self.other_mean)} on "
            f"{number_of(self.pairs, 'pair')} of {number_of(self.tasks, 'task')}: "
            f"gain {decimal(self.gain, '+')}, {interval}, p = {self.p_value:.2g} ({self.test})."
        )


def compare_sides(  # noqa: PLR0913 - who is compared, and what it takes to pass
    base: Side | tuple[str, Mapping[Pair, float]],
    other: Side | tuple[str, Mapping[Pair, float]],
    least_gain: float = 0.0,
    seed: int = 0,
    alpha: float = ALPHA,
    *,
    reward_range: Range | None = None,
) -> PairedComparison:
    """Compare rewards of the same tasks and samples.

    Args:
        base: Name and rewards of what is there now.
        other: Name and rewards of the candidate.
        least_gain: The candidate passes only if it gains more than this.
        seed: Seed of the bootstrap's bound, of the random order and of the drawn signs.
        alpha: Level of both one-sided tests. Divide it by the number of candidates.
        reward_range: Least and greatest possible reward. Without it, rewards that are not all 0 or
            1 are refused.

    Raises:
        DataError: If a reward is outside `reward_range`.
    """
    base, other = Side(*base), Side(*other)
    rewards = _range(base.rewards, other.rewards, reward_range)
    pairs = _pair_up(base.rewards, other.rewards)
    differences = pairs.differences
    rng = np.random.default_rng(seed)
    lower, upper = _interval(pairs, rewards)
    p_value, test = _p_value(pairs, least_gain, rng)
    comparison = PairedComparison(
        base=base.name,
        other=other.name,
        pairs=pairs.paired,
        tasks=len(differences),
        unpaired=pairs.unpaired,
        base_mean=_mean(pairs.means[:, 0]),
        other_mean=_mean(pairs.means[:, 1]),
        gain=_mean(differences),
        lower=lower,
        upper=upper,
        p_value=p_value,
        test=test,
        least_gain=least_gain,
        reward_range=None if rewards.refusals else rewards.range,
    )
    # McNemar's test is exact, so it needs no betting; without a range the other is refused anyway.
    if rewards.refusals or (rewards.assumed and _by_mcnemar(pairs, least_gain)):
        bound = _bootstrap_bound(differences, alpha, rng)
    else:
        bound = _bound(differences, rewards.range, least_gain, alpha, seed)
    judged = replace(comparison, refusals=tuple(_refusals(comparison, rewards, bound, alpha)))
    chances = _second_chances(base, other)
    if not judged.passed or not (pairs.unpaired or chances):
        return judged
    # A candidate that passes must also pass with the unknown rewards at their worst.
    worst_sides = _at_worst(base, other, chances, rewards.range)
    worst = compare_sides(*worst_sides, least_gain, seed, alpha, reward_range=reward_range)
    return replace(judged, refusals=tuple(_at_worst_refused(judged, worst, len(chances))))


class _Pairs(NamedTuple):
    """The pairs that have a reward on both sides, averaged for each task."""

    means: Floats
    """Mean reward of each task under the base and under the other, shape [T, 2]."""
    paired: int
    """Number of pairs with a reward on both sides."""
    unpaired: int
    """Pairs with a reward on one side only."""

    @property
    def differences(self) -> Floats:
        """Gain of each task, shape [T]."""
        return np.asarray(self.means[:, 1] - self.means[:, 0], dtype=np.float64)

    @property
    def is_binary(self) -> bool:
        """Whether each task has one pair, with rewards of 0 or 1."""
        return len(self.means) == self.paired and set(np.unique(self.means)) <= {0.0, 1.0}


def _pair_up(base: Mapping[Pair, float], other: Mapping[Pair, float]) -> _Pairs:
    by_task: dict[str, list[tuple[float, float]]] = {}
    shared = sorted(base.keys() & other.keys())
    for pair in shared:
        by_task.setdefault(pair[0], []).append((base[pair], other[pair]))
    # The reshape keeps the shape [T, 2] without tasks.
    means = np.array([np.mean(rows, axis=0) for rows in by_task.values()]).reshape(-1, 2)
    return _Pairs(means, len(shared), len(base.keys() ^ other.keys()))


def _mean(values: Floats) -> float:
    """Compute the mean; NaN without values."""
    return float(values.mean()) if len(values) else float("nan")


def _range(base: Mapping[Pair, float], other: Mapping[Pair, float], given: Range | None) -> Rewards:
    """Find the range of the rewards; it counts as assumed if all of them are 0 or 1."""
    rewards = np.array([*base.values(), *other.values()])
    # The range 0,1 says no more than rewards of 0 and 1 do.
    if not len(rewards) or (given == (0.0, 1.0) and bool(np.isin(rewards, given).all())):
        return Rewards((0.0, 1.0), assumed=True)
    return range_of(rewards, given)


def _bound(differences: Floats, limits: Range, least_gain: float, alpha: float, seed: int) -> float:
    """Bound the gain from below by betting; the bound is above `least_gain` if that is rejected."""
    low, high = limits
    # A random order, since the order of the ids may follow how hard the tasks are.
    shuffled = np.random.default_rng(seed).permutation(differences)
    return bound_beside(Scores(shuffled, low - high), high - low, least_gain, alpha)


def _second_chances(base: Side, other: Side) -> list[Pair]:
    """Return the rollouts of the other that were attempted again, beyond the base's number.

    An attempt that was lost or failed, and was repeated, was drawn twice. Faults of machines do so
    to both sides alike, up to one standard deviation of the difference of two such numbers. A
    candidate that makes the agent crash does so to its own bad rollouts, and the better ones stay.
    Which ones would not have been repeated is unknown, so the best of them are returned.
    """
    again = [pair for pair in other.repeated if pair in other.rewards]
    faults = sum(pair in base.rewards for pair in base.repeated)
    beyond = len(again) - faults - round((2 * faults) ** 0.5)
    return sorted(again, key=lambda pair: (-other.rewards[pair], pair))[: max(beyond, 0)]


def _at_worst(
    base: Side, other: Side, chances: Collection[Pair], limits: Range
) -> tuple[Side, Side]:
    """Return both with rewards for the pairs that one of them lacks.

    A missing reward of the base counts as the greatest possible one, one of the other as the least.
    So do the rewards of the other that it owes to a second chance.

    Source:
        Manski, Nonparametric bounds on treatment effects (1990).
    """
    low, high = limits
    pairs = base.rewards.keys() | other.rewards.keys()
    at_worst = {pair: other.rewards.get(pair, low) for pair in pairs} | dict.fromkeys(chances, low)
    return (
        Side(base.name, {pair: base.rewards.get(pair, high) for pair in pairs}),
        Side(other.name, at_worst),
    )


def _at_worst_refused(
    judged: PairedComparison, worst: PairedComparison, chances: int
) -> Iterator[str]:
    """Yield a refusal if the gain does not hold whatever the unknown rewards are."""
    have = number_of(judged.unpaired, "pair has", "pairs have")
    more = number_of(chances, "more rollout", "more rollouts")
    were = "was" if chances == 1 else "were"
    for reason in worst.refusals:
        if judged.unpaired:
            yield (
                f"{have} a reward on one side only: if {judged.other} did badly in those that it "
                f"lacks, {reason}; say what they are worth with --failed-reward"
            )
        if chances:
            yield (
                f"{more} of {judged.other} than of {judged.base} {were} attempted again, after an "
                f"attempt that was lost or failed: if {judged.other} caused that, {reason}; the "
                "table attempts has the reasons"
            )


def _refusals(
    comparison: PairedComparison, rewards: Rewards, bound: float, alpha: float
) -> list[str]:
    """Return the reasons to refuse the other.

    Args:
        comparison: The measurements.
        rewards: Range of the rewards, and why it is not reliable.
        bound: Lower bound of the gain.
        alpha: Level of both tests.
    """
    refusals = list(rewards.refusals)
    pairs, unpaired = comparison.pairs, comparison.unpaired
    if not pairs:
        return [*refusals, "no task has a reward on both sides"]
    if unpaired > MAX_UNPAIRED_SHARE * (pairs + unpaired):
        refusals.append(
            f"{number_of(unpaired, 'pair has', 'pairs have')} a reward on one side only, and those "
            "left out may be the bad ones; say what they are worth with --failed-reward"
        )
    if not bound > comparison.least_gain:
        low, high = rewards.range
        within = "" if rewards.assumed else f" for rewards in [{low:g}, {high:g}]"
        refusals.append(
            f"the gain is at least {decimal(bound, '+')} with {1 - alpha:.3g} confidence{within}, "
            f"not above {comparison.least_gain:g}"
        )
    elif not comparison.p_value < alpha:
        p_value = f"p = {comparison.p_value:.2g}"
        refusals.append(f"{p_value} is not below {alpha:.2g} ({comparison.test})")
    return refusals


def _by_mcnemar(pairs: _Pairs, least_gain: float) -> bool:
    """Return whether McNemar's test fits: it knows only better and worse, not by how much."""
    return pairs.is_binary and least_gain == 0


def _p_value(pairs: _Pairs, least_gain: float, rng: np.random.Generator) -> tuple[float, str]:
    """Test that the gain is not above `least_gain`; return the p-value and the test's name."""
    if _by_mcnemar(pairs, least_gain):
        return _mcnemar(pairs.differences), "McNemar's exact test"
    return _signs(pairs.differences - least_gain, rng), "randomisation test over tasks"


def _interval(pairs: _Pairs, rewards: Rewards) -> tuple[float, float]:
    """Bound the gain with 95 % confidence, two-sided; NaN if nothing tells how tasks differ."""
    differences = pairs.differences.tolist()
    low, high = rewards.range
    # One pair of 0 and 1, one of 1 and 0, and two of equal rewards, each half.
    of_pairs = [(1.0, 0.5), (-1.0, 0.5), (0.0, 1.0)] if rewards.is_success else []
    share = len(differences) / max(pairs.paired, 1)
    imagined = [(value, count * share) for value, count in of_pairs]
    found = interval_of_mean(differences, [1] * len(differences), imagined)
    if found is None:
        return math.nan, math.nan
    if rewards.refusals:  # the range is unknown
        return found
    return max(found[0], low - high), min(found[1], high - low)


def _bootstrap_bound(differences: Floats, alpha: float, rng: np.random.Generator) -> float:
    """Bound the gain from below by resampling the tasks; NaN without tasks."""
    count = len(differences)
    if not count:
        return math.nan
    parts = [
        differences[rng.integers(count, size=(RESAMPLES // PARTS, count))].mean(axis=1)
        for _ in range(PARTS)
    ]
    return float(np.quantile(np.concatenate(parts), alpha))


def _signs(differences: Floats, rng: np.random.Generator) -> float:
    """Return how often random signs give a sum as large, one-sided.

    Source:
        Edgington & Onghena, Randomization tests (4th ed., 2007), chapter 6.
    """
    count = len(differences)
    if not count:
        return 1.0
    # A sum that equals the observed one up to rounding counts as large.
    observed = float(differences.sum()) - 1e-9 * float(np.abs(differences).sum())
    if count <= EXACT_TASKS:
        # [2^T, T]: each row is one choice of signs, the binary digits of its number.
        bits = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
        return float(np.mean((1.0 - 2.0 * bits) @ differences >= observed))
    larger = 0
    for _ in range(PARTS):
        signs = 1.0 - 2.0 * rng.integers(0, 2, (FLIPS // PARTS, count))
        larger += int((signs @ differences >= observed).sum())
    # The signs that were observed count as one draw, so that p is never 0.
    return (larger + 1) / (FLIPS + 1)


def _mcnemar(differences: Floats) -> float:
    """Return the exact one-sided p-value of McNemar's test, from differences of -1, 0 and 1.

    Source:
        McNemar (1947); exact form: binomial test of the discordant pairs at 1/2.

    Example:
        >>> round(_mcnemar(np.array([1.0] * 8 + [-1.0] + [0.0] * 20)), 4)
        0.0195
    """
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    discordant = better + worse
    return sum(comb(discordant, k) for k in range(better, discordant + 1)) / 2.0**discordant
