"""The tables of the bench, what must not be in them, and the aims that they miss."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from weights_agents import Problem
from weights_cells import Cell, Cells

from otel_lightning.learner.evaluate.paired import PairedComparison, compare_sides

BASE = "base"
CONTROLS = ("SFT on everything", "rft, shuffled rewards")
ROUNDS = ("rft, round 2", "rft, round 3")
WARM = "T = 1"
HEATS = {WARM: 1.0, "greedy": 0.0}
SHUFFLED = tuple(f"{CONTROLS[1]} {n}" for n in (1, 2, 3))
"""The second control, shuffled in several ways: the table has their mean."""
BY_CHANCE = 0.05 / 4
"""A control fails the bench if so large a gain has at most this probability by chance, one-sided.
Two controls of two problems are compared: one of four intervals of 95 % lies above 0 by chance in a
tenth of all runs."""
DRAWS = 4000
LEAST_GAIN = 0.2
"""What rft must gain at temperature 1."""


class Gain(NamedTuple):
    """A mean difference with its 95 % interval."""

    gain: float
    lower: float
    upper: float
    least: float
    """Lower bound that the gain is below with the probability `BY_CHANCE`."""

    def __str__(self) -> str:
        return f"gain {self.gain:+.4f}, 95 % interval {self.lower:+.4f} to {self.upper:+.4f}"


def repeated_gain(repetitions: Sequence[dict[str, float]]) -> Gain:
    """Bootstrap a mean difference over tasks and over repetitions, such as shuffles, at once.

    Args:
        repetitions: The difference by task, of each repetition; not all have the same tasks.
    """
    tasks = sorted({task for one in repetitions for task in one})
    there = np.array([[task in one for task in tasks] for one in repetitions])  # [R, T]
    values = np.array([[one.get(task, 0.0) for task in tasks] for one in repetitions])
    rng = np.random.default_rng(0)

    def mean(rows: object, columns: object) -> float:
        times = there[rows].sum(axis=0)[columns]  # type: ignore[index]
        sums = values[rows].sum(axis=0)[columns]  # type: ignore[index]
        return float((sums[times > 0] / times[times > 0]).mean())

    drawn = [
        mean(rng.integers(len(there), size=len(there)), rng.integers(len(tasks), size=len(tasks)))
        for _ in range(DRAWS)
    ]
    least, lower, upper = np.quantile(drawn, [BY_CHANCE, 0.025, 0.975]).tolist()
    return Gain(mean(slice(None), slice(None)), lower, upper, least)


class Table:
    """All models of one problem beside its base."""

    def __init__(
        self, cells: Cells, problem: Problem, seeds: Sequence[int], rows: Sequence[str]
    ) -> None:
        self._title, self._seeds = problem.title, seeds
        self._cells = {
            name: [cells.get(problem.name, seed, name) for seed in seeds] for name in (BASE, *rows)
        }
        self._algorithms = [name for name in rows if name not in (CONTROLS[0], *SHUFFLED)]
        self.failed = [f"{problem.title}: {text}" for text in self._failures()]
        self.missed = [f"{problem.title}: {text}" for text in self._misses()]

    def lines(self) -> Iterator[str]:
        """Write the table in Markdown."""
        yield (
            f"| {self._title} | T = 1, by seed | gain | 95 % | greedy, by seed | gain | 95 % | "
            "gate by logs | CPU-s |"
        )
        yield "|---|---|---|---|---|---|---|---|---|"
        for name in (BASE, *CONTROLS, *self._algorithms):
            cells = [cell for one in self._drawn(name) for cell in self._cells[one]]
            found = [name]
            for heat in HEATS:
                by_seed = [self._mean(name, heat, place) for place in range(len(self._seeds))]
                found.append(" ".join(f"{mean:.2f}" for mean in by_seed))
                found += ["", ""] if name == BASE else _cells_of(self._found(name, heat))
            if name == BASE:
                found += ["", ""]
            else:
                passed = sum(bool(cell.passed) for cell in cells)
                seconds = sum(cell.seconds for cell in cells) / len(cells)
                found += [f"{passed} of {len(cells)} pass", f"{seconds:.0f}"]
            yield f"| {' | '.join(found)} |"
        found = ["rft, over shuffled rewards"]
        for heat in HEATS:
            found += ["", *_cells_of(self.repeated("rft", heat, CONTROLS[1]))]
        yield f"| {' | '.join([*found, '', ''])} |"

    def _drawn(self, name: str) -> Sequence[str]:
        return SHUFFLED if name == CONTROLS[1] else (name,)

    def _mean(self, name: str, heat: str, place: int) -> float:
        """Mean of a seed, over the shuffles if it has several."""
        drawn = [self._cells[one][place].mean(heat) for one in self._drawn(name)]
        return sum(drawn) / len(drawn)

    def _found(self, name: str, heat: str) -> PairedComparison | Gain:
        """Compare a model with the base; of controls, the chance of each shuffle counts too."""
        return self.repeated(name, heat) if name in CONTROLS else self.gain(name, heat)

    def repeated(self, name: str, heat: str, over: str = BASE) -> Gain:
        """Compare two models, of which one is a control; each shuffle of each seed counts."""
        pairs = product(range(len(self._seeds)), self._drawn(over), self._drawn(name))
        return repeated_gain(
            [self._differences(self._cells[a][n], self._cells[b][n], heat) for n, a, b in pairs]
        )

    def _differences(self, before: Cell, after: Cell, heat: str) -> dict[str, float]:
        olds, news = before.rewards[heat], after.rewards[heat]
        return {task: float(np.mean(news[task]) - np.mean(olds[task])) for task in olds}

    def gain(self, name: str, heat: str, over: str = BASE) -> PairedComparison:
        """Compare two models on the same tasks; a task is one observation, in all seeds."""
        return compare_sides((over, self._pairs(over, heat)), (name, self._pairs(name, heat)))

    def _pairs(self, name: str, heat: str) -> dict[tuple[str, int], float]:
        cells: Sequence[Cell] = self._cells[name]
        return {
            (task, 1000 * seed + sample): reward
            for seed, cell in zip(self._seeds, cells, strict=True)
            for task, rewards in cell.rewards[heat].items()
            for sample, reward in enumerate(rewards)
        }

    def _failures(self) -> Iterator[str]:
        """Say what must not happen: learning that does not help, and controls that do."""
        if (gained := self.gain("rft", WARM)).lower <= 0:
            yield f"rft gains nothing: {gained}"
        for name in CONTROLS:
            if (found := self.repeated(name, WARM)).least > 0:
                yield f"{name} gains: {found}"
        for name, heat in product(self._algorithms, HEATS):
            if (below := self.gain(name, heat)).upper < 0:
                yield f"{name} ends below the base, {heat}: {below}"

    def _misses(self) -> Iterator[str]:
        """Say which aims are not reached."""
        if (gained := self.gain("rft", WARM)).gain < LEAST_GAIN:
            yield f"rft gains less than {LEAST_GAIN}: {gained}"
        for name, heat in product(CONTROLS, HEATS):
            if (found := self.repeated(name, heat)).lower > 0:
                yield f"{name} gains, {heat}: {found}"
        for name, heat in product(self._algorithms, HEATS):
            pairs = zip(self._seeds, self._cells[name], self._cells[BASE], strict=True)
            for seed, cell, base in pairs:
                mean, least = cell.mean(heat), base.mean(heat)
                if mean < least:
                    yield f"{name}, {heat}, seed {seed}: {mean:.3f}, the base {least:.3f}"


def _cells_of(found: PairedComparison | Gain) -> list[str]:
    return [f"{found.gain:+.3f}", f"{found.lower:+.3f} to {found.upper:+.3f}"]
