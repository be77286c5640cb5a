"""Fine-tuning on the support desk: every algorithm at its defaults, with intervals and controls.

    python tests/bench/weights.py [--seeds 3] [--short] [--only desk,credit,overhead,memory]

A seed draws the rollouts that are logged, the order of training, and the tasks that judge. Success
is measured by running the agent on tasks that learning never saw; the same agent, tasks and draws
for every model. The controls are SFT on everything, without rewards, and `rft` on shuffled rewards.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import weights_desk as desk
from weights_credit import credit_table
from weights_overhead import memory_table, overhead_table

from otel_lightning.learner.rollout_runner.paired import Compared, compare
from otel_lightning.learner.transitions.make import Settings, make_transitions
from otel_lightning.learner.weights.learn import learn_weights
from otel_lightning.learner.weights.settings import Training

Rewards = dict[tuple[str, int], float]
BASE = "base"
HEATS = {"T = 1": 1.0, "greedy": 0.0}
ROWS: Mapping[str, tuple[str, dict[str, object]]] = {
    "SFT on everything": ("rft", {"threshold": -1.0}),
    "rft, shuffled rewards": ("rft", {"shuffle_rewards": 1}),
    "rft": ("rft", {}),
    "awr": ("awr", {}),
    "dpo": ("dpo", {}),
    "kto": ("kto", {}),
    "grpo": ("grpo", {}),
}
"""What is compared with the base: the algorithm, and options that are not its defaults."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done for each seed."""

    logged_tasks: int = 200
    attempts: int = 4
    new_tasks: int = 150
    samples: int = 2


@dataclass(slots=True)
class Measured:
    """What one row of the table is made of."""

    rewards: dict[str, Rewards] = field(default_factory=lambda: {heat: {} for heat in HEATS})
    by_seed: dict[str, list[float]] = field(default_factory=lambda: {heat: [] for heat in HEATS})
    seconds: float = 0.0


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="fewer tasks; wider intervals")
    parser.add_argument("--only", default="desk,credit,overhead,memory")
    options = parser.parse_args()
    size = Size(100, 3, 80, 1) if options.short else Size()
    folder = Path(mkdtemp(prefix="bench-weights-"))
    tables = {
        "desk": lambda: desk_table(folder, size, options.seeds),
        "credit": lambda: credit_table(folder, 3 if options.short else 8),
        "overhead": lambda: overhead_table(folder, base_model(folder), 1 if options.short else 3),
        "memory": lambda: memory_table(1 if options.short else 3),
    }
    try:
        for name in options.only.split(","):
            print(flush=True)
            for line in tables[name]():
                print(line, flush=True)
    finally:
        shutil.rmtree(folder)


def base_model(folder: Path) -> Path:
    """Train the desk's first model, once."""
    made = folder / BASE
    if not made.exists():
        words = [sys.executable, str(desk.DESK / "model.py"), "--output", str(made)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return made


def desk_table(folder: Path, size: Size, seeds: int) -> Iterator[str]:
    """Compare all rows of `ROWS` with the base, over several seeds."""
    base = base_model(folder)
    measured = {name: Measured() for name in (BASE, *ROWS)}
    for seed in range(seeds):
        one_seed(measured, base, size, seed)
        if seed < seeds - 1:
            so_far = "\n".join(written(measured, seed + 1))
            print(f"After seed {seed}:\n{so_far}", file=sys.stderr, flush=True)
    yield from written(measured, seeds)


def one_seed(measured: Mapping[str, Measured], base: Path, size: Size, seed: int) -> None:
    """Log rollouts of the base, learn from them in each way, and measure each model."""
    folder = base.parent
    store = folder / f"{seed}.duckdb"
    logged, new = desk.tasks_of(seed, size.logged_tasks, size.new_tasks)
    desk.log(store, desk.run(base, logged, size.attempts, seed, 1.0))
    make_transitions(store, Settings())
    measure(measured[BASE], base, new, size, seed)
    for name, (algorithm, given) in ROWS.items():
        output, started = folder / f"{seed}-{name}", time.process_time()
        learn_weights(store, algorithm, Training(base, seed=seed, **given), output)  # type: ignore[arg-type]
        measured[name].seconds += time.process_time() - started
        measure(measured[name], output, new, size, seed)
        told = {heat: round(values[-1], 3) for heat, values in measured[name].by_seed.items()}
        print(f"seed {seed}, {name}: {told}", file=sys.stderr, flush=True)
        shutil.rmtree(output)


def measure(one: Measured, model: Path, tasks: list[desk.Task], size: Size, seed: int) -> None:
    """Run the agent with a model on new tasks."""
    for heat, temperature in HEATS.items():
        samples = size.samples if temperature else 1
        found = desk.rewards(desk.run(model, tasks, samples, 7000 + seed, temperature), seed)
        one.rewards[heat] |= found
        one.by_seed[heat].append(sum(found.values()) / len(found))


def written(measured: Mapping[str, Measured], seeds: int) -> Iterator[str]:
    """Write the table in Markdown."""
    yield "| model | T = 1, by seed | gain | 95 % | greedy, by seed | gain | 95 % | CPU-s |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, one in measured.items():
        cells = [name]
        for heat in HEATS:
            cells.append(" ".join(f"{value:.2f}" for value in one.by_seed[heat]))
            if name == BASE:
                cells += ["", ""]
                continue
            gained = gain(one, measured[BASE], heat)
            cells += [f"{gained.gain:+.3f}", f"{gained.lower:+.3f} to {gained.upper:+.3f}"]
        cells.append(f"{one.seconds / seeds:.0f}" if one.seconds else "")
        yield f"| {' | '.join(cells)} |"


def gain(one: Measured, base: Measured, heat: str) -> Compared:
    """Compare with the base on the same tasks; a task of a seed is one observation."""
    return compare((BASE, base.rewards[heat]), ("new", one.rewards[heat]))


if __name__ == "__main__":
    main()
