"""A policy that sees context, as targeting rules of a flagd flag file.

flagd evaluates rules over the evaluation context, so each feature must be an attribute of the
context with the same name, true or false. A feature that is absent counts as false.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from otel_lightning.learner.errors import DataError

MOST_FEATURES = 6
"""More features than this would need more than 64 rules."""
Cell = Mapping[str, bool]
Shares = dict[str, float]


def cells(names: Sequence[str]) -> list[dict[str, bool]]:
    """List every combination of features.

    Raises:
        DataError: If there are too many features for rules.
    """
    if len(names) > MOST_FEATURES:
        raise DataError(
            f"{len(names)} features need {2 ** len(names):,} targeting rules; flagd files are "
            f"written for at most {MOST_FEATURES} features. Leave some out."
        )
    return [
        dict(zip(names, values, strict=True))
        for values in product((True, False), repeat=len(names))
    ]


def rule(
    names: Sequence[str], weights: Callable[[Cell], Mapping[str, int]], known: Cell | None = None
) -> dict[str, Any]:
    """Write nested rules whose leaves are fractional.

    Args:
        names: The features that the rules ask for, in order.
        weights: From a combination of features to the weight of each arm.
        known: Features that the rules around this one have asked for.

    Example:
        >>> rule(["vip"], lambda cell: {"a": 9} if cell["vip"] else {"b": 1})
        {'if': [{'var': 'vip'}, {'fractional': [['a', 9]]}, {'fractional': [['b', 1]]}]}
    """
    known = known or {}
    if not names:
        return {"fractional": [[arm, weight] for arm, weight in weights(known).items()]}
    first, *rest = names
    branches = [rule(rest, weights, {**known, first: value}) for value in (True, False)]
    return {"if": [{"var": first}, *branches]}


def shares_given(targeting: Mapping[str, Any], cell: Cell) -> Shares:
    """Evaluate rules as `rule` writes them: the share of each arm for a combination of features.

    Raises:
        DataError: If there is another rule among them.
    """
    if set(targeting) == {"if"} and len(targeting["if"]) == 3:  # noqa: PLR2004 - if, then, else
        condition, then, otherwise = targeting["if"]
        if isinstance(condition, dict) and set(condition) == {"var"}:
            return shares_given(then if cell.get(condition["var"]) else otherwise, cell)
    if set(targeting) == {"fractional"}:
        pairs = [part for part in targeting["fractional"] if isinstance(part, list)]
        weights = {str(name): int(rest[0]) if rest else 1 for name, *rest in pairs}
        total = sum(weights.values())
        return {arm: weight / total for arm, weight in weights.items()} if total else {}
    raise DataError(
        f"The targeting rule {sorted(targeting)} is none that a learned policy can read."
    )


def features_of(targeting: Mapping[str, Any]) -> list[str]:
    """Name the features that rules ask for, outermost first."""
    if set(targeting) != {"if"} or len(targeting["if"]) != 3:  # noqa: PLR2004 - if, then, else
        return []
    condition, then, otherwise = targeting["if"]
    if not isinstance(condition, dict) or set(condition) != {"var"}:
        return []
    names = [str(condition["var"])]
    for branch in (then, otherwise):
        names += [name for name in features_of(branch) if name not in names]
    return names
