"""The filter of the list of rollouts, as parameters of an address and of its statements."""

import math
from typing import Any

from otel_lightning.collector.page.view_request import ViewRequest

TEXTS = ("service", "agent", "task", "outcome", "arm", "excluded", "id")
OF_REWARD = ("least_reward", "most_reward", "rewarded")
NO_FILTER: dict[str, Any] = dict.fromkeys((*TEXTS, *OF_REWARD, "least_calls", "least_errors"))
"""Parameters of the statements `rollouts_…` without any filter."""
NAMES = (*TEXTS, "reward", "calls", "errors", "sort")
"""Parameters of an address that belong to the filter."""
SORTS = {
    "newest": ("newest first", 1.0),
    "reward": ("lowest reward first", 1.0),
    "-reward": ("highest reward first", -1.0),
    "-calls": ("most calls first", -1.0),
    "-tokens": ("most tokens first", -1.0),
    "-errors": ("most errors first", -1.0),
    "-duration": ("longest first", -1.0),
}
"""Each order of the list: what it is called, and the sign that makes it ascending."""


def filter_of(ask: ViewRequest) -> dict[str, Any]:
    """Return the parameters of the statements `rollouts_…` from the address.

    `reward` is `ge:X`, `le:X`, `any` or `none`; `calls` is the least number of calls.
    """
    kind, _, text = (ask.text("reward") or "").partition(":")
    bound = _number(text)
    return {
        **NO_FILTER,
        **{name: ask.text(name) for name in TEXTS},
        "least_reward": bound if kind == "ge" else None,
        "most_reward": bound if kind == "le" else None,
        "rewarded": {"none": False, "any": True}.get(kind),
        "least_calls": ask.whole("calls"),
        "least_errors": 1 if ask.text("errors") else None,
    }


def filter_parameters(ask: ViewRequest) -> dict[str, str]:
    """Return the parameters of the address that belong to the filter, without ignored ones."""
    given = {name: ask.query[name] for name in NAMES if ask.text(name)}
    return {name: text for name, text in given.items() if name not in ignored(ask)}


def ignored(ask: ViewRequest) -> dict[str, str]:
    """Return the parameters of the filter whose values mean nothing, so that no row is left out."""
    understood = filter_of(ask)
    means_nothing = {
        "reward": all(understood[name] is None for name in OF_REWARD),
        "calls": understood["least_calls"] is None,
        "sort": ask.text("sort") not in SORTS,
    }
    given = {name: ask.text(name) for name, nothing in means_nothing.items() if nothing}
    return {name: text for name, text in given.items() if text}


def order(ask: ViewRequest) -> str:
    """Return the order that the address asks for; newest first if it asks for none we know."""
    sort = ask.text("sort") or "newest"
    return sort if sort in SORTS else "newest"


def page_of(
    ask: ViewRequest,
    rows: int,
    *,
    after: tuple[int | None, float | None, str | None],
    back: bool = False,
) -> list[dict[str, Any]]:
    """Return the rollouts of the filter that follow one in its order.

    Args:
        ask: The request, with the filter and the order.
        rows: Most rows.
        after: Start in nanoseconds, sort key and id of the one before; None for the first page.
        back: Return those before it instead, the nearest first.
    """
    start, key, identity = after
    parameters = {**filter_of(ask), "after_id": identity, "rows": rows}
    sort = order(ask)
    if sort == "newest":
        return ask.rows(
            "rollouts_newer" if back else "rollouts_newest", **parameters, after_ns=start
        )
    name = "rollouts_sorted_before" if back else "rollouts_sorted"
    field, sign = sort.lstrip("-"), SORTS[sort][1]
    return ask.rows(name, **parameters, after_key=key, sort=field, sign=sign)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
