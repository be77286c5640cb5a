"""Find drift in the logged data: do the older and the newer half differ beyond chance?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import log, sqrt
from statistics import NormalDist

import numpy as np
import polars as pl

from otel_lightning.learner.arrays import Booleans, Floats, Integers
from otel_lightning.learner.evaluate.gains import task_numbers
from otel_lightning.learner.evaluate.gate import effective_sample_size
from otel_lightning.learner.policy.softmax.choice_arrays import numbered

SCALE_THRESHOLD = 3.0
"""Threshold of a difference of scales to be reported, in standard errors."""
FALSE_ALARMS = 0.0027
"""Probability of naming an arm whose mean did not move, over all arms and all policy versions. Each
new version is a new look at the log."""
PROPENSITY_TOLERANCE = 1e-3
"""Propensities closer than this count as equal, because a flag's weights are rounded."""
MIN_SCALE_RATIO = 1.5
"""Ratio of the scales of the rewards above which a change is reported."""
MIN_ROLLOUTS_FOR_SCALE = 30
"""Smallest number of rollouts that each half needs for a comparison of scales."""
MIN_ROLLOUTS = 10
"""Smallest number of rollouts of an arm, and smallest effective sample, that each half needs for a
comparison."""
HANDOVER = "60s"
"""Time after a change of the flag file in which some processes may still serve the old policy."""
MAX_RETURNS = 2
"""How often a version may return without a recorded rollback, by a file restored by hand."""


def drift(rows: pl.DataFrame) -> list[str]:
    """Compare the older half of the rollouts with the newer one.

    Rollouts weigh 1 / propensity: a policy that sees the input serves an arm to other inputs than
    before, and the arm's plain mean moves although no reward did.

    Args:
        rows: Columns arm, outcome, propensity, time; task and policy_version if they are known.

    Returns:
        A sentence for each arm whose mean reward changed, one for each arm in only one half, and
        one if the scale of the rewards changed.
    """
    timed = rows.drop_nulls("time") if rows["time"].null_count() else rows
    if timed.is_empty() or timed["time"].min() == timed["time"].max():
        return []
    # Halves by time, at the median: as many rollouts before as after it.
    newer = (timed["time"] > timed["time"].median()).to_numpy()
    arms = timed["arm"].unique().sort().to_list()
    halves = _halves(timed, numbered(timed["arm"], arms), newer)
    versions = timed["policy_version"].n_unique() if "policy_version" in timed.columns else 1
    threshold = NormalDist().inv_cdf(1 - FALSE_ALARMS / 2 / (len(arms) * versions))
    sentences = []
    for number, arm in enumerate(arms):
        older, later = (halves.of(2 * number + half) for half in range(2))
        if older and later:
            sentences += _moved(arm, older, later, threshold)
        elif (only := older or later) and only["n"] >= MIN_ROLLOUTS:
            when = "older" if older else "newer"
            sentences.append(f"Drift: arm '{arm}' was tried only in the {when} half.")
    return sentences + _scale_moved(timed["outcome"].to_numpy(), newer, halves)


@dataclass(frozen=True, slots=True)
class Halves:
    """Sums of each cell, an arm in the older or in the newer half: the arm's number * 2 + half."""

    cells: Integers
    """Cell of each rollout, shape [N]."""
    weights: Floats
    """1 / propensity of each rollout, shape [N]."""
    residuals: Floats
    """Reward of each rollout less the weighted mean of its cell, shape [N]."""
    n: Integers
    """Number of rollouts of each cell, shape [C]."""
    effective: Floats
    """Effective sample size of each cell, at most its number of tasks, shape [C]."""
    mean: Floats
    """Weighted mean reward of each cell, shape [C]."""
    square_error: Floats
    """Squared standard error of the mean of each cell, shape [C]."""

    def of(self, cell: int) -> dict[str, float] | None:
        """Return the sums of one cell, or None if it has no rollouts."""
        if not self.n[cell]:
            return None
        names = ("n", "effective", "mean", "square_error")
        return {name: float(getattr(self, name)[cell]) for name in names}


