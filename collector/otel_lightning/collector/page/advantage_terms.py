"""The arithmetic of a call's advantage: the terms of each credit method, from the stored numbers.

The learner computes advantages; a page only shows how. So the terms are compared with the stored
advantage, and a page says it if they do not give the same number. `docs/explanation/credit.md` has
the formulas.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from otel_lightning.collector.page.text import decimal
from otel_lightning.collector.terminal.quantities import number_of

EPSILON = 1e-6
"""Added to a standard deviation, as `credit/compare.py` of the learner does."""
TOLERANCE = 1e-6
PLUS, MINUS, TIMES, OVER = "+", "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}", "\N{DIVISION SIGN}"


class Term(NamedTuple):
    """One line of the arithmetic: an operation on the sum of the lines above."""

    operation: str
    label: str
    value: float


class Part(NamedTuple):
    """The credit that one method gives a call."""

    method: str
    terms: list[Term]
    note: str = ""

    @property
    def value(self) -> float:
        """The result of the terms, one after the other."""
        result = 0.0
        for operation, _, value in self.terms:
            if operation in (PLUS, MINUS):
                result += value if operation == PLUS else -value
            else:
                result = result * value if operation == TIMES else result / value
        return result


class Explanation(NamedTuple):
    """How an advantage came about."""

    parts: list[Part]
    total: float
    advantage: float

    @property
    def agrees(self) -> bool:
        """Whether the terms give the stored advantage."""
        return math.isclose(self.total, self.advantage, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def explain(config: Mapping[str, Any], row: Mapping[str, Any]) -> Explanation | None:
    """Return the terms of a call's advantage.

    Args:
        config: Settings of the build, as `runs.config` has them.
        row: The row of `why.sql`.

    Returns:
        The terms; None if the call has no advantage, or a method or setting is unknown.
    """
    if row.get("advantage") is None:
        return None
    try:
        parts = _parts(config, row)
    except KeyError:
        return None
    return Explanation(parts, sum(part.value for part in parts), row["advantage"])


def _parts(config: Mapping[str, Any], row: Mapping[str, Any]) -> list[Part]:
    """Return one part for each method that the credit adds up.

    Raises:
        KeyError: If a method or setting is unknown.
    """
    # With `length: rollout` the learner divided each advantage by the number of calls: undo it
    # here, and show it as the last term.
    calls = row["calls"] if config["length"] == "rollout" else 1
    undivided = {name: (row[name] or 0.0) * calls for name in ("advantage", "next_advantage")}
    first, *second = str(config["credit"]).split("+")
    parts = [METHODS[first](config, {**row, **undivided})]
    for name in second:
        # The first method gives all calls of a rollout the same; the rest is of the second one.
        weight = config["step_weight"]
        remainders = {
            k: (v - parts[0].value) / weight if weight else 0.0 for k, v in undivided.items()
        }
        part = METHODS[name](config, {**row, **remainders})
        parts.append(part._replace(terms=[*part.terms, Term(TIMES, "step_weight", weight)]))
    if calls == 1:
        return parts
    divided = Term(OVER, "calls of the rollout", calls)
    return [part._replace(terms=[*part.terms, divided]) for part in parts]


def _identical(_config: Mapping[str, Any], row: Mapping[str, Any]) -> Part:
    return Part("identical", [Term(PLUS, "return of the rollout", row["total"])])


def _group(config: Mapping[str, Any], row: Mapping[str, Any]) -> Part:
    if row["rollouts"] == 1:
        return Part("group", [], "The only rollout of its task: there is nothing to compare with.")
    of_all = f"mean return of the task's {row['rollouts']} rollouts"
    of_others = f"mean return of the task's {number_of(row['rollouts'] - 1, 'other rollout')}"
    names = ("mean_total", "others_total", "deviation_total")
    terms = _compared(config, (of_all, of_others), *(row[name] for name in names))
    return Part("group", [Term(PLUS, "return of the rollout", row["total"]), *terms])


def _anchor_state(config: Mapping[str, Any], row: Mapping[str, Any]) -> Part:
    if row["visits"] <= 1:
        note = "Its state was seen once in this task: there is nothing to compare with."
        return Part("anchor_state", [], note)
    of_all = f"mean return of the {row['visits']} visits of this state"
    of_others = f"mean return of the {number_of(row['visits'] - 1, 'other visit')} of this state"
    names = ("mean_visit", "others_visit", "deviation_visit")
    terms = _compared(config, (of_all, of_others), *(row[name] for name in names))
    return Part("anchor_state", [Term(PLUS, "return from this call on", row["return_to_go"]),
                                 *terms])  # fmt: skip


def _compared(
    config: Mapping[str, Any],
    texts: tuple[str, str],
    mean: float,
    mean_of_others: float,
    deviation: float,
) -> list[Term]:
    """Return the baseline of a group, and its scale."""
    leave_out = config["baseline"] == "leave_one_out"
    terms = [Term(MINUS, texts[leave_out], mean_of_others if leave_out else mean)]
    if config["scale"] == "std":
        terms.append(Term(OVER, "standard deviation of their returns", deviation + EPSILON))
    return terms


def _return_to_go(config: Mapping[str, Any], row: Mapping[str, Any]) -> Part:
    later = row["return_to_go"] - row["reward"]
    text = f"{_gamma(config)} \N{MULTIPLICATION SIGN} return from the next call on"
    terms = [Term(PLUS, "reward of this call", row["reward"])]
    return Part("return_to_go", [*terms, *[Term(PLUS, text, later)] * _goes_on(row)])


def _intermediate(config: Mapping[str, Any], row: Mapping[str, Any]) -> Part:
    return Part("intermediate", _own_and_outcome(config, row, []))


def _tool_outcome(config: Mapping[str, Any], row: Mapping[str, Any]) -> Part:
    worked = number_of(row["worked"], "tool")
    text = f"{decimal(config['tool_reward'])} \N{MULTIPLICATION SIGN} ({worked} worked"
    text = f"{text} {MINUS} {row['failed']} failed)"
    earned = config["tool_reward"] * (row["worked"] - row["failed"])
    return Part("tool_outcome", _own_and_outcome(config, row, [Term(PLUS, text, earned)]))


def _own_and_outcome(
    config: Mapping[str, Any], row: Mapping[str, Any], shaping: list[Term]
) -> list[Term]:
    if not _goes_on(row):
        return [Term(PLUS, "reward of this call, with the outcome of the rollout", row["reward"]),
                *shaping]  # fmt: skip
    terms = [Term(PLUS, "reward of this call", row["reward"]), *shaping]
    later_calls = row["calls"] - 1 - row["place"]
    # The outcome is not stored apart from the other rewards of the last call.
    share = row["advantage"] - sum(term.value for term in terms)
    return [
        *terms,
        Term(PLUS, f"{_gamma(config)} to the power {later_calls} of the outcome", share),
    ]


def _gae(config: Mapping[str, Any], row: Mapping[str, Any]) -> Part:
    is_fitted = config["value"] == "fitted"
    if row["rollouts"] == 1 and not is_fitted:
        return Part("gae", [], "The only rollout of its task: there is nothing to compare with.")
    if is_fitted:
        source, value = "a line through the task's returns", _on_line(row, row["place"])
        next_value = _on_line(row, row["place"] + 1)
    else:
        source = f"mean return of the task's {number_of(row['rollouts'] - 1, 'other rollout')}"
        value, next_value = row["others_here"], row["others_later"]
    # Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation"
    # (2016): advantage = delta + gamma lambda (next advantage), with delta = reward + gamma
    # V(after) - V(before). After the last call of a truncated rollout, V(after) stands for what it
    # would still have earned.
    terms = [Term(PLUS, "reward of this call", row["reward"])]
    if _goes_on(row) or row["truncated"]:
        text = f"{_gamma(config)} \N{MULTIPLICATION SIGN} value after this call ({source})"
        terms.append(Term(PLUS, text, config["gamma"] * next_value))
    terms.append(Term(MINUS, f"value before this call ({source})", value))
    if _goes_on(row):
        text = f"{_gamma(config)} \N{MULTIPLICATION SIGN} lambda {decimal(config['lam'])} "
        text += "\N{MULTIPLICATION SIGN} advantage of the next call"
        following = config["gamma"] * config["lam"] * row["next_advantage"]
        terms.append(Term(PLUS, text, following))
    return Part("gae", terms)


def _on_line(row: Mapping[str, Any], place: int) -> float:
    return float(row["mean_return"] + row["slope"] * (place - row["mean_place"]))


def _goes_on(row: Mapping[str, Any]) -> bool:
    """Return whether the rollout has a call after this one."""
    return bool(row["place"] < row["calls"] - 1)


def _gamma(config: Mapping[str, Any]) -> str:
    return f"gamma {decimal(config['gamma'])}"


METHODS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Part]] = {
    "identical": _identical,
    "group": _group,
    "return_to_go": _return_to_go,
    "intermediate": _intermediate,
    "tool_outcome": _tool_outcome,
    "gae": _gae,
    "anchor_state": _anchor_state,
}
