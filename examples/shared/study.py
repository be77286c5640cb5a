"""One study: train a small model, let the agent work, learn, and compare on held-out tasks."""

import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from otel_lightning.collector.store import open_store
from otel_lightning.learner.rollout_runner.tasks import Task
from otel_lightning.learner.score.rules import apply_rule
from otel_lightning.learner.transitions.make import Settings, make_transitions
from shared.environment import python_for
from shared.rollouts import Agent, Store, Work, as_tasks, ingesting, run, serving

GATE_SHARE = 0.2
"""Share of the tasks to learn from that the gate of `lightning-learn weights` judges by."""
BATCH = 48
MODELS = {
    "before": "before: base model",
    "after": "after:  learned from rewards",
    "control": "control: learned from shuffled rewards",
}
TEMPERATURES = {"t1": 1.0, "greedy": 0.0}
DRAWS = 4000


@dataclass(frozen=True, slots=True)
class Size:
    """How much a study does."""

    tasks: int = 200
    samples: int = 3
    held_out: int = 100
    held_out_samples: int = 2
    steps: int = 60
    learning_rate: float = 1e-3
    greedy: bool = True


QUICK = Size(tasks=150, samples=2, held_out=60, steps=40, greedy=False)


class Rewards(NamedTuple):
    """Rewards of one model at one temperature, by task."""

    by_task: dict[str, list[float]]

    @property
    def mean(self) -> float:
        """Mean reward of the tasks."""
        return float(np.mean([np.mean(values) for values in self.by_task.values()]))


class Result(NamedTuple):
    """What a study found: rewards by model and temperature, and seconds."""

    rewards: dict[tuple[str, str], Rewards]
    seconds: float


def study(example: ModuleType, folder: Path, size: Size, seed: int = 0) -> Result:
    """Run a study, and print what it does.

    Args:
        example: The module `task` of an example.
        folder: Where its files go; it is emptied first.
        size: How much to do.
        seed: Seed of the first model, of the choice of tasks, and of all sampling.
    """
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    here = Path(example.__file__ or "").parent
    agent = Agent(here / "agent.py", python_for(here / "requirements.txt"))
    rule = f"{here / 'grade.py'}:{example.RULE}"
    example.prepare(folder)
    train, held_out = _tasks(example, folder, size, seed)
    print(f"Held out: {example.HELD_OUT}. {len(train)} tasks to learn from, {len(held_out)} not.")
    _train(example, folder, seed)
    with ingesting(folder / "traces.duckdb") as store:
        with serving(folder / "base", 1.0, seed) as url:
            run(store, agent, url, Work("log", train, size.samples))
        _learn(example, store, rule, size, seed)
        for model, temperature in _stages(size):
            samples = 1 if temperature == "greedy" else size.held_out_samples
            with serving(folder / _folder(model), TEMPERATURES[temperature], seed) as url:
                work = Work(f"{model}_{temperature}", held_out, samples)
                run(store, agent, url, work)
        apply_rule(store.path, rule)
        rewards = {
            (model, temperature): _rewards(store, example.RULE, f"{model}_{temperature}")
            for model, temperature in _stages(size)
        }
    return Result(rewards, time.monotonic() - started)


def _stages(size: Size) -> Iterator[tuple[str, str]]:
    for temperature in TEMPERATURES:
        if temperature != "greedy" or size.greedy:
            for model in MODELS:
                yield model, temperature


def _folder(model: str) -> str:
    return "base" if model == "before" else model


def _tasks(
    example: ModuleType, folder: Path, size: Size, seed: int
) -> tuple[Sequence[Task], Sequence[Task]]:
    lines = example.tasks(folder)
    random.Random(seed).shuffle(lines)
    split = {
        name: [one for one in lines if one["metadata"]["split"] == name]
        for name in ("train", "heldout")
    }
    train, held_out = split["train"][: size.tasks], split["heldout"][: size.held_out]
    return as_tasks(train, "train"), as_tasks(held_out, "held-out")


def _train(example: ModuleType, folder: Path, seed: int) -> None:
    from shared.small_model import train

    done = train(example.recipe(folder), seed, folder / "base")
    print(f"First model: {done}.", flush=True)


def _learn(example: ModuleType, store: Store, rule: str, size: Size, seed: int) -> None:
    """Learn from the rewards, and from shuffled ones."""
    from otel_lightning.learner.weights.learn import learn_weights
    from otel_lightning.learner.weights.settings import Training

    settings = Settings(reward=rule, agents=example.LEARNERS, held_out=GATE_SHARE)
    summary = make_transitions(store.path, settings)
    print(f"{summary.transitions} transitions, mean reward {summary.mean_reward:.3f}.", flush=True)
    folder = store.path.parent
    for model, shuffle in (("after", None), ("control", 1)):
        training = Training(
            folder / "base",
            learning_rate=size.learning_rate,
            steps=size.steps,
            batch_size=BATCH,
            shuffle_rewards=shuffle,
            seed=seed,
        )
        learned = learn_weights(store.path, "rft", training, folder / model)
        passed = "passed" if learned.verdict.passed else "refused"
        rows = learned.metrics["learned_from"]
        print(f"{MODELS[model]}: {rows:.0f} calls; the gate by logs {passed}.", flush=True)


def _rewards(store: Store, rule: str, name: str) -> Rewards:
    """Return the rewards of a run; a rollout without one counts as 0."""
    sql = f"""
        SELECT a.task_id, coalesce(r.value, 0) AS value
        FROM attempts a
        LEFT JOIN rewards r ON r.rollout_id = a.rollout_id AND r.name = '{rule}'
        WHERE a.run_id = '{name}'
    """
    by_task: dict[str, list[float]] = {}
    with open_store(store.path) as opened:
        for row in opened.query(sql).to_pylist():
            by_task.setdefault(row["task_id"], []).append(row["value"])
    return Rewards(by_task)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean; each value is that of one task."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(np.asarray(values), size=(DRAWS, len(values))).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def gain(new: Rewards, old: Rewards) -> tuple[float, float, float]:
    """Return the difference of two rewards over the same tasks, and its 95 % interval."""
    tasks = sorted(new.by_task.keys() & old.by_task.keys())
    pairs = [float(np.mean(new.by_task[one]) - np.mean(old.by_task[one])) for one in tasks]
    return float(np.mean(pairs)), *interval(pairs)


def table(rewards: Mapping[tuple[str, str], Rewards]) -> list[str]:
    """Write the comparison as lines of a Markdown table."""
    lines = [
        "| model | sampling | success | 95 % | gain | 95 % | rollouts |",
        "|---|---|---|---|---|---|---|",
    ]
    for (model, temperature), found in rewards.items():
        low, high = interval([float(np.mean(one)) for one in found.by_task.values()])
        gained = ["", ""]
        if model != "before":
            mean, least, most = gain(found, rewards["before", temperature])
            gained = [f"{mean:+.3f}", f"[{least:+.3f}, {most:+.3f}]"]
        sampling = "greedy" if temperature == "greedy" else "T = 1"
        count = sum(map(len, found.by_task.values()))
        cells = [MODELS[model], sampling, f"{found.mean:.3f}", f"[{low:.3f}, {high:.3f}]"]
        lines.append(f"| {' | '.join([*cells, *gained, str(count)])} |")
    return lines


@contextmanager
def titled(text: str) -> Iterator[None]:
    """Print a title, and the seconds that the block took."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)
    started = time.monotonic()
    yield
    print(f"({time.monotonic() - started:.0f} s)", flush=True)
