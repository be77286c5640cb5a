"""Drift of the logged data: do the older and the newer half tell the same story?"""

from collections.abc import Mapping
from itertools import pairwise

import polars as pl

Z = 3.0
"""Standard errors beyond which a difference is reported."""
SAME = 1e-3
"""Propensities closer than this are equal: weights of a flag are rounded."""
LEAST = 10
"""Rollouts of an arm that each half needs for a comparison."""


def drift(rows: pl.DataFrame) -> list[str]:
    """Compare the older half of the rollouts with the newer one.

    Args:
        rows: Columns arm, outcome, time.

    Returns:
        A sentence for each arm whose mean reward moved, that vanished or that is new.
    """
    timed = rows.filter(pl.col("time").is_not_null())
    if timed.is_empty() or timed["time"].n_unique() == 1:
        return []
    newer = pl.col("time") > pl.lit(timed["time"].sort()[timed.height // 2])
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
    """Compare logged propensities with those of the policy version that the trace names.

    Args:
        rows: Columns arm, propensity, policy_version.
        versions: Probability of each arm, by policy version.

    Returns:
        A sentence for each version that claims other propensities, and one if several versions
        were live at once.
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
    """Name policies that were live for one flag at the same time."""
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
