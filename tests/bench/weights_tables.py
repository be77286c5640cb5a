"""The tables of the bench, what must not be in them, and the aims that they miss."""

from collections.abc import Iterator, Sequence
from itertools import product

from weights_agents import Problem
from weights_cells import Cell, Cells

from otel_lightning.learner.rollout_runner.paired import Compared, compare

BASE = "base"
CONTROLS = ("SFT on everything", "rft, shuffled rewards")
ROUNDS = ("rft, round 2", "rft, round 3")
WARM = "T = 1"
HEATS = {WARM: 1.0, "greedy": 0.0}
BY_CHANCE = 0.05 / 4
"""A control fails the bench if so large a gain has at most this probability by chance, one-sided.
Two controls of two problems are compared: one of four intervals of 95 % lies above 0 by chance in a
tenth of all runs."""
LEAST_GAIN = 0.2
"""What rft must gain at temperature 1."""


class Table:
    """All models of one problem beside its base."""

    def __init__(
        self, cells: Cells, problem: Problem, seeds: Sequence[int], rows: Sequence[str]
    ) -> None:
        self._title, self._seeds = problem.title, seeds
        self._cells = {
            name: [cells.get(problem.name, seed, name) for seed in seeds] for name in (BASE, *rows)
        }
        self._algorithms = [name for name in rows if name not in CONTROLS]
        self.failed = [f"{problem.title}: {text}" for text in self._failures()]
        self.missed = [f"{problem.title}: {text}" for text in self._misses()]

    def lines(self) -> Iterator[str]:
        """Write the table in Markdown."""
        yield (
            f"| {self._title} | T = 1, by seed | gain | 95 % | greedy, by seed | gain | 95 % | "
            "gate by logs | CPU-s |"
        )
        yield "|---|---|---|---|---|---|---|---|---|"
        for name, cells in self._cells.items():
            found = [name]
            for heat in HEATS:
                found.append(" ".join(f"{cell.mean(heat):.2f}" for cell in cells))
                if name == BASE:
                    found += ["", ""]
                    continue
                gained = self.gain(name, heat)
                found += [f"{gained.gain:+.3f}", f"{gained.lower:+.3f} to {gained.upper:+.3f}"]
            if name == BASE:
                found += ["", ""]
            else:
                passed = sum(bool(cell.passed) for cell in cells)
                seconds = sum(cell.seconds for cell in cells) / len(cells)
                found += [f"{passed} of {len(cells)} pass", f"{seconds:.0f}"]
            yield f"| {' | '.join(found)} |"

    def gain(self, name: str, heat: str, over: str = BASE) -> Compared:
        """Compare two models on the same tasks; a task is one observation, in all seeds."""
        return compare((over, self._pairs(over, heat)), (name, self._pairs(name, heat)))

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
        if (found := self.gain("rft", WARM)).lower <= 0:
            yield f"rft gains nothing: {found}"
        for name in CONTROLS:
            if (found := self.gain(name, WARM)).lower > 0 and found.p_value <= BY_CHANCE:
                yield f"{name} gains: {found}"
        for name, heat in product(self._algorithms, HEATS):
            if (found := self.gain(name, heat)).upper < 0:
                yield f"{name} ends below the base, {heat}: {found}"

    def _misses(self) -> Iterator[str]:
        """Say which aims are not reached."""
        if (found := self.gain("rft", WARM)).gain < LEAST_GAIN:
            yield f"rft gains less than {LEAST_GAIN}: {found}"
        for name, heat in product(CONTROLS, HEATS):
            if (found := self.gain(name, heat)).lower > 0:
                yield f"{name} gains, {heat}: {found}"
        for name, heat in product(self._algorithms, HEATS):
            pairs = zip(self._seeds, self._cells[name], self._cells[BASE], strict=True)
            for seed, cell, base in pairs:
                mean, least = cell.mean(heat), base.mean(heat)
                if mean < least:
                    yield f"{name}, {heat}, seed {seed}: {mean:.3f}, the base {least:.3f}"
