"""Compare two arms or models that ran on the same tasks and seeds.

Two tests must agree, both over tasks, because rollouts of one task are correlated: a lower bound of
the mean difference, and a randomisation test, which stays exact for few tasks. For rewards of 0 and
1 and one sample per task the randomisation test is McNemar's exact test.

For rewards of 0 and 1 the bound is that of a bootstrap. A bootstrap resamples what was seen, so for
other rewards it knows nothing of a rare large loss that is in none of the rollouts. Their bound
comes from betting on a fixed number of tasks, which allows for such a loss and needs the range of
the rewards.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import comb

import numpy as np

from otel_lightning.collector.terminal.quantities import decimal, number_of
from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.betting import Scores
from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.reward_range import Range, Rewards
from otel_lightning.learner.evaluate.reward_range import reward_range as range_of
from otel_lightning.learner.evaluate.star_bets import lower_bound, rejected

Pair = tuple[str, int]
"""A task and a sample."""

RESAMPLES = 4000
FLIPS = 20_000
PARTS = 20
"""Number of parts in which resamples are drawn, so that memory stays small."""
EXACT_TASKS = 14
"""Up to this number of tasks, all signs are tried; above it, `FLIPS` drawn ones."""
MAX_UNPAIRED_SHARE = 0.05
"""Share of the pairs that may lack a reward on one side."""


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
    """95 % bootstrap interval of the gain, two-sided."""
    p_value: float
    """Of the randomisation test that the gain is not above `least_gain`, one-sided."""
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
        return (
            f"{self.base} {decimal(self.base_mean)}, {self.other} {decimal(self.other_mean)} on "
            f"{number_of(self.pairs, 'pair')} of {number_of(self.tasks, 'task')}: "
            f"gain {decimal(self.gain, '+')}, 95 % interval "
            f"{decimal(self.lower, '+')} to {decimal(self.upper, '+')}, "
            f"p = {self.p_value:.2g} ({self.test})."
        )


def compare(  # noqa: PLR0913 - who is compared, and what it takes to pass
    base: tuple[str, Mapping[Pair, float]],
    other: tuple[str, Mapping[Pair, float]],
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
        seed: Of the bootstrap and of the drawn signs.
        alpha: Level of both one-sided tests. Divide it by the number of candidates.
        reward_range: Least and greatest possible reward. Without it, rewards that are not all 0 or
            1 are refused.

    Raises:
        DataError: If a reward is outside `reward_range`.
    """
    rewards = _range(base[1], other[1], reward_range)
    shared = sorted(base[1].keys() & other[1].keys())
    unpaired = len(base[1].keys() ^ other[1].keys())
    by_task: dict[str, list[tuple[float, float]]] = {}
    for pair in shared:
        by_task.setdefault(pair[0], []).append((base[1][pair], other[1][pair]))
    # [T, 2]: the mean of each task's samples under both. The reshape keeps this shape without
    # tasks.
    means = np.array([np.mean(rows, axis=0) for rows in by_task.values()]).reshape(-1, 2)
    differences = means[:, 1] - means[:, 0]
    rng = np.random.default_rng(seed)
    drawn = _bootstrap(differences, rng)
    lower, upper = np.quantile(drawn, [0.025, 0.975]) if len(drawn) else (np.nan, np.nan)
    binary = len(by_task) == len(shared) and set(np.unique(means)) <= {0.0, 1.0}
    # McNemar's test knows only better and worse; with a least gain differences have to be compared.
    exact = binary and least_gain == 0
    p_value = _mcnemar(differences) if exact else _signs(differences - least_gain, rng)
    gain = float(differences.mean()) if len(differences) else float("nan")
    found = PairedComparison(
        base=base[0],
        other=other[0],
        pairs=len(shared),
        tasks=len(by_task),
        unpaired=unpaired,
        base_mean=float(means[:, 0].mean()) if len(means) else float("nan"),
        other_mean=float(means[:, 1].mean()) if len(means) else float("nan"),
        gain=gain,
        lower=float(lower),
        upper=float(upper),
        p_value=p_value,
        test="McNemar's exact test" if exact else "randomisation test over tasks",
        least_gain=least_gain,
        reward_range=None if rewards.refusals else rewards.range,
    )
    if rewards.assumed:
        bound = float(np.quantile(drawn, alpha)) if len(drawn) else float("nan")
    else:
        bound = _bound(differences, rewards.range, least_gain, alpha, seed)
    judged = _judged(found, rewards, bound, alpha)
    if not (judged.passed and unpaired):
        return judged
    least = _at_worst(base[1], other[1], rewards.range)
    sides = (base[0], least[0]), (other[0], least[1])
    worst = compare(*sides, least_gain, seed, alpha, reward_range=reward_range)
    return replace(judged, refusals=tuple(_of_unpaired(judged, worst)))


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
    scores = Scores(shuffled, lowest=low - high)
    bound = lower_bound(scores, high - low, alpha)
    if not len(differences) or not low - high < least_gain < high - low:
        return bound
    # The bound is on a coarse grid, so the gain that decides is tested by itself.
    if rejected(scores, np.array([least_gain]), alpha)[0]:
        return max(bound, float(np.nextafter(least_gain, np.inf)))
    return min(bound, least_gain)


