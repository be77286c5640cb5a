"""Rollouts: a filter in the address, and pages by key."""

from otel_lightning.collector.page.view_request import PAGE_ROWS, View, ViewRequest
from otel_lightning.collector.page.views.filters import (
    SORTS,
    filter_parameters,
    ignored,
    order,
    page_of,
)
from otel_lightning.collector.page.views.rollout_links import linked

OUTCOMES = ("terminated", "truncated", "open")
REWARDS = {
    "any": "with a reward",
    "none": "without a reward",
    "le:0": "0 or less",
    "le:0.5": "0.5 or less",
    "ge:0.5": "0.5 or more",
    "ge:1": "1 or more",
}


def show(ask: ViewRequest) -> View:
    """Show a page of rollouts; with `fragment`, only its rows."""
    after = (ask.whole("after"), ask.real("key"), ask.text("last"))
    rows = page_of(ask, PAGE_ROWS + 1, after=after)
    more = None
    if len(rows) > PAGE_ROWS:
        last = rows[PAGE_ROWS - 1]
        more = ask.link(
            after=last["start_ns"], last=last["rollout_id"], key=last["sort_key"], fragment=None
        )
    values = {"rows": linked(rows[:PAGE_ROWS], filter_parameters(ask)), "more": more}
    if ask.text("fragment"):
        return View("rollouts_rows.html", "Rollouts", values)
    choices: dict[str, list[str]] = {"service": [], "agent": [], "arm": []}
    for row in ask.rows("rollouts_choices"):
        choices[row["field"]].append(row["choice"])
    chosen = {name: text for name, text in filter_parameters(ask).items() if name != "sort"}
    rewards = {**REWARDS}
    if ":" in (reward := chosen.get("reward", "")):
        chosen["reward"] = rewards.setdefault(reward, _in_words(reward))
    return View(
        "rollouts.html",
        "Rollouts",
        {
            **values,
            "choices": choices,
            "chosen": chosen,
            "ignored": ignored(ask),
            "order": order(ask),
            "sorts": SORTS,
            "outcomes": OUTCOMES,
            "rewards": rewards,
            "after": ask.text("after") or ask.text("key"),
            "counted": ask.row("live")["rollouts"],
        },
    )


def _in_words(reward: str) -> str:
    """Say in words what `ge:X` or `le:X` means."""
    kind, _, number = reward.partition(":")
    return f"{number} or {'more' if kind == 'ge' else 'less'}"
