"""The tables of the bench, and the claims that they must bear out."""

from collections.abc import Iterator, Sequence

from weights_agents import Problem
from weights_cells import Cell, Cells

from otel_lightning.learner.rollout_runner.paired import Compared, compare

BASE = "base"
CONTROLS = ("SFT on everything", "rft, shuffled rewards")
ROUNDS = ("rft, round 2", "rft, round 3")
HEATS = {"T = 1": 1.0, "greedy": 0.0}
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
        self.failed = [f"{problem.title}: {text}" for text in self._claims()]
        """Claims that do not hold."""

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

    def _claims(self) -> Iterator[str]:
        gained = self.gain("rft", "T = 1").gain
        if gained < LEAST_GAIN:
            yield f"rft gains {LEAST_GAIN} at T = 1 (it gains {gained:+.3f})"
        for heat in HEATS:
            for name in CONTROLS:
                control = self.gain(name, heat)
                if control.lower > 0:
                    yield f"{name} does not gain, {heat} ({control})"
            for name in set(self._cells) - {BASE, *CONTROLS}:
                yield from self._below(name, heat)

    def _below(self, name: str, heat: str) -> Iterator[str]:
        for seed, cell, base in zip(self._seeds, self._cells[name], self._cells[BASE], strict=True):
            mean, least = cell.mean(heat), base.mean(heat)
            if mean < least:
                yield f"{name} is not below the base, {heat}, seed {seed} ({mean:.3f}, {least:.3f})"
