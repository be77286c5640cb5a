"""Overview: whether spans arrive, the newest rollouts, and the last learning run."""

from collections.abc import Mapping
from typing import Any

from otel_lightning.collector.page import plots
from otel_lightning.collector.page.text import decimal, moment
from otel_lightning.collector.page.view_request import View, ViewRequest
from otel_lightning.collector.page.views.filters import NO_FILTER
from otel_lightning.collector.page.views.gates import gate_of
from otel_lightning.collector.page.views.rollout_links import linked
from otel_lightning.collector.terminal.quantities import number_of

MINUTE_NS = 60 * 10**9
HOUR_NS, DAY_NS = 60 * MINUTE_NS, 24 * 60 * MINUTE_NS
INTERVALS = {
    10**9: "second", 10 * 10**9: "10 seconds", MINUTE_NS: "minute", 5 * MINUTE_NS: "5 minutes",
    HOUR_NS: "hour", 6 * HOUR_NS: "6 hours", DAY_NS: "day",
}  # fmt: skip
MOST_INTERVALS = 48
CALLS_NS, REWARDS_NS = 2 * DAY_NS, 30 * DAY_NS
NEWEST = 12
NEWEST_INTERVALS = 6
"""Intervals with calls whose durations are shown: sorting all of them costs too much."""
FIRST = {"after_ns": None, "after_id": None}


def show(ask: ViewRequest) -> View:
    """Show the state of the store."""
    counts = ask.row("overview_counts")
    newest = counts["newest_ns"] or 0
    since = {"calls_ns": newest - CALLS_NS, "rewards_ns": newest - REWARDS_NS}
    first = ask.row("overview_first", **since)
    by_call = _interval(newest - (first["calls_ns"] or newest))
    by_reward = _interval(newest - (first["rewards_ns"] or newest))
    calls = ask.rows("overview_calls", since_ns=since["calls_ns"], bucket_ns=by_call)
    rewards = ask.rows("overview_rewards", since_ns=since["rewards_ns"], bucket_ns=by_reward)
    total = sum(row["calls"] for row in calls)
    late = (
        ask.row("overview_late", since_ns=calls[-NEWEST_INTERVALS:][0]["start_ns"]) if calls else {}
    )
    return View(
        "overview.html",
        "Overview",
        {
            "counts": counts,
            "calls": plots.bars(_filled(calls, by_call)),
            "calls_by": INTERVALS[by_call],
            "calls_ends": _ends(calls),
            "errors": sum(row["errors"] for row in calls) / total if total else None,
            "late_ns": late.get("late_ns"),
            "rewards": plots.curve([
                (row["start_ns"], row["mean"], row["half"], _mean(row)) for row in rewards
            ]),
            "rewards_by": INTERVALS[by_reward],
            "rewards_ends": [
                f"{end}: {decimal(rewards[i]['mean'])}"
                for i, end in zip((0, -1), _ends(rewards), strict=False)
            ],
            "rewarded": sum(row["rollouts"] for row in rewards),
            "newest": linked(ask.rows("rollouts_newest", **NO_FILTER, **FIRST, rows=NEWEST)),
            "run": _run(ask.row("runs_last")),
            "rejected": ask.rows("overview_rejected") if counts["rejected"] else [],
        },
    )  # fmt: skip


def _interval(length_ns: int) -> int:
    """Return the shortest interval that divides a time into few enough parts."""
    fitting = [one for one in INTERVALS if length_ns <= one * MOST_INTERVALS]
    return fitting[0] if fitting else max(INTERVALS)


def _ends(rows: list[dict[str, Any]]) -> list[str]:
    """Return the first and the last time; the last one without its day if both are of one day."""
    if not rows:
        return []
    first, last = rows[0]["start_ns"], rows[-1]["start_ns"]
    form = "%H:%M" if first // DAY_NS == last // DAY_NS and first != last else "%d %b %H:%M"
    return [moment(first, "%d %b %H:%M"), moment(last, form)]


def _filled(rows: list[dict[str, Any]], interval_ns: int) -> list[tuple[str, float]]:
    """Add the intervals without a call."""
    if not rows:
        return []
    by_start = {row["start_ns"]: row for row in rows}
    days = []
    # The statement returns only intervals with calls; a gap must look like one.
    for start in range(rows[0]["start_ns"], rows[-1]["start_ns"] + 1, interval_ns):
        row = by_start.get(start, {"calls": 0, "errors": 0})
        calls = f"{number_of(row['calls'], 'call')}, {number_of(row['errors'], 'error')}"
        days.append((f"{moment(start, '%d %b %H:%M:%S')}: {calls}", float(row["calls"])))
    return days


def _mean(row: Mapping[str, Any]) -> str:
    return (
        f"{moment(row['start_ns'], '%d %b %H:%M')}: {decimal(row['mean'])} ± "
        f"{decimal(row['half'])}, {number_of(row['rollouts'], 'rollout')}"
    )


def _run(row: dict[str, Any]) -> dict[str, Any] | None:
    if not row:
        return None
    return {**row, "refusals": gate_of(row).get("refusals", [])}
