"""Count tasks as one task where the whole log comes in multiples, as copies do.

Copies that have no text and other times than their originals still have the same arms, propensities
and outcomes. One such pair proves nothing, since there are few possible outcomes. But if each task
was recorded ten times, the number of tasks with any given contents is a multiple of ten.
"""

from dataclasses import replace
from math import exp, pi

import numpy as np
import polars as pl

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.policy.assumptions.copies import SIGNIFICANCE, with_common_tasks
from otel_lightning.learner.policy.assumptions.units import Units

MAX_COPIES = 100
"""Largest number of copies that is looked for; of more, their divisors are found."""
MIN_CONTENTS = 3
"""Smallest number of contents that can tell copies from chance."""
TERMS = 20
"""Number of terms of a sum whose terms soon become 0."""


def with_multiples_as_one(rows: pl.DataFrame, units: Units) -> tuple[pl.DataFrame, Units]:
    """Give as many tasks with the same contents a common task_hash as there are copies.

    Args:
        rows: The choices: columns task_hash, arm, outcome, propensity and policy_version.
        units: The rollouts that already count as one task.
    """
    tasks = _contents(rows)
    counts = tasks["content"].value_counts()["count"].to_numpy().astype(np.int64)
    copies = copies_of(counts, len(counts) - _fixed(rows))
    if copies == 1:
        return rows, units
    # All tasks with the same contents are alike, so it does not matter which ones are put together.
    together = pl.struct("content", pl.int_range(pl.len()).over("content") // copies).hash()
    numbers = rows.select("task_hash").with_row_index("row")
    shared = numbers.join(tasks.with_columns(value=together), on="task_hash")
    before = units.before or tasks.height
    rows = with_common_tasks(rows, shared)
    after = rows["task_hash"].n_unique()
    return rows, replace(units, copies=copies, before=before, after=after)


def copies_of(counts: Integers, degrees_of_freedom: int) -> int:
    """Find how many times each task was recorded; 1 if chance explains the numbers of tasks.

    However tasks are drawn, if each is drawn independently of the others, the number of tasks with
    given contents is nearly a Poisson number. It is a multiple of k with a probability of about
    1 / k, and so are all of these numbers only by chance. A few may be none, since a copy may be
    lost. Any number of copies is found by chance with a probability of at most `SIGNIFICANCE`.

    Args:
        counts: Number of tasks with each contents, shape [M].
        degrees_of_freedom: How many of these numbers do not follow from the others.
    """
    if degrees_of_freedom < MIN_CONTENTS:
        return 1
    numbers = range(2, MAX_COPIES + 1)
    least = int(counts.min())
    chances = np.array([_chance_of_multiple(number, max(number, least)) for number in numbers])
    for copies in range(min(MAX_COPIES, int(counts.max())), 1, -1):
        others = int((counts % copies != 0).sum())
        # More copies with as few exceptions would have been found as well.
        chance = _tails(
            degrees_of_freedom - others, degrees_of_freedom, chances[copies - 2 :]
        ).sum()
        # Each number of exceptions has its share of the chance; the sum over all of them is 1.
        if chance < SIGNIFICANCE * (0.3 / (others * (others + 1)) if others else 0.7):
            return copies
    return 1


def _fixed(rows: pl.DataFrame) -> int:
    """Count the numbers that follow from others: one, or one for each arm if arms are balanced.

    Arms that were given in turn, and not drawn, have exactly the shares that were planned.
    """
    planned = rows.height * pl.mean("propensity")
    arms = rows.group_by("arm").agg(is_planned=(pl.len() - planned).abs() < 1)
    return arms.height if arms["is_planned"].all() else 1


def _contents(rows: pl.DataFrame) -> pl.DataFrame:
    """Hash the arms, propensities and outcomes of each task: columns task_hash and content."""
    content = pl.struct("policy_version", "arm", "propensity", "outcome").hash()
    # A sum does not depend on the order of a task's rollouts.
    tasks = rows.select("task_hash", content=content).group_by("task_hash", maintain_order=True)
    return tasks.agg(pl.sum("content"))


def _chance_of_multiple(number: int, mean: int) -> float:
    """Compute the probability that a Poisson number is a multiple of another number.

    The Poisson distribution is replaced by the normal one of the same mean and variance, and the
    sum over the multiples by Poisson's summation formula.
    """
    waves = (exp(-2 * mean * (pi * term / number) ** 2) for term in range(1, TERMS + 1))
    return (1 + 2 * sum(waves)) / number


def _tails(hits: int, draws: int, chances: Floats) -> Floats:
    """Bound the probability of at least this many hits (binomial), for each chance of a hit.

    Source:
        Chernoff's bound in Hoeffding's form, exp(-n KL(hits / n, p)).
    """
    share = hits / draws
    rest = (1 - share) * np.log((1 - share) / (1 - chances)) if share < 1 else 0.0
    bounds: Floats = np.exp(-draws * (share * np.log(max(share, 1e-9) / chances) + rest))
    return np.where(share > chances, bounds, 1.0)
