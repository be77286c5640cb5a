"""How much `make test` tries of what `make test-ci` tries in whole."""

from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Number = TypeVar("Number", int, float)
QUICK, THOROUGH = "quick", "otel-lightning"
"""Names of the profiles; `pytest --hypothesis-profile=quick` chooses one."""
EXAMPLES = {QUICK: 25, THOROUGH: 100}
"""Examples of a test that names no number of its own."""


def by_profile(quick: Number, thorough: Number) -> Number:
    """Choose how often something is tried: often includes seldom, so one of them is enough."""
    return thorough if settings.default.max_examples == EXAMPLES[THOROUGH] else quick


def examples(number: int) -> settings:
    """Set the examples of one test under `THOROUGH`; under `QUICK` it tries a quarter of them."""
    share = settings.default.max_examples / EXAMPLES[THOROUGH] if settings.default else 1
    return settings(max_examples=max(1, round(number * share)))


def first_quick(values: Iterable[Any]) -> list[Any]:
    """Return the values of a parameter for a test that takes long; all but the first are slow."""
    first, *others = values
    return [first, *(pytest.param(value, marks=pytest.mark.slow) for value in others)]
