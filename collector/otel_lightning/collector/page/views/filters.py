"""The filter of the list of rollouts, as parameters of an address and of its statements."""

from typing import Any

from otel_lightning.collector.page.asked import Ask

TEXTS = ("service", "task", "outcome", "arm_key", "arm", "excluded", "id")
NO_FILTER: dict[str, Any] = dict.fromkeys(
    (*TEXTS, "least_reward", "most_reward", "rewarded", "least_calls", "least_errors", "after_ns",
     "after_id")
)  # fmt: skip
"""Parameters of the statements `rollouts_…` without any filter."""
NAMES = (
    "service", "task", "outcome", "arm", "excluded", "id", "reward", "calls", "errors", "sort",
)  # fmt: skip
"""Parameters of an address that belong to the filter."""
SORTS = {
    "newest": 0.0, "reward": 1.0, "-reward": -1.0, "calls": -1.0, "tokens": -1.0, "errors": -1.0,
    "duration": -1.0,
}  # fmt: skip
"""Each order of the list, and the sign that makes it ascending."""


def filter_of(ask: Ask) -> dict[str, Any]:
    """Return the parameters of the statements `rollouts_…` from the address."""
    reward = ask.text("reward") or ""
    kind, _, text = reward.partition(":")
    bound = _number(text)
    key, _, arm = (ask.text("arm") or "").partition(":")
    return {
        **NO_FILTER,
        **{name: ask.text(name) for name in ("service", "task", "outcome", "excluded", "id")},
        "arm_key": key or None,
        "arm": arm or None,
        "least_reward": bound if kind == "ge" else None,
        "most_reward": bound if kind == "le" else None,
        "rewarded": {"none": False, "any": True}.get(kind),
        "least_calls": ask.whole("calls"),
        "least_errors": 1 if ask.text("errors") else None,
    }


def kept(ask: Ask) -> dict[str, str]:
    """Return the parameters of the address that belong to the filter."""
    return {name: ask.query[name] for name in NAMES if ask.text(name)}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
