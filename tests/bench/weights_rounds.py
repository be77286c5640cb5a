"""Why the third round of rft gains nothing on text-to-SQL: the same round in other ways.

    python tests/bench/weights_rounds.py [--seeds 3]

Rounds 1 and 2 are those of `make bench-weights`. The third one learns from the same tasks or from
others, with a smaller learning rate, from more attempts, or begins at the base again.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import weights
from weights_agents import Sampling, run
from weights_cells import Cell, Cells
from weights_controls import PROBLEM, SIZE, gained, learned, measured
from weights_tables import HEATS, repeated_gain

from otel_lightning.learner.weights.settings import Training
from otel_lightning.learner.weights.trainer.learning_rate import default_learning_rate


def main() -> None:
    """Print a line for each model, and a table at the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[tuple[Cell, Cell]]] = {}
    with TemporaryDirectory() as folder:
        bench = weights.Bench(PROBLEM, SIZE, Cells(Path(folder) / "none.json"), Path(folder))
        bench.train_base()
        for seed in range(options.seeds):
            for name, second, third in third_rounds(bench.base, seed, Path(folder)):
                told = {heat: round(third.mean(heat), 3) for heat in HEATS}
                weights.say(f"seed {seed}, {name}: {told}")
                found.setdefault(name, []).append((second, third))
    print("| third round | sampling | by seed | gain over the second |\n|---|---|---|---|")
    for name, pairs in found.items():
        for heat in HEATS:
            means = " ".join(f"{third.mean(heat):.2f}" for _, third in pairs)
            gain = repeated_gain([gained(second, third, heat) for second, third in pairs])
            print(f"| {name} | {heat} | {means} | {gain} |")


def third_rounds(base: Path, seed: int, folder: Path) -> Iterator[tuple[str, Cell, Cell]]:
    """Yield each third round: its name, what the second reached, and what it reaches."""
    tasks, new = PROBLEM.tasks(base, seed, 2 * SIZE.logged, SIZE.new)
    same, others = tasks[: SIZE.logged], tasks[SIZE.logged :]
    live = base
    for number in (1, 2):
        sampling = Sampling(SIZE.attempts, 100 * number + seed, 1.0)
        training = Training(live, seed=seed + 100 * number * (number > 1))
        live = learned(run(PROBLEM, live, same, sampling), training, folder)
        live = live.rename(folder / f"live-{seed}-{number}")
    second = measured(live, new, seed)
    yield "none", second, second
    how = Sampling(SIZE.attempts, 300 + seed, 1.0)
    log = run(PROBLEM, live, same, how)
    more = run(PROBLEM, live, same, how._replace(samples=2 * SIZE.attempts))
    training = Training(live, seed=seed + 300)
    width = json.loads((live / "config.json").read_text())["hidden_size"]
    rate = default_learning_rate(width, lora=False)
    slower = replace(training, learning_rate=rate / 4)
    ways = (
        ("the same tasks", log, training),
        ("the same tasks, a quarter of the learning rate", log, slower),
        ("the same tasks, twice as many attempts", more, training),
        ("the same tasks, from the base again", log, replace(training, model=base)),
        ("other tasks", run(PROBLEM, live, others, how), training),
    )
    for name, rollouts, settings in ways:
        yield name, second, measured(learned(rollouts, settings, folder), new, seed)


if __name__ == "__main__":
    main()