def _halves(timed: pl.DataFrame, arms: Integers, newer: Booleans) -> Halves:
    """Compute the weighted mean of each arm in each half, with its standard error over tasks.

    Rollouts of one task are correlated, so their deviations are added up before they are squared.

    Args:
        timed: Columns outcome and propensity; task if it is known. N rows.
        arms: Number of each rollout's arm, shape [N].
        newer: Whether a rollout is in the newer half, shape [N].
    """
    cells, count = arms * 2 + newer, 2 * (int(arms.max()) + 1)
    rewards, weights = timed["outcome"].to_numpy(), 1 / timed["propensity"].to_numpy()

    def summed(values: Floats) -> Floats:
        return np.bincount(cells, values, minlength=count).astype(np.float64)

    n = np.bincount(cells, minlength=count)
    total = np.where(n > 0, summed(weights), 1.0)  # a cell without rollouts is never looked at
    mean = summed(weights * rewards) / total
    residuals = rewards - mean[cells]
    deviations = weights * residuals
    squares, draws = summed(deviations**2), np.full(count, np.inf)
    if "task" in timed.columns:
        tasks = timed["task"].rank("dense").to_numpy().astype(np.int64)
        # One integer for each pair of a task and a cell.
        pairs = task_numbers(tasks * count + cells)
        sums = np.bincount(pairs, deviations)
        cell_of = np.zeros(len(sums), np.int64)
        cell_of[pairs] = cells
        squares = np.bincount(cell_of, sums**2, minlength=count).astype(np.float64)
        seen = np.bincount(pairs) > 0  # some numbers of pairs are not used
        draws = np.bincount(cell_of[seen], minlength=count).astype(np.float64)
    # A standard error over tasks is no better than the number of tasks: of a single one it is 0.
    effective = np.minimum(total**2 / np.where(n > 0, summed(weights**2), 1.0), draws)
    return Halves(
        cells=cells,
        weights=weights,
        residuals=residuals,
        n=n,
        effective=effective,
        mean=mean,
        square_error=squares / total**2,
    )


def _moved(
    arm: str, older: dict[str, float], newer: dict[str, float], threshold: float
) -> list[str]:
    if min(older["effective"], newer["effective"]) < MIN_ROLLOUTS:
        return []
    error = (older["square_error"] + newer["square_error"]) ** 0.5
    difference = newer["mean"] - older["mean"]
    if error == 0 or abs(difference) <= threshold * error:
        return []
    change = f"from {older['mean']:.3f} in the older half to {newer['mean']:.3f} in the newer one"
    return [f"Drift: the mean reward of arm '{arm}' moved {change}; --since leaves old ones out."]


def _scale_moved(rewards: Floats, is_newer: Booleans, sums: Halves) -> list[str]:
    """Compare the spread of the rewards in both halves, as when a judge changes from 1 to 10.

    The spread is the standard deviation around each arm's mean, so that other shares of the arms
    alone do not change it. Rewards with two values have their difference as scale: their standard
    deviation follows the mean.
    """
    halves = [rewards[~is_newer], rewards[is_newer]]
    if min(len(half) for half in halves) < MIN_ROLLOUTS_FOR_SCALE:
        return []
    (old_low, old_high), (new_low, new_high) = ((float(h.min()), float(h.max())) for h in halves)
    # Both halves have two values at most, such as 0 and 1, then 0 and 10.
    if all(bool(((half == half.min()) | (half == half.max())).all()) for half in halves):
        differences = sorted((old_high - old_low, new_high - new_low))
        moved = 0 < MIN_SCALE_RATIO * differences[0] < differences[1]
    else:
        both = np.column_stack([sums.residuals, sums.weights])
        moved = _spread_moved([both[~is_newer], both[is_newer]])
    if not moved:
        return []
    older, newer = f"from {old_low:g} to {old_high:g}", f"from {new_low:g} to {new_high:g}"
    scales = f"they are {older} in the older half and {newer} in the newer one"
    remedy = "leave the old ones out with --since, or choose one with --reward"
    return [
        f"Drift: the scale of the rewards moved: {scales}. Two scales cannot be compared: {remedy}."
    ]


