"""Drift of the logged data: do the older and the newer half tell the same story?"""

import polars as pl

Z = 3.0
"""Standard errors beyond which a difference is reported."""
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
