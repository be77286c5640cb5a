"""Fine-tuning on two tasks: every algorithm at its defaults, with intervals and controls.

    python tests/bench/weights.py [--seeds 3] [--short] [--only desk,sql]

A seed draws the rollouts that are logged, the order of training, and the tasks that judge. Success
is measured by running the agent on tasks whose rewards learning never saw; the same agent, tasks
and draws for every model. The controls are SFT on everything, without rewards, and rft on rewards
that are shuffled, three times for each seed. Then rft goes on for two more rounds: its model runs
the agent on the same tasks to learn from, and learns from these rollouts only.

Each measurement is kept in a file, so a run that was interrupted goes on where it was; a change of
the code begins again. Exit code 1 if rft gains nothing, an algorithm ends below the base beyond
chance, or a control gains at temperature 1. Aims that are missed are printed.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import mkdtemp

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import weights_desk
import weights_sql
from weights_agents import Problem, Sampling, Task, log, rewards_of, run
from weights_cells import Cell, Cells, fingerprint
from weights_credit import credit_table
from weights_overhead import memory_table, overhead_table
from weights_tables import BASE, CONTROLS, HEATS, ROUNDS, SHUFFLED, Table

from otel_lightning.learner.transitions.make import Settings, make_transitions
from otel_lightning.learner.weights.learn import learn_weights
from otel_lightning.learner.weights.settings import Training

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "bench-weights"
PROBLEMS = {one.name: one for one in (weights_desk.PROBLEM, weights_sql.PROBLEM)}
FIRST_ROUND = "rft"
ROWS: dict[str, tuple[str, dict[str, object]]] = {
    # `fewest_calls` would choose by the rewards.
    CONTROLS[0]: ("rft", {"threshold": -1.0, "algorithm": {"fewest_calls": False}}),
    **{name: ("rft", {"shuffle_rewards": n}) for n, name in enumerate(SHUFFLED, 1)},
    FIRST_ROUND: ("rft", {}),
    "awr": ("awr", {}),
    "dpo": ("dpo", {}),
    "kto": ("kto", {}),
    "grpo": ("grpo", {}),
}
"""What is compared with the base: the algorithm, and options that are not its defaults."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done."""

    logged: int = 150
    attempts: int = 4
    new: int = 100
    samples: int = 2
    credit_seeds: int = 8
    turns: int = 2
    """Runs of each way whose costs are compared."""


SHORT = Size(80, 3, 60, 1, 3, 1)


