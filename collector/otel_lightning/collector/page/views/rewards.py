"""Rewards: the distribution of each measure, disagreements, and reward against length.

It shows, and raises no alarm: detectors of reward hacking give false ones.
"""

import math
from typing import Any

from otel_lightning.collector.page import plots
from otel_lightning.collector.page.text import decimal, number
from otel_lightning.collector.page.view_request import View, ViewRequest, address, segment
from otel_lightning.collector.page.views.rollout_links import linked

SAMPLE_ROWS = 2000
DRAWN = 600
FARTHEST = 10
BINS = 20


def show(ask: ViewRequest) -> View:
    """Show each measure with its histogram, pairs of measures, and reward against length."""
    bins: dict[tuple[str, str | None], dict[int, int]] = {}
    for row in ask.rows("rewards_bins"):
        bins.setdefault((row["name"], row["source"]), {})[row["bin"]] = row["judgements"]
    measures = ask.rows("rewards_names")
    lengths = ask.rows("rewards_length", rows=SAMPLE_ROWS)
    counts = ask.row("data_counts") if measures else {"rollouts": 0, "received_reward": 0}
    return View(
        "rewards.html",
        "Rewards",
        {
            "measures": [
                {**row, "bars": _bars(bins.get((row["name"], row["source"]), {}), row)}
                for row in measures
            ],
            "missing": counts["rollouts"] - counts["received_reward"],
            "rollouts": counts["rollouts"],
            "pairs": [
                {**row, "href": address(f"/rollouts/{segment(row['example'])}")}
                for row in (ask.rows("rewards_pairs") if len(measures) > 1 else [])
                if row["example"]
            ],
            "lengths": plots.scatter([
                (row["other"], row["reward"], f"{decimal(row['reward'])}, {number(row['other'])}")
                for row in evenly(lengths, DRAWN)
            ]),
            "correlation": _correlation(lengths),
            "farthest": linked(lengths[:FARTHEST]),
            "sample": SAMPLE_ROWS,
        },
    )  # fmt: skip


def evenly(rows: list[Any], count: int) -> list[Any]:
    """Return at most a given number of rows, spread evenly over a list.

    Example:
        >>> evenly(list(range(10)), 4)
        [0, 3, 6, 9]
    """
    return rows[:: max(math.ceil(len(rows) / count), 1)]


def _bars(counts: dict[int, int], row: dict[str, Any]) -> plots.Bars | None:
    if not counts:
        return None
    low, high = row["least"], row["most"]
    if low == high:
        judgements = sum(counts.values())
        return plots.bars([(f"{decimal(low)}: {number(judgements)}", float(judgements))])
    width = (high - low) / BINS
    values = [
        (f"{decimal(low + i * width)} …: {number(counts.get(i, 0))}", float(counts.get(i, 0)))
        for i in range(BINS)
    ]
    return plots.bars(values)


def _correlation(rows: list[dict[str, Any]]) -> dict[str, float] | None:
    """Return Spearman's correlation with its 95 % interval, by Fisher's transformation."""
    if not rows or rows[0]["correlation"] is None or math.isnan(rows[0]["correlation"]):
        return None
    value, count = rows[0]["correlation"], rows[0]["rollouts"]
    if count < 4 or abs(value) >= 1:  # noqa: PLR2004  the interval needs n > 3
        return None
    # Fisher: atanh of a correlation is about normal, with the standard error 1 / sqrt(n - 3).
    half = 1.96 / math.sqrt(count - 3)
    middle = math.atanh(value)
    low, high = math.tanh(middle - half), math.tanh(middle + half)
    return {"value": value, "low": low, "high": high, "rollouts": count}
