"""How often weights whose gain is over pass the gate by logs, and how often it refuses others.

    python tests/bench/weights_drift.py [--seeds 300] [--only WORDS]

Each log has four rollouts of every task, one task after the other, with one of two completions by a
coin. The new weights prefer the second one, three to one. In a lost world it is the worse one from
some time on, until the end of the log. Beside the gate stands the gate without its check of the
newest rollouts.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from otel_lightning.learner.evaluate.refusals import Cause
from otel_lightning.learner.weights.examples import Example
from otel_lightning.learner.weights.gate.held_out import Likelihoods, judge_weights

HELD_OUT = 0.3
ATTEMPTS = 4
PREFERENCE = (0.25, 0.75)
"""Probability of each completion under the new weights; before it was a half."""


@dataclass(frozen=True, slots=True)
class World:
    """How often the completions succeed, until some share of the log and after it."""

    before: tuple[float, float]
    after: tuple[float, float]
    since: float = 1.0

    @property
    def lost(self) -> bool:
        """Whether the new weights are worse at the end."""
        return self.after[1] < self.after[0]


GOOD, WEAK, BAD = (0.3, 0.7), (0.4, 0.6), (0.7, 0.3)
WORLDS = {
    "worse in the newest fifth": World(GOOD, BAD, 0.8),
    "worse in the newest tenth": World(GOOD, BAD, 0.9),
    "worse in the newest twentieth": World(GOOD, BAD, 0.95),
    "slightly worse in the newest tenth": World(GOOD, (0.6, 0.4), 0.9),
    "a gain that lasts": World(GOOD, GOOD),
    "half as large a gain that lasts": World(WEAK, WEAK),
    "half of the gain left since the middle": World(GOOD, WEAK, 0.5),
    "half of the gain left in the newest tenth": World(GOOD, WEAK, 0.9),
    "easier tasks since the middle": World((0.1, 0.5), (0.5, 0.9), 0.5),
}
TASKS = (100, 200, 400)


def logged(world: World, tasks: int, rng: np.random.Generator) -> tuple[list[Example], np.ndarray]:
    """Draw a log, and the logprobs of its completions under the new weights."""
    held_out = rng.random(tasks) < HELD_OUT
    examples, after = [], []
    for task in range(tasks):
        success = world.before if task < world.since * tasks else world.after
        for attempt in range(ATTEMPTS):
            completion = int(rng.integers(2))
            reward = float(rng.random() < success[completion])
            one = Example(
                rollout_id=f"{task:04}-{attempt}",
                task=f"{task:04}",
                split="heldout" if held_out[task] else "train",
                state_hash=None,
                prompt=(task,),
                completion=(completion,),
                logprobs=(math.log(0.5),),
                temperature=1.0,
                reward=reward,
                outcome=reward,
                advantage=reward - 0.5,
                began=ATTEMPTS * task + attempt,
            )
            examples.append(one)
            after.append(math.log(PREFERENCE[completion]))
    return examples, np.array(after)


def verdicts(world: World, tasks: int, seeds: int) -> Iterator[tuple[bool, bool]]:
    """Yield for each seed whether the gate passes, and whether it does without the check."""
    for seed in range(seeds):
        examples, after = logged(world, tasks, np.random.default_rng(seed))
        judged_by = [i for i, one in enumerate(examples) if one.split == "heldout"]
        verdict = judge_weights(
            [examples[i] for i in judged_by],
            Likelihoods(np.full(len(judged_by), math.log(0.5)), after[judged_by]),
            threshold=0.0,
            clip=10.0,
            history=[one for one in examples if one.split == "train"],
        )
        causes = {reason.cause for reason in verdict.reasons}
        yield verdict.passed, causes <= {Cause.FALLEN}


def main() -> None:
    """Print a row for each world and number of tasks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--only", default="", help="worlds whose name has these words")
    options = parser.parse_args()
    print(
        "| log | is it right to pass? | tasks | passed | without the check |\n|---|---|---|---|---|"
    )
    for name, world in WORLDS.items():
        for tasks in TASKS if options.only in name else ():
            told = np.array(list(verdicts(world, tasks, options.seeds)))
            passed, without = told.mean(axis=0)
            right = "no" if world.lost else "yes"
            print(f"| {name} | {right} | {tasks} | {passed:.1%} | {without:.1%} |", flush=True)


if __name__ == "__main__":
    main()
