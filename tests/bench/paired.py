"""How often a gain passes the paired gate, and how often no gain does.

    python tests/bench/paired.py [--simulations 200]

Every simulation draws tasks of its own, runs both sides on them, and compares. Beside the gate
stand its bound by bets for any number of tasks, which it had before, and the bootstrap, which
knows no loss that is in none of the rollouts; each together with the randomisation test.
"""

import argparse
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.evaluate.betting import Scores, lower_bound
from otel_lightning.learner.evaluate.paired import Pair, PairedComparison, compare_sides

Floats = NDArray[np.float64]
Sides = tuple[Floats, Floats]
"""Rewards of both sides, each of shape [tasks, samples]."""
Draw = Callable[[np.random.Generator, int], Sides]

ALPHA = 0.05
RESAMPLES = 1000
TASKS = (10, 20, 50, 100, 200)
GAINS = (0.05, 0.1, 0.2)
METHODS = ("the gate", "before", "bootstrap")


def scores(gain: float, samples: int, evenness: float) -> Draw:
    """Rewards from 0 to 1 by a beta distribution; the larger `evenness`, the less noise.

    The mean of a task is drawn from .2 to .7, and the other side's is larger by the gain.
    """

    def draw(rng: np.random.Generator, tasks: int) -> Sides:
        means = rng.uniform(0.2, 0.7, (tasks, 1))
        base, other = (
            rng.beta(evenness * level, evenness * (1 - level), (tasks, samples))
            for level in (means, means + gain)
        )
        return base, other

    return draw


def rare(usual: float, better: float, loss: float, samples: int) -> Draw:
    """The base earns the same always; the other is worth as much, by more and a rare loss."""
    share = (better - usual) / (better - loss)

    def draw(rng: np.random.Generator, tasks: int) -> Sides:
        shape = (tasks, samples)
        return np.full(shape, usual), np.where(rng.random(shape) < share, loss, better)

    return draw


def successes(gain: float, samples: int) -> Draw:
    """Rewards of 0 and 1. The mean of a task is drawn from .2 to .7, and the other's is larger."""

    def draw(rng: np.random.Generator, tasks: int) -> Sides:
        means = rng.uniform(0.2, 0.7, (tasks, 1))
        drawn = rng.random((2, tasks, samples))
        return (drawn[0] < means).astype(float), (drawn[1] < means + gain).astype(float)

    return draw


def lost_tasks(better: float, samples: int) -> Draw:
    """Rewards of 0 and 1. The other always succeeds, but never in a few tasks, which cancels it."""
    share = better / (1 + better)

    def draw(rng: np.random.Generator, tasks: int) -> Sides:
        lost = rng.random((tasks, 1)) < share
        base = rng.random((tasks, samples)) < np.where(lost, 1.0, 1 - better)
        return base.astype(float), np.repeat(~lost, samples, axis=1).astype(float)

    return draw


GAINING: dict[str, Callable[[float], Draw]] = {
    "three samples, some noise": lambda gain: scores(gain, 3, 4.0),
    "one sample, nearly 0 or 1": lambda gain: scores(gain, 1, 1.0),
    "three samples, little noise": lambda gain: scores(gain, 3, 40.0),
    "0 or 1, one sample": lambda gain: successes(gain, 1),
    "0 or 1, two samples": lambda gain: successes(gain, 2),
    "0 or 1, five samples": lambda gain: successes(gain, 5),
}
NO_GAIN: dict[str, tuple[Draw, float]] = {
    "equal, three samples": (scores(0.0, 3, 4.0), 0.0),
    "equal, one sample, nearly 0 or 1": (scores(0.0, 1, 1.0), 0.0),
    "-10 in one of 215, one sample": (rare(0.7, 0.75, -10.0, 1), -10.0),
    "-10 in one of 55, three samples": (rare(0.7, 0.9, -10.0, 3), -10.0),
    "0 in one of 49, two samples": (rare(0.95, 0.97, 0.0, 2), 0.0),
    "0 in one of 6, one sample": (rare(0.5, 0.6, 0.0, 1), 0.0),
    "0 in half, one sample": (rare(0.5, 1.0, 0.0, 1), 0.0),
    "0 or 1, one of 11 tasks lost, ten samples": (lost_tasks(0.1, 10), 0.0),
    "0 or 1, one of 11 tasks lost, five samples": (lost_tasks(0.1, 5), 0.0),
    "0 or 1, one of 6 tasks lost, two samples": (lost_tasks(0.2, 2), 0.0),
}
"""Two sides that are worth the same, and the least possible reward; the greatest is 1."""


def by_pair(rewards: Floats) -> dict[Pair, float]:
    return {(str(t), s): float(v) for t, row in enumerate(rewards) for s, v in enumerate(row)}


def judged(sides: Sides, low: float, rng: np.random.Generator) -> Iterable[bool]:
    base, other = sides
    found: PairedComparison = compare_sides(
        ("base", by_pair(base)), ("other", by_pair(other)), reward_range=(low, 1.0)
    )
    significant = found.p_value < ALPHA
    yield found.passed
    differences = (other - base).mean(axis=1)
    yield significant and lower_bound([Scores(differences, low - 1.0)], ALPHA) > 0
    drawn = differences[rng.integers(len(differences), size=(RESAMPLES, len(differences)))]
    yield significant and bool(np.quantile(drawn.mean(axis=1), ALPHA) > 0)


def shares(draw: Draw, low: float, tasks: int, simulations: int) -> list[str]:
    rng = np.random.default_rng(tasks)
    passed = [list(judged(draw(rng, tasks), low, rng)) for _ in range(simulations)]
    return [f"{share:.1%}" for share in np.mean(passed, axis=0)]


def print_table(rows: Iterable[tuple[str, Draw, float]], simulations: int) -> None:
    print("| | tasks | " + " | ".join(METHODS) + " |\n|---|---|" + "---|" * len(METHODS))
    for name, draw, low in rows:
        for tasks in TASKS:
            cells = shares(draw, low, tasks, simulations)
            print(f"| {name} | {tasks} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--only", default="", help="rows whose name has these words")
    options = parser.parse_args()
    simulations, only = options.simulations, options.only
    print("A true gain passes:\n")
    gaining = (
        (f"{gain:g}: {name}", draw(gain), 0.0)
        for name, draw in GAINING.items()
        for gain in GAINS
        if only in name
    )
    print_table(gaining, simulations)
    print("\nNo gain passes, at a level of 5 %:\n")
    no_gain = ((name, *of) for name, of in NO_GAIN.items() if only in name)
    print_table(no_gain, simulations)


if __name__ == "__main__":
    main()
