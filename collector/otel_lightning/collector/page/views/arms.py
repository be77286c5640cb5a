"""Arms: each with its interval, propensity and share now served; and where they differ most."""

import json
from typing import Any

from otel_lightning.collector.page import plots
from otel_lightning.collector.page.text import decimal, moment, number
from otel_lightning.collector.page.view_request import (
    NotFoundError,
    View,
    ViewRequest,
    address,
    segment,
)

FEW = 30
"""Below this number of rollouts a normal approximation says little."""
BINS = 10


def show_all(ask: ViewRequest) -> View:
    """List the keys, one flag each."""
    rows = [
        {**row, "href": address(f"/arms/{segment(row['key'])}")} for row in ask.rows("arms_keys")
    ]
    return View("arms.html", "Arms", {"rows": rows})


def show(ask: ViewRequest, key: str) -> View:
    """Show the arms of a key."""
    rows = ask.rows("arms_table", key=key)
    propensities = ask.rows("arms_propensities", key=key)
    if not rows and key not in {row["key"] for row in ask.rows("arms_keys")}:
        raise NotFoundError(f"No arm was chosen by the key '{key}'.")
    policies = ask.rows("arms_policies", key=key)
    served = _served(policies)
    bounds = [row["mean"] + sign * (row["half"] or 0) for row in rows for sign in (-1, 1)]
    axis = plots.domain([*bounds, *(row["mean"] for row in rows)])
    days: dict[str, list[tuple[float, float, float | None, str]]] = {}
    for day in ask.rows("arms_days", key=key):
        note = (
            f"{moment(day['day_ns'], '%d %b')}: {decimal(day['mean'])}, {number(day['rollouts'])}"
        )
        days.setdefault(day["arm"], []).append((day["day_ns"], day["mean"], None, note))
    return View(
        "arm.html",
        f"Arms of {key}",
        {
            "key": key,
            "rows": [_for_template(row, axis, served, propensities, key) for row in rows],
            "axis": axis,
            "policies": policies,
            "served": served,
            "never": sorted(set(served) - {row["arm"] for row in rows}),
            "total": sum(row["rollouts"] for row in rows),
            **_overlap(rows),
            "days": {arm: (plots.curve(points), points) for arm, points in days.items()
                     if len(points) > 1},
            "tasks": ask.rows("arms_tasks", key=key),
        },
    )  # fmt: skip


def _for_template(
    row: dict[str, Any],
    axis: tuple[float, float],
    served: dict[str, float],
    propensities: list[dict[str, Any]],
    key: str,
) -> dict[str, Any]:
    half = row["half"]
    low, high = (None, None) if half is None else (row["mean"] - half, row["mean"] + half)
    choices = {p["bin"]: p["choices"] for p in propensities if p["arm"] == row["arm"]}
    titles = [f"{i / BINS} to {(i + 1) / BINS}: {number(choices.get(i, 0))}" for i in range(BINS)]
    return {
        **row,
        "low": low,
        "high": high,
        "interval": plots.interval(low, row["mean"], high, axis),
        "served": served.get(row["arm"]),
        "few": row["rollouts"] < FEW,
        "bars": plots.bars([(titles[i], float(choices.get(i, 0))) for i in range(BINS)], 30),
        "href": address("/rollouts", arm=f"{key}={row['arm']}"),
    }


def _overlap(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the effective sample size and the largest importance weight at equal shares."""
    with_choices = [row for row in rows if row["largest"]]
    # Kish's effective sample size, (sum of w)^2 / (sum of w^2), with the weights w = 1 /
    # propensity. A target of equal shares gives each arm 1 / (number of arms), so its largest
    # weight is divided by that number.
    squares = sum(row["squared_weights"] for row in with_choices)
    return {
        "effective": sum(row["weights"] for row in with_choices) ** 2 / squares
        if with_choices
        else 0.0,
        "largest": max((row["largest"] for row in with_choices), default=0.0) / max(len(rows), 1),
    }


def _served(policies: list[dict[str, Any]]) -> dict[str, float]:
    """Return the shares of the live policy; without one, nothing is known."""
    live = next((p for p in policies if p["status"] == "live"), None)
    arms = json.loads((live or {}).get("arms") or "{}")
    return {arm: float(share) for arm, share in arms.items() if isinstance(share, int | float)}