def _at_worst(
    base: Mapping[Pair, float], other: Mapping[Pair, float], limits: Range
) -> tuple[dict[Pair, float], dict[Pair, float]]:
    """Return both with rewards for the pairs that one of them lacks.

    A missing reward of the base counts as the greatest possible one, one of the other as the least.

    Source:
        Manski, Nonparametric bounds on treatment effects (1990).
    """
    low, high = limits
    pairs = base.keys() | other.keys()
    return (
        {pair: base.get(pair, high) for pair in pairs},
        {pair: other.get(pair, low) for pair in pairs},
    )


def _of_unpaired(found: PairedComparison, worst: PairedComparison) -> Iterator[str]:
    """Yield a refusal if the gain does not hold whatever the rewards are that one side lacks."""
    for reason in worst.refusals:
        yield (
            f"{number_of(found.unpaired, 'pair has', 'pairs have')} a reward on one side only: if "
            f"{found.other} did badly in those that it lacks, {reason}; say what they are worth "
            "with --failed-reward"
        )


def _judged(
    found: PairedComparison, rewards: Rewards, bound: float, alpha: float
) -> PairedComparison:
    refusals = list(rewards.refusals)
    if not found.pairs:
        refusals.append("no task has a reward on both sides")
    elif found.unpaired > MAX_UNPAIRED_SHARE * (found.pairs + found.unpaired):
        refusals.append(
            f"{number_of(found.unpaired, 'pair has', 'pairs have')} a reward on one side only, "
            "and those left out may be "
            "the bad ones; say what they are worth with --failed-reward"
        )
    if found.pairs and not bound > found.least_gain:
        low, high = rewards.range
        within = "" if rewards.assumed else f" for rewards in [{low:g}, {high:g}]"
        refusals.append(
            f"the gain is at least {decimal(bound, '+')} with {1 - alpha:.3g} confidence{within}, "
            f"not above {found.least_gain:g}"
        )
    elif found.pairs and not found.p_value < alpha:
        refusals.append(f"p = {found.p_value:.2g} is not below {alpha:.2g} ({found.test})")
    return replace(found, refusals=tuple(refusals))


def _bootstrap(differences: Floats, rng: np.random.Generator) -> Floats:
    """Return the mean of each resample of the tasks, shape [RESAMPLES]."""
    count = len(differences)
    if not count:
        return np.empty(0)
    parts = [
        differences[rng.integers(count, size=(RESAMPLES // PARTS, count))].mean(axis=1)
        for _ in range(PARTS)
    ]
    return np.concatenate(parts)


def _signs(differences: Floats, rng: np.random.Generator) -> float:
    """Return how often random signs give a sum as large, one-sided.

    Source:
        Edgington & Onghena, Randomization tests (4th ed., 2007), chapter 6.
    """
    count = len(differences)
    if not count:
        return 1.0
    # A sum that equals the seen one up to rounding counts as large.
    seen = float(differences.sum()) - 1e-9 * float(np.abs(differences).sum())
    if count <= EXACT_TASKS:
        # [2^T, T]: each row is one choice of signs, the binary digits of its number.
        bits = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
        return float(np.mean((1.0 - 2.0 * bits) @ differences >= seen))
    larger = 0
    for _ in range(PARTS):
        signs = 1.0 - 2.0 * rng.integers(0, 2, (FLIPS // PARTS, count))
        larger += int((signs @ differences >= seen).sum())
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
