"""Were the arms drawn at random? Without propensities in the traces, test it before learning.

The frequency of an arm is its propensity only if nothing that is known of a rollout tells its arm.
If easy inputs got one arm more often, that arm looks better, and no interval shows it.
"""

import re
import zlib
from collections.abc import Iterable
from math import erfc

import numpy as np
import polars as pl

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.errors import DataError

SIGNIFICANCE = 0.01
"""Significance level of each of the five tests: random arms are refused in at most 5 %."""
SIGNIFICANCE_OF_RECORDED = 0.001
"""Significance level of the test of recorded propensities."""
PERMUTATIONS = 1000
MAX_ROLLOUTS = 20_000
"""Largest number of rollouts in a permutation test."""
MAX_INPUTS = 4_000
"""Largest number of rollouts whose inputs are read."""
MIN_REPEATED_SHARE = 0.5
"""Smallest share of the rollouts whose task has several rollouts of the same policy version. Only
among them can a task that decides the arm be told from chance."""
WORDS = 256
"""Number of columns that the words of an input are hashed into."""
MIN_ROLLOUTS_PER_ARM = 10
"""Smallest number of rollouts of an arm for a test of their tasks' rewards."""
MIN_INPUTS = 100
"""Smallest number of inputs for a test of their words."""
RIDGE = 10.0
TENTHS = 10

NEWEST_WEIGHT = 0.3
"""Weight of the newest rollout in the mean reward of the rollouts just before (exponential)."""
_RESIDUAL, _TASK = pl.col("residual"), ("version", "task")
OTHERS = {
    "the task's other rollouts": (((_RESIDUAL.sum() - _RESIDUAL) / (pl.len() - 1)).over(_TASK)),
    # Later ones may depend on the arm, as where a task is tried until it succeeds.
    "the task's earlier rollouts": (
        ((_RESIDUAL.cum_sum() - _RESIDUAL) / pl.int_range(pl.len())).over(_TASK)
    ),
    # Only if the one before has another time, so that their order is known.
    "the rollouts just before": (
        pl.when(pl.col("time") != pl.col("time").shift())
        .then(_RESIDUAL.ewm_mean(alpha=NEWEST_WEIGHT).shift())
        .over("version")
    ),
}
"""Mean reward of other rollouts, from the means of their arms, by which rollouts these are."""

ANYWAY = (
    "If the arms were drawn at random all the same, say so with --propensities random; else send "
    "the propensity with each choice"
)


def check_random(rows: pl.DataFrame, inputs: pl.DataFrame) -> None:
    """Refuse frequencies as propensities if something that is known of a rollout tells its arm.

    Args:
        rows: The choices: columns rollout_id, arm, policy_version, task, time and outcome.
        inputs: The first input of some of these rollouts: columns rollout_id, service_name, input.

    Raises:
        DataError: If the arm depends on the task, on how easy the task is, on the time, on the
            service or on the words of the input beyond chance, or if too few tasks have several
            rollouts to tell.
    """
    rows = rows.with_columns(
        version=pl.col("policy_version").fill_null("").rank("dense").cast(pl.Int64) - 1,
        number=pl.col("arm").rank("dense").cast(pl.Int64) - 1,
        part=_tenths(rows["time"]),
    )
    rows = rows.with_columns(weight=pl.lit(1.0))
    _check_repeated(rows)
    known = rows.join(inputs, on="rollout_id", maintain_order="left")
    repeated = rows.filter(pl.len().over("version", "task") > 1)
    p_values = {
        "how easy the task is: it can be told from the rewards of the task's other rollouts": (
            _by_rewards(repeated, "the task's other rollouts")
        ),
        "the time: the share of an arm changed while the log grew, without a new policy "
        "version; --since and --until choose a part": _by_group(rows.drop_nulls("part"), "part"),
        "the service": _by_group(known.drop_nulls("service_name"), "service_name"),
        "the words of the input": _by_words(known.drop_nulls("input")),
        "the task: rollouts of one task have the same arm more often than by chance": (
            _by_group(repeated, "task")
        ),
    }
    wrong = [name for name, p_value in p_values.items() if p_value < SIGNIFICANCE]
    if wrong:
        raise DataError(
            f"The frequencies of the arms are no propensities, because the arm depends on "
            f"{wrong[0]}. An arm that got the easier inputs looks better. {ANYWAY}."
        )


