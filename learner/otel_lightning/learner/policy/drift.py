"""Find drift in the logged data: do the older and the newer half differ beyond chance?"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise

import polars as pl

Z = 3.0
"""Threshold of a difference to be reported, in standard errors."""
SAME = 1e-3
"""Propensities closer than this count as equal, because a flag's weights are rounded."""
LEAST = 10
"""Smallest number of rollouts of an arm that each half needs for a comparison."""
HANDOVER = "60s"
"""Time after a change of the flag file in which some processes may still serve the old policy."""
RETURNS = 2
"""How often a version may return without a recorded rollback, by a file restored by hand."""


def drift(rows: pl.DataFrame) -> list[str]:
    """Compare the older half of the rollouts with the newer one.

    Args:
        rows: Columns arm, outcome, time.

    Returns:
        A sentence for each arm whose mean reward changed, and for each arm in only one half.
    """
    timed = rows.filter(pl.col("time").is_not_null())
    if timed.is_empty() or timed["time"].n_unique() == 1:
        return []
    newer = pl.col("time") > pl.lit(timed["time"].median())
    halves = (
        timed.group_by("arm", newer.alias("newer"))
        .agg(pl.len().alias("n"), pl.mean("outcome").alias("mean"), pl.var("outcome").alias("var"))
        .sort("arm", "newer")
    )
    sentences = []
    for (arm,), part in halves.group_by("arm", maintain_order=True):
        by_half = {row["newer"]: row for row in part.iter_rows(named=True)}
        if len(by_half) == 1:
            ((is_newer, row),) = by_half.items()
            if row["n"] >= LEAST:
                when = "newer" if is_newer else "older"
                sentences.append(f"Drift: arm '{arm}' was tried only in the {when} half.")
            continue
        sentences += _moved(str(arm), by_half[False], by_half[True])
    return sentences


def _moved(arm: str, older: dict[str, float], newer: dict[str, float]) -> list[str]:
    if min(older["n"], newer["n"]) < LEAST:
        return []
    error = (older["var"] / older["n"] + newer["var"] / newer["n"]) ** 0.5
    difference = newer["mean"] - older["mean"]
    if error == 0 or abs(difference) <= Z * error:
        return []
    change = f"from {older['mean']:.3f} in the older half to {newer['mean']:.3f} in the newer one"
    return [f"Drift: the mean reward of arm '{arm}' moved {change}; --since leaves old ones out."]


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
                (pl.col("propensity") - share).abs() > SAME
            )
            if other.height:
                sentences.append(
                    f"{other.height} choices of arm '{arm}' by policy {version} have a propensity "
                    f"of {other['propensity'][0]:g}, but that policy gives it {share:g}."
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
        reloading = pl.col("time").is_between(pl.lit(at), pl.lit(at).dt.offset_by(HANDOVER))
        served = served.filter(~reloading)
    turns = served.filter(pl.col("policy_version").ne_missing(pl.col("policy_version").shift()))
    # A version's first turn is no return; each later one is.
    returns = turns.filter(~pl.col("policy_version").is_first_distinct())
    rollbacks = sum(action == "rollback" for _, action in changes)
    if returns.height <= RETURNS + rollbacks:
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
