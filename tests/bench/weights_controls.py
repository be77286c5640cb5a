"""What rft gains on text-to-SQL from rewards that are coin flips: no true reward is in the store.

    python tests/bench/weights_controls.py [--seeds 3] [--draws 3]

A coin has the true success rate, and is one for all calls of a rollout. By default rft also leaves
out an answer if another one of its state was followed by fewer calls; that number is the true one
here, while `--shuffle-rewards` shuffles it with the rewards.
"""

import argparse
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import numpy as np
import weights
from weights_agents import Rollout, Sampling, log, rewards_of, run
from weights_cells import Cell, Cells
from weights_tables import HEATS, repeated_gain

from otel_lightning.learner.transitions.make import Settings, make_transitions
from otel_lightning.learner.weights.learn import learn_weights
from otel_lightning.learner.weights.settings import Training

SIZE = weights.Size()
PROBLEM = weights.PROBLEMS["sql"]
ROWS: Mapping[str, Mapping[str, object]] = {
    "rft on coins": {},
    "rft on coins, `fewest_calls=false`": {"fewest_calls": False},
}


def main() -> None:
    """Print a line for each model, and a table at the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    gains: dict[tuple[str, str], list[dict[str, float]]] = {}
    with TemporaryDirectory() as folder:
        bench = weights.Bench(PROBLEM, SIZE, Cells(Path(folder) / "none.json"), Path(folder))
        bench.train_base()
        for seed in range(options.seeds):
            tasks, new = PROBLEM.tasks(bench.base, seed, SIZE.logged, SIZE.new)
            how = Sampling(SIZE.attempts, 100 + seed, 1.0)
            logged = run(PROBLEM, bench.base, tasks, how)
            before = measured(bench.base, new, seed)
            for name, settings in ROWS.items():
                for draw in range(options.draws):
                    training = Training(bench.base, seed=seed, algorithm=settings)
                    model = learned(tossed(logged, 1000 * seed + draw), training, Path(folder))
                    after = measured(model, new, seed)
                    told = {heat: round(after.mean(heat), 3) for heat in HEATS}
                    weights.say(f"seed {seed}, {name}, draw {draw}: {told}")
                    for heat in HEATS:
                        gains.setdefault((name, heat), []).append(gained(before, after, heat))
    print(f"| {PROBLEM.title} | sampling | models | gain |\n|---|---|---|---|")
    for (name, heat), repetitions in gains.items():
        print(f"| {name} | {heat} | {len(repetitions)} | {repeated_gain(repetitions)} |")


def tossed(rollouts: Sequence[Rollout], seed: int) -> list[Rollout]:
    """Give each rollout a coin flip as its reward."""
    rate = float(np.mean([one.reward for one in rollouts]))
    rng = random.Random(seed)  # noqa: S311 - sampling, not cryptography
    return [replace(one, reward=float(rng.random() < rate)) for one in rollouts]


def learned(rollouts: Sequence[Rollout], training: Training, folder: Path) -> Path:
    """Learn by rft from rollouts."""
    store, output = folder / "traces.duckdb", folder / "learned"
    store.unlink(missing_ok=True)
    rmtree(output, ignore_errors=True)
    log(store, rollouts)
    make_transitions(store, Settings(agents=PROBLEM.learners))
    learn_weights(store, "rft", training, output)
    return output


def measured(model: Path, tasks: Sequence[object], seed: int) -> Cell:
    """Run the agent as the bench does, with the same draws."""
    cell = Cell()
    for heat, temperature in HEATS.items():
        how = Sampling(SIZE.samples if temperature else 1, 7000 + seed, temperature)
        cell.rewards[heat] = rewards_of(run(PROBLEM, model, tasks, how))
    return cell


def gained(before: Cell, after: Cell, heat: str) -> dict[str, float]:
    """Return the gain by task."""
    olds, news = before.rewards[heat], after.rewards[heat]
    return {task: float(np.mean(news[task]) - np.mean(olds[task])) for task in olds}


if __name__ == "__main__":
    main()