def check_ease(rows: pl.DataFrame) -> None:
    """Refuse recorded propensities if the arm depends on how easy the task is, or on the time.

    A policy may see the input and record how often it gives each arm, whatever the input. Then the
    arm that gets the easier inputs looks better. The rewards of the task's earlier rollouts tell
    how easy it is, and those of the rollouts just before how easy tasks are then. Only policy
    versions in which each arm has one propensity are tested: others say that they see something.

    Args:
        rows: The choices in time order: columns task_hash, arm, outcome, propensity,
            policy_version and time.

    Raises:
        DataError: If an arm can be told from the rewards of either.
    """
    every = max(rows.height // MAX_ROLLOUTS, 1)
    some = rows.filter(rows["task_hash"].to_numpy() // 2**20 % every == 0).select(
        "arm", "outcome", "propensity", "time", task="task_hash", version="policy_version"
    )
    several = pl.n_unique("propensity").over("version", "arm").max().over("version") > 1
    share = pl.len().over("version", "arm") / pl.len().over("version")
    # If arms are drawn as the propensities p say, [arm] / p is 1 on average, whatever the policy
    # saw. Where each arm has one propensity, its share needs no correction.
    weight = pl.when(several).then(share / pl.col("propensity")).otherwise(1.0)
    some = some.drop_nulls("propensity").with_columns(number="arm", weight=weight)
    for of in ("the task's earlier rollouts", "the rollouts just before"):
        if 2 * _by_rewards(some, of) < SIGNIFICANCE_OF_RECORDED:  # two tests
            raise DataError(
                "The arm depends on how easy the task is, or on the time, and its propensity does "
                f"not say so: it can be told from the rewards of {of}. An arm that got the easier "
                "inputs looks better. Record the propensity that the arm had for its input at that "
                "time, or say with --task-by id that the arms were drawn regardless of both."
            )


def _check_repeated(rows: pl.DataFrame) -> None:
    repeated = rows.filter(pl.len().over("version", "task") > 1).height
    if repeated < MIN_REPEATED_SHARE * rows.height:
        raise DataError(
            f"Only {repeated:,} of {rows.height:,} rollouts share their task with another one, so "
            "nothing can show that the arms were drawn regardless of the input, and frequencies "
            f"as propensities would be a guess. {ANYWAY}."
        )


def _tenths(times: pl.Series) -> pl.Series:
    """Number the tenth of the log in which each choice was made; null without a time."""
    order = times.rank("ordinal")
    known = max(times.len() - times.null_count(), 1)
    return ((order - 1) * TENTHS // known).cast(pl.Int64)


def _by_group(rows: pl.DataFrame, column: str) -> float:
    """Test by permutation whether the arms of a policy version differ between groups of rollouts.

    The statistic is Pearson's chi-square of arms by group, added up over policy versions.

    Args:
        rows: The choices, with columns version and number.
        column: The column whose values are the groups.

    Returns:
        The p-value: the probability of such differences if the arms were drawn at random; 1 for one
        group.
    """
    if rows.height > MAX_ROLLOUTS:
        rows = _sampled(rows, "task" if column == "task" else "rollout_id")
    group = rows.select(pl.struct("version", column).rank("dense")).to_series()
    groups, arms = _numbers(group), _numbers(rows["number"])
    if not len(arms) or groups.max() == 0:
        return 1.0
    versions = _numbers(rows["version"])
    order = np.argsort(versions, kind="stable")
    groups, arms, versions = groups[order], arms[order], versions[order]
    count = int(arms.max()) + 1
    sizes = np.bincount(groups).astype(float)
    of_version = np.bincount(versions * count + arms, minlength=count * (versions.max() + 1))
    shares = of_version.reshape(-1, count) / np.bincount(versions)[:, None]
    first = np.zeros(len(sizes), np.int64)
    first[groups] = versions
    expected = sizes[:, None] * shares[first]

    def statistic(taken: Integers) -> float:
        seen = np.bincount(groups * count + taken, minlength=expected.size).reshape(expected.shape)
        return float((seen**2 / np.where(expected > 0, expected, 1)).sum())

    rng, edges = np.random.default_rng(0), np.flatnonzero(np.diff(versions)) + 1
    observed, greater = statistic(arms), 0
    for _ in range(PERMUTATIONS):
        mixed = np.concatenate([rng.permutation(part) for part in np.split(arms, edges)])
        greater += statistic(mixed) >= observed - 1e-9
    return (greater + 1) / (PERMUTATIONS + 1)


def _by_rewards(rows: pl.DataFrame, of: str) -> float:
    """Test whether arms were given where the rewards of other rollouts are higher or lower.

    A reward is measured from the mean of its arm. This is the dependence that makes frequencies
    mislead, so the test is powerful where it matters.

    Args:
        rows: The choices in time order: columns version, task, number, outcome, time and weight,
            which corrects for what the propensities say.
        of: Which other rollouts: one of `OTHERS`.

    Returns:
        The p-value of such a dependence, by the normal approximation over tasks, times the number
        of arms (Bonferroni); 1 without rewards.
    """
    rows = rows.drop_nulls("outcome").with_columns(
        residual=pl.col("outcome") - pl.col("outcome").mean().over("version", "arm")
    )
    rows = rows.with_columns(others=OTHERS[of].fill_nan(None)).drop_nulls("others")
    others = pl.col("others") - pl.col("others").mean().over("version")
    counts = rows["number"].value_counts().filter(pl.col("count") >= MIN_ROLLOUTS_PER_ARM)
    smallest = 1.0
    for arm in counts["number"]:
        is_arm = (pl.col("number") == arm).cast(pl.Float64)
        share = is_arm.mean().over("version")
        products = rows.select(
            "version",
            "task",
            product=(is_arm * pl.col("weight") - share) * others,
            square=share * others**2,
        )
        by_task = products.group_by("version", "task", maintain_order=True).agg(pl.sum("product"))
        sums = by_task["product"].to_numpy()
        # No less than the variance of independent draws: a rare arm may miss all rare losses.
        error = max(float((sums**2).sum()), float(products["square"].sum())) ** 0.5
        if error > 0:
            smallest = min(smallest, 2 * len(counts) * _upper_tail(abs(float(sums.sum())) / error))
    return smallest


def _sampled(rows: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Select about `MAX_ROLLOUTS` rollouts, whole tasks or whole rollouts, by their hash."""
    place = rows[unit].hash(0).rank("dense")
    return rows.filter(place <= float(np.sort(place.to_numpy())[MAX_ROLLOUTS]))


def _by_words(rows: pl.DataFrame) -> float:
    """Test whether the words of the inputs predict the arm.

    A ridge regression on half of the rollouts predicts the arms of the other half. If the arms were
    drawn at random, the predictions are not correlated with them. Both halves take turns; their two
    scores are nearly the same number, so they are averaged as one.

    Returns:
        The p-value of such a correlation; 1 for few inputs.

    Source:
        Lopez-Paz & Oquab, Revisiting classifier two-sample tests (2017).
    """
    if rows.height < MIN_INPUTS:
        return 1.0
    words = _hashed(rows["input"])
    arms = np.eye(int(_numbers(rows["number"]).max()) + 1)[_numbers(rows["number"])]
    versions = _numbers(rows["version"])
    for version in np.unique(versions):  # shares differ between versions, as they should
        arms[versions == version] -= arms[versions == version].mean(axis=0)
    half = np.random.default_rng(0).permutation(len(arms)) % 2 == 0
    scores = []
    for fitted in (half, ~half):
        x, y = words[fitted], arms[fitted]
        weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(WORDS + 1), x.T @ y)
        predicted = words[~fitted] @ weights
        products = ((predicted - predicted.mean(axis=0)) * arms[~fitted]).sum(axis=1)
        scores.append(float(products.sum() / max(float((products**2).sum()) ** 0.5, 1e-12)))
    return _upper_tail(sum(scores) / 2)


def _upper_tail(score: float) -> float:
    """Compute the probability that a standard normal number is above `score`."""
    return erfc(score / 2**0.5) / 2


def _hashed(texts: Iterable[str]) -> Floats:
    """Count words by hash, and the length of each text, shape [N, WORDS + 1]."""
    rows = [_features_of_text(text) for text in texts]
    return np.array(rows, dtype=np.float64)


def _features_of_text(text: str) -> Floats:
    features = np.zeros(WORDS + 1)
    for word in re.findall(r"\w+", text.lower()):
        features[zlib.crc32(word.encode()) % WORDS] = 1.0
    features[WORDS] = np.log1p(len(text))
    return features


def _numbers(values: pl.Series) -> Integers:
    """Number the values from 0 without gaps, shape [N]."""
    return np.asarray(np.unique(values.to_numpy(), return_inverse=True)[1], dtype=np.int64)
