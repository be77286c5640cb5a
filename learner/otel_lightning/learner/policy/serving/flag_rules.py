"""Write a contextual policy as targeting rules of a flagd flag file, and evaluate such rules.

flagd evaluates the rules with the evaluation context. So each feature must be a boolean attribute
of that context with the same name. An absent feature counts as false.
"""

import json
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
        DataError: If they contain another kind of rule, or a pair is no variant with a weight.
    """
    if set(targeting) == {"if"} and len(targeting["if"]) == 3:  # noqa: PLR2004 - if, then, else
        condition, then, otherwise = targeting["if"]
        if isinstance(condition, dict) and set(condition) == {"var"}:
            return shares_of_cell(then if cell.get(condition["var"]) else otherwise, cell)
    if set(targeting) == {"fractional"}:
        weights: dict[str, int] = {}
        for name, weight in pairs(targeting["fractional"]):
            # The rules of a joint policy repeat variants.
            weights[name] = weights.get(name, 0) + weight
        total = sum(weights.values())
        return {arm: weight / total for arm, weight in weights.items()} if total else {}
    raise DataError(
        f"The targeting rule {sorted(targeting)} is none that a learned policy can read."
    )


def pairs(fractional: Any) -> list[tuple[str, int]]:
    """Return the variants of `fractional` with their weights; a variant without one has weight 1.

    Raises:
        DataError: If there is another value in it, which flagd would not serve either.
    """
    listed = _listed(fractional)[len(bucketing(fractional)) :]
    for pair in listed:
        is_pair = isinstance(pair, list) and len(pair) in (1, 2) and isinstance(pair[0], str)
        if not is_pair or not all(map(_is_weight, pair[1:])):
            raise DataError(
                f"'fractional' has {json.dumps(pair)}, but needs pairs of the name of a variant "
                'and a whole number of at least 0, such as ["brief", 50].'
            )
    return [(name, int(rest[0]) if rest else 1) for name, *rest in listed]


def bucketing(fractional: Any) -> list[Any]:
    """Return the value by which `fractional` divides users, as a list; an empty one if it has none.

    flagd allows an expression before the pairs. Without one it takes the targeting key.
    """
    listed = _listed(fractional)
    return listed[:1] if len(listed) > 1 and not isinstance(listed[0], list) else []


def _listed(fractional: Any) -> list[Any]:
    return fractional if isinstance(fractional, list) else [fractional]


def _is_weight(value: Any) -> bool:
    # A whole number may be written as 1e3. `True` is an int to Python.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and value >= 0 and value % 1 == 0


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