class Bench:
    """The measurements of one problem, one seed after the other."""

    def __init__(self, problem: Problem, size: Size, cells: Cells, folder: Path) -> None:
        self._problem, self._size, self._cells, self._folder = problem, size, cells, folder
        self.base = CACHE / f"{problem.name}-{fingerprint('examples')}" / BASE
        """The first model, trained once for all sizes and runs."""

    def run(self, seed: int) -> None:
        """Measure every model of a seed that is not in the file yet."""
        self.train_base()
        if any(not self._has(name, seed) for name in (BASE, *ROWS, *ROUNDS)):
            self._one_seed(seed)

    def train_base(self) -> None:
        """Train the first model, if no run before did."""
        if self.base.exists():
            return
        started = time.process_time()
        unfinished = self.base.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        self._problem.make_base(unfinished)
        unfinished.rename(self.base)
        say(f"{self._problem.name}: first model, {time.process_time() - started:.0f} CPU-s")

    def _one_seed(self, seed: int) -> None:
        """Log rollouts of the base, learn from them in each way, and measure each model."""
        store = self._log(self.base, seed, 1)
        if not self._has(BASE, seed):
            self._measure(BASE, self.base, seed, Cell())
        for name, (algorithm, given) in ROWS.items():
            if not self._has(name, seed):
                training = Training(self.base, seed=seed, **given)  # type: ignore[arg-type]
                model, cell = self._learn(store, algorithm, training)
                self._measure(name, model, seed, cell)
        self._rounds(store, seed)

    def _rounds(self, store: Path, seed: int) -> None:
        """Let each round's model run the agent, and learn from these rollouts only."""
        if all(self._has(name, seed) for name in ROUNDS):
            return
        live, _ = self._learn(store, FIRST_ROUND, Training(self.base, seed=seed))
        for number, name in enumerate(ROUNDS, 2):
            live = live.rename(self._folder / f"{self._problem.name}-{seed}-live-{number}")
            store = self._log(live, seed, number)
            training = Training(live, seed=seed + 100 * number)
            live, cell = self._learn(store, FIRST_ROUND, training)
            self._measure(name, live, seed, cell)

    def _log(self, model: Path, seed: int, number: int) -> Path:
        """Run the agent on the tasks to learn from."""
        store = self._folder / f"{self._problem.name}-{seed}-{number}.duckdb"
        tasks, _ = self._tasks(seed)
        how = Sampling(self._size.attempts, 100 * number + seed, 1.0)
        log(store, run(self._problem, model, tasks, how))
        make_transitions(store, Settings(agents=self._problem.learners))
        return store

    def _tasks(self, seed: int) -> tuple[list[Task], list[Task]]:
        return self._problem.tasks(self.base, seed, self._size.logged, self._size.new)

    def _learn(self, store: Path, algorithm: str, training: Training) -> tuple[Path, Cell]:
        """Train one model, and let the gate by logs judge it."""
        started = time.process_time()
        output = self._folder / "learned"
        shutil.rmtree(output, ignore_errors=True)
        learned = learn_weights(store, algorithm, training, output)
        seconds = time.process_time() - started
        return output, Cell(seconds=seconds, passed=learned.verdict.passed)

    def _measure(self, name: str, model: Path, seed: int, cell: Cell) -> None:
        """Run the agent with a model on tasks whose rewards learning never saw."""
        _, new = self._tasks(seed)
        for heat, temperature in HEATS.items():
            how = Sampling(self._size.samples if temperature else 1, 7000 + seed, temperature)
            cell.rewards[heat] = rewards_of(run(self._problem, model, new, how))
        self._cells.add(self._problem.name, seed, name, cell)
        told = {heat: round(cell.mean(heat), 3) for heat in HEATS}
        gate = f"{cell.seconds:.1f} CPU-s, gate by logs: {cell.passed}"
        say(f"{self._problem.name}, seed {seed}, {name}: {told}, {gate}")

    def _has(self, name: str, seed: int) -> bool:
        return self._cells.has(self._problem.name, seed, name)


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, help="3, or 2 with --short")
    parser.add_argument("--short", action="store_true", help="fewer tasks and no costs")
    parser.add_argument("--only", help="desk,sql,credit and, without --short, overhead,memory")
    parser.add_argument("--fresh", action="store_true", help="measure again what the file has")
    options = parser.parse_args()
    size = SHORT if options.short else Size()
    seeds = range(options.seeds or (2 if options.short else 3))
    costs = "" if options.short else ",overhead,memory"
    cells = Cells(CACHE / ("short.json" if options.short else "full.json"), fresh=options.fresh)
    folder = Path(mkdtemp(prefix="bench-weights-"))
    failed: list[str] = []
    missed: list[str] = []
    names = (options.only or f"desk,sql,credit{costs}").split(",")
    try:
        problems = [PROBLEMS[name] for name in names if name in PROBLEMS]
        benches = [Bench(problem, size, cells, folder) for problem in problems]
        for seed, bench in product(seeds, benches):
            bench.run(seed)
        for name in names:
            print(flush=True)
            if name in PROBLEMS:
                table = Table(cells, PROBLEMS[name], seeds, (*ROWS, *ROUNDS))
                _show(table.lines())
                failed += table.failed
                missed += table.missed
            else:
                _show(cells.lines(name, partial(_other, name, size, folder)))
    finally:
        shutil.rmtree(folder)
    for text in missed:
        print(f"Aim missed: {text}", flush=True)
    for text in failed:
        print(f"FAILED: {text}", flush=True)
    sys.exit(1 if failed else 0)


def _other(name: str, size: Size, folder: Path) -> Iterator[str]:
    """Make one of the other tables."""
    if name == "credit":
        return credit_table(folder, size.credit_seeds)
    if name == "memory":
        return memory_table(size.turns)
    desk = Bench(PROBLEMS["desk"], size, Cells(folder / "none.json"), folder)
    desk.train_base()
    return overhead_table(folder, desk.base, size.turns)


def _show(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
