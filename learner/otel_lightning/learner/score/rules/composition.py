"""Settings of a composed reward, read from TOML: measures, labels and shaping terms."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.rules.spec import Rule, read_toml

TERMS = {
    "tool_error": "tool_errors",
    "told_tool_error": "told_tool_errors",
    "retry": "retries",
    "malformed_call": "malformed_calls",
    "tokens": "tokens",
    "latency": "seconds",
    "steps": "llm_calls",
}
"""Each shaping term, with the column of `rollouts` that it counts."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A judgement with a weight; its range is mapped to [-1, 1]."""

    name: str
    weight: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Term:
    """A shaping term: adds weight * (count - above) / per if the count is larger than `above`.

    If `per` is None, it adds `weight` once if the count is larger than `above`.
    """

    name: str
    weight: float
    per: float | None
    above: float


@dataclass(frozen=True, slots=True)
class Composition:
    """The parts of a composed reward, and the limits it is clamped to."""

    measures: tuple[Measure, ...]
    labels: Mapping[tuple[str, str], float]
    """Amount that each (name of a judgement, label) adds to the reward."""
    terms: tuple[Term, ...]
    clamp: tuple[float, float] | None


def parse(rule: Rule) -> Composition:
    """Read the settings of a rule written in TOML.

    Raises:
        DataError: If a key is unknown, a value is not allowed, or there is no part.
    """
    read = _Reader(str(rule.path))
    settings = read_toml(rule)
    read.only(settings, "", ("name", "clamp", "measures", "labels", "shaping"))
    measures, labels, shaping = (
        read.table(settings.get(key, {}), key) for key in ("measures", "labels", "shaping")
    )
    read.only(shaping, "shaping.", TERMS)
    composition = Composition(
        tuple(read.measure(name, value) for name, value in measures.items()),
        {
            (name, label): read.number(amount, f"labels.{name}.{label}")
            for name, amounts in labels.items()
            for label, amount in read.table(amounts, f"labels.{name}").items()
        },
        tuple(read.term(name, value) for name, value in shaping.items()),
        read.interval(settings["clamp"], "clamp") if "clamp" in settings else None,
    )
    read.consistent(composition)
    return composition


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads and checks values; errors name the file and the key."""

    file: str

    def wrong(self, problem: str) -> DataError:
        return DataError(f"{self.file}: {problem}")

    def only(self, table: Mapping[str, Any], where: str, known: Any) -> None:
        unknown = [key for key in table if key not in known]
        if unknown:
            raise self.wrong(f"unknown key '{where}{unknown[0]}'. Known: {', '.join(known)}.")

    def table(self, value: Any, where: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self.wrong(f"'{where}' is {value!r}. Write a table, [{where}].")
        return value

    def number(self, value: Any, where: str) -> float:
        if (
            # True is an int to Python.
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise self.wrong(f"'{where}' is {value!r}. Give a finite number.")
        return float(value)

    def interval(self, value: Any, where: str) -> tuple[float, float]:
        ends = [self.number(end, where) for end in value] if isinstance(value, list) else []
        if len(ends) != 2 or ends[0] >= ends[1]:  # noqa: PLR2004 - the two ends
            raise self.wrong(f"'{where}' is {value!r}. Give two ends, the lower first: [-1, 1].")
        return ends[0], ends[1]

    def measure(self, name: str, value: Any) -> Measure:
        where = f"measures.{name}"
        table = self.table(value, where)
        self.only(table, f"{where}.", ("weight", "range"))
        weight = self.number(table.get("weight"), f"{where}.weight")
        if weight <= 0:
            raise self.wrong(f"'{where}.weight' is {weight:g}. Give one above 0.")
        return Measure(name, weight, *self.interval(table.get("range"), f"{where}.range"))

    def term(self, name: str, value: Any) -> Term:
        where = f"shaping.{name}"
        table = value if isinstance(value, Mapping) else {"weight": value}
        self.only(table, f"{where}.", ("weight", "per", "above"))
        weight, above = (
            self.number(table.get(key, default), f"{where}.{key}")
            for key, default in (("weight", None), ("above", 0))
        )
        # With a limit alone, the weight is added once; without both, for each unit.
        per = table.get("per", None if "above" in table else 1)
        if per is not None and self.number(per, f"{where}.per") <= 0:
            raise self.wrong(f"'{where}.per' is {per:g}. Give one above 0.")
        return Term(name, weight, per, above)

    def consistent(self, composition: Composition) -> None:
        if not (composition.measures or composition.labels or composition.terms):
            raise self.wrong("composes nothing. Give [measures.NAME], [labels.NAME] or [shaping].")
        both = {term.name for term in composition.terms} & {m.name for m in composition.measures}
        if both:
            raise self.wrong(f"'{min(both)}' is a measure and a shaping term. Rename the measure.")
