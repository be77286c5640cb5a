"""Write a contextual policy as targeting rules of a flagd flag file, and evaluate such rules.

flagd evaluates the rules with the evaluation context. So each feature must be a boolean attribute
of that context with the same name. An absent feature counts as false.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from otel_lightning.learner.errors import DataError

MAX_FEATURES = 6
"""Largest number of features: each combination needs a rule, so 6 features need 64 rules."""
Cell = Mapping[str, bool]
Shares = dict[str, float]


def cells(names: Sequence[str]) -> list[dict[str, bool]]:
    """List every combination of the values of features.

    Raises:
        DataError: If there are more than `MAX_FEATURES` features.
    """
    if len(names) > MAX_FEATURES:
        raise DataError(
            f"{len(names)} features need {2 ** len(names):,} targeting rules; flagd files are "
            f"written for at most {MAX_FEATURES} features. Leave some out."
        )
    return [
        dict(zip(names, values, strict=True))
        for values in product((True, False), repeat=len(names))
    ]


def rule(
    names: Sequence[str], weights: Callable[[Cell], Mapping[str, int]], tested: Cell | None = None
) -> dict[str, Any]:
    """Write nested `if` rules whose leaves are `fractional` rules.

    Args:
        names: The features that the rules test, outermost first.
        weights: Function from a combination of features to the weight of each arm.
        tested: Values of the features that the enclosing rules test.

    Example:
        >>> rule(["vip"], lambda cell: {"a": 9} if cell["vip"] else {"b": 1})
        {'if': [{'var': 'vip'}, {'fractional': [['a', 9]]}, {'fractional': [['b', 1]]}]}
    """
    tested = tested or {}
    if not names:
        return {"fractional": [[arm, weight] for arm, weight in weights(tested).items()]}
    first, *rest = names
    branches = [rule(rest, weights, {**tested, first: value}) for value in (True, False)]
    return {"if": [{"var": first}, *branches]}


def shares_of_cell(targeting: Mapping[str, Any], cell: Cell) -> Shares:
    """Evaluate rules that `rule` wrote: return the share of each arm for a combination of features.

    Raises:
        DataError: If they contain another kind of rule.
    """
    if set(targeting) == {"if"} and len(targeting["if"]) == 3:  # noqa: PLR2004 - if, then, else
        condition, then, otherwise = targeting["if"]
        if isinstance(condition, dict) and set(condition) == {"var"}:
            return shares_of_cell(then if cell.get(condition["var"]) else otherwise, cell)
    if set(targeting) == {"fractional"}:
        pairs = [part for part in targeting["fractional"] if isinstance(part, list)]
        weights: dict[str, int] = {}
        for name, *rest in pairs:  # the rules of a joint policy repeat variants
            weights[str(name)] = weights.get(str(name), 0) + (int(rest[0]) if rest else 1)
        total = sum(weights.values())
        return {arm: weight / total for arm, weight in weights.items()} if total else {}
    raise DataError(
        f"The targeting rule {sorted(targeting)} is none that a learned policy can read."
    )


def features_of(targeting: Mapping[str, Any]) -> list[str]:
    """List the features that rules test, outermost first."""
    if set(targeting) != {"if"} or len(targeting["if"]) != 3:  # noqa: PLR2004 - if, then, else
        return []
    condition, then, otherwise = targeting["if"]
    if not isinstance(condition, dict) or set(condition) != {"var"}:
        return []
    names = [str(condition["var"])]
    for branch in (then, otherwise):
        names += [name for name in features_of(branch) if name not in names]
    return names