def _spread_moved(halves: Sequence[Floats]) -> bool:
    """Test whether the variance of the residuals differs beyond chance.

    Args:
        halves: Residual and weight of each rollout, shape [N, 2] each.

    Source:
        Shoemaker, Fixing the F test for equal variances (2003): the variance of log s^2 is about
        (kurtosis - 1) / n. Here n is the effective sample size.
    """
    squares, errors = [], []
    for half in halves:
        residuals, weights = half.T
        square = float(np.average(residuals**2, weights=weights))
        if square == 0:
            return False
        kurtosis = float(np.average(residuals**4, weights=weights)) / square**2
        squares.append(square)
        errors.append((kurtosis - 1) / effective_sample_size(weights))
    difference = abs(log(squares[1] / squares[0]))
    # A factor of the standard deviations is its square for variances, hence 2 * log. Both must
    # hold: large enough to matter, and beyond chance.
    is_large = difference > 2 * log(MIN_SCALE_RATIO)
    return is_large and difference > SCALE_THRESHOLD * sqrt(sum(errors))


def mismatched(rows: pl.DataFrame, versions: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Compare logged propensities with those of the policy version in the trace.

    Args:
        rows: Columns arm, propensity, policy_version.
        versions: Probability of each arm, by policy version.

    Returns:
        A sentence for each arm of a version whose logged propensities differ, and one for each
        pair of versions that were live at the same time.
    """
    sentences = []
    for version, arms in versions.items():
        logged = rows.filter(policy_version=version)
        for arm, share in arms.items():
            other = logged.filter(pl.col("arm") == arm).filter(
                (pl.col("propensity") - share).abs() > PROPENSITY_TOLERANCE
            )
            if other.height:
                sentences.append(
                    f"{other.height:,} choices of arm '{arm}' by policy {version} have a "
                    f"propensity of {other['propensity'][0]:g}, but that policy gives it {share:g}."
                )
    return sentences + _at_once(rows)


def _at_once(rows: pl.DataFrame) -> list[str]:
    """Find policies that were live for one flag at the same time."""
    spans = (
        rows.drop_nulls(["policy_version", "time"])
        .group_by("policy_version")
        .agg(pl.min("time").alias("first"), pl.max("time").alias("last"))
        .sort("first", "policy_version")
    )
    sentences = []
    for former, later in pairwise(spans.iter_rows(named=True)):
        if later["first"] < former["last"]:
            sentences.append(
                f"Policies {former['policy_version']} and {later['policy_version']} were live at "
                "the same time: two flag files serve this key, or one was changed while it served."
            )
    return sentences


def live_at_once(rows: pl.DataFrame, changes: Sequence[tuple[datetime, str]]) -> str | None:
    """Say which two policies took turns, as two flag files for one key do.

    A version that comes back once was rolled back to; versions that take turns all the time were
    live at once.

    Args:
        rows: Columns policy_version, time.
        changes: Time and action of each recorded change of the flag file.

    Returns:
        A sentence that names both policies and the time of their last turn, or None.
    """
    known = rows.select("policy_version", "time", "rollout_id").drop_nulls(
        ["policy_version", "time"]
    )
    if known["policy_version"].n_unique() < 2:  # noqa: PLR2004 - two take turns
        return None
    served = known.sort("time", "rollout_id")
    for at, _ in changes:
        # Processes reload a flag file at different moments, so right after a change two versions
        # are served for good reason.
        reloading = pl.col("time").is_between(pl.lit(at), pl.lit(at).dt.offset_by(HANDOVER))
        served = served.filter(~reloading)
    turns = served.filter(pl.col("policy_version").ne_missing(pl.col("policy_version").shift()))
    # A version's first turn is no return; each later one is.
    returns = turns.filter(~pl.col("policy_version").is_first_distinct())
    rollbacks = sum(action == "rollback" for _, action in changes)
    if returns.height <= MAX_RETURNS + rollbacks:
        return None
    last = returns.row(-1, named=True)
    before = served.filter(
        (pl.col("time") <= last["time"]) & (pl.col("policy_version") != last["policy_version"])
    )
    names = sorted([last["policy_version"], before["policy_version"][-1]])
    return (
        f"Policies {names[0]} and {names[1]} were live at the same time: they took turns "
        f"{returns.height} times, the last time at {last['time']:%Y-%m-%d %H:%M:%S} UTC."
    )
