"""Data: from spans to transitions, and why rollouts were left out on the way."""

from typing import Any

from otel_lightning.collector.page.plots import WIDTH
from otel_lightning.collector.page.view_request import View, ViewRequest, address


def show(ask: ViewRequest) -> View:
    """Show the funnel; each group that was left out is a link to its rollouts."""
    counts = ask.row("data_counts")
    became = ask.rows("data_became")
    left_out = [row for row in became if row["excluded"]]
    received = counts["received_reward"]
    open_rollouts = counts["rollouts"] - counts["looked_at"]
    return View(
        "data.html",
        "Data",
        {
            "counts": counts,
            "received": _scaled([
                ("spans", counts["spans"], None),
                ("log records", counts["logs"], None),
                ("model calls", counts["calls"], None),
            ]),
            "rollouts": _scaled([
                ("rollouts", counts["rollouts"], address("/rollouts")),
                ("with a received reward", received, address("/rollouts", reward="any")),
                ("seen by transitions", counts["looked_at"], None),
                ("in transitions", counts["kept"], None),
            ]),
            "left_out": _scaled([
                (row["excluded"], row["rollouts"], address("/rollouts", excluded=row["excluded"]))
                for row in left_out
            ]),
            "not_looked_at": open_rollouts,
            "unrewarded": counts["without_any_reward"],
            "failed_calls": sum(row["failed"] or 0 for row in became),
            "context_calls": sum(row["context"] or 0 for row in became),
            "splits": ask.rows("data_splits"),
            "single": ask.row("data_single")["tasks"],
            "content": ask.rows("data_content"),
        },
    )  # fmt: skip


def _scaled(rows: list[tuple[str, int, str | None]]) -> list[dict[str, Any]]:
    largest = max((number for _, number, _ in rows), default=0) or 1
    return [
        {"name": name, "number": number, "width": round(number / largest * WIDTH, 1), "href": href}
        for name, number, href in rows
    ]
