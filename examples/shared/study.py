"""One study: train a small model, let the agent work, learn, and compare on held-out tasks."""

import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.store import open_store
from otel_lightning.learner.rollout_runner import Grading, Job, Report, run_agent
from otel_lightning.learner.rollout_runner.tasks import Task
from otel_lightning.learner.transitions.make import Settings, make_transitions
from shared.environment import python_for
from shared.rollouts import Agent, Models, agent_server, as_tasks, starting_ingester

GATE_SHARE = 0.2
"""Share of the tasks to learn from that the gate of `lightning-learn weights` judges by."""
JOBS = 8
"""Rollouts at once: the model server samples the calls that wait in one batch."""
MODELS = {
    "before": "before: base model",
    "after": "after:  learned from rewards",
    "control": "control: learned from shuffled rewards",
}
PROMPTS = {
    "before": "before: first prompt",
    "after": "after:  prompt that won",
    "control": "control: prompts written from shuffled rewards",
}
TEMPERATURES = {"t1": 1.0, "greedy": 0.0}
DRAWS = 4000


@dataclass(frozen=True, slots=True)
class Size:
    """How much a study does."""

    tasks: int = 200
    """Tasks to learn weights from."""
    prompt_tasks: int = 200
    """Tasks to learn prompts from; the gate takes about half of them."""
    samples: int = 3
    held_out: int = 100
    held_out_samples: int = 2
    steps: int = 60
    batch: int = 48
    learning_rate: float = 1e-3
    greedy: bool = True
    rounds: int = 3
    """Rounds of the loop, where prompts are learned."""
    gate_samples: int = 4
    """Rollouts of a task in the gate of the loop, where prompts are learned. With one of each task,
    fewer rollouts are enough (McNemar's test)."""
    controls: int = 5
    """Prompts that are written from shuffled rewards. One in three lines that are written without
    knowledge is right by chance, so what one control gains has a standard deviation of 0.15."""
    arm_jobs: int = 3
    """Workers of each arm, where prompts are learned. Arms are chosen by a flag file, so each arm
    needs processes of its own; the start of one takes 1.5 CPU-seconds."""
    trains_first: bool = True
    """Whether the first model is trained, or the shipped one is taken."""


QUICK = Size(
    tasks=100,
    prompt_tasks=160,
    samples=1,
    held_out=60,
    held_out_samples=1,
    steps=16,
    batch=24,
    greedy=False,
    rounds=2,
    gate_samples=1,
    controls=2,
    arm_jobs=1,
    trains_first=False,
)


class Rewards(NamedTuple):
    """Rewards of one model at one temperature, by task."""

    by_task: dict[str, list[float]]
    repeated: "tuple[Rewards, ...]" = ()
    """The rewards of each repetition, if they are the mean over several, such as controls."""

    @property
    def mean(self) -> float:
        """Mean reward of the tasks."""
        return float(np.mean([np.mean(values) for values in self.by_task.values()]))


class Result(NamedTuple):
    """Result of a study: rewards by model and temperature, and seconds."""

    rewards: dict[tuple[str, str], Rewards]
    seconds: float


@dataclass(frozen=True, slots=True)
class Study:
    """The example, its folder and its settings, which all parts of a study share."""

    example: ModuleType
    folder: Path
    size: Size
    seed: int

    @property
    def store(self) -> Path:
        """The store of the study."""
        return self.folder / "traces.duckdb"

    @property
    def rule(self) -> str:
        """The grader."""
        return f"{Path(self.example.__file__ or '').parent / 'grade.py'}:{self.example.RULE}"

    @property
    def agent(self) -> Agent:
        """The agent, in the environment of its framework."""
        folder = Path(self.example.__file__ or "").parent
        return Agent(folder / "agent.py", python_for(folder / "requirements.txt"))

    def stages(self) -> Iterator[tuple[str, str]]:
        """Yield what is compared: each model at each temperature."""
        for temperature in TEMPERATURES:
            if temperature != "greedy" or self.size.greedy:
                for model in MODELS:
                    yield model, temperature


def study(example: ModuleType, folder: Path, size: Size, seed: int = 0) -> Result:
    """Run a study, and print what it does.

    Args:
        example: The module `task` of an example.
        folder: Where its files go; it is emptied first.
        size: How much to do.
        seed: Seed of the first model, of the choice of tasks, and of all sampling.
    """
    started = time.monotonic()
    one = prepared(example, folder, size, seed)
    train, held_out = tasks_of_study(one)
    print(
        f"Held out: {example.HELD_OUT}. {len(train)} tasks to learn from, {len(held_out)} not.",
        flush=True,
    )
    if example.LEARNS == "prompts":
        from shared.prompts import prompts_study

        rewards = prompts_study(one, train, held_out)
    else:
        rewards = weights_study(one, train, held_out)
    return Result(rewards, time.monotonic() - started)


def prepared(example: ModuleType, folder: Path, size: Size, seed: int) -> Study:
    """Empty the folder of a study, write what the tasks need, and train the first model."""
    from shared.first_model import SEED, put_first_model

    one = Study(example, folder.resolve(), size, seed)
    _ = one.agent  # its environment is made, or found missing, before anything is trained
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    example.prepare(folder)
    recipe, base = example.recipe(folder), folder / "base"
    takes_shipped = seed == SEED and not size.trains_first
    if takes_shipped:
        first_model = put_first_model(example, recipe, base)
    else:
        # Only here: it loads torch, which otherwise loads while other programs start.
        from shared.small_model import train

        first_model = train(recipe, seed, base)
    print(f"First model: {first_model}.", flush=True)
    return one


def tasks_of_study(one: Study) -> tuple[Sequence[Task], Sequence[Task]]:
    """Return the tasks to learn from, and those that are held out."""
    lines = one.example.tasks(one.folder)
    random.Random(one.seed).shuffle(lines)
    split = {
        name: [line for line in lines if line["metadata"]["split"] == name]
        for name in ("train", "heldout")
    }
    size = one.size
    count = size.prompt_tasks if one.example.LEARNS == "prompts" else size.tasks
    train, held_out = split["train"][:count], split["heldout"][: size.held_out]
    return as_tasks(train, "train"), as_tasks(held_out, "held-out")


def weights_study(
    one: Study, tasks: Sequence[Task], held_out: Sequence[Task]
) -> dict[tuple[str, str], Rewards]:
    """Learn weights from the rewards of the training tasks, and compare the models."""
    size, rewards = one.size, {}
    with starting_ingester(one.store) as wait, closing(Models()) as models:
        models.serve(one.folder / "base", 1.0, one.seed)
        wait()
        with agent_server(one.agent, one.store, models.url) as url:
            ran(one, Job(tasks, url=url, name="log", samples=size.samples, jobs=JOBS))
            _learn(one)
            for model, temperature in one.stages():
                folder = one.folder / ("base" if model == "before" else model)
                models.serve(folder, TEMPERATURES[temperature], one.seed)
                samples = 1 if temperature == "greedy" else size.held_out_samples
                name = f"{model}_{temperature}"
                job = Job(held_out, url=url, name=name, samples=samples, jobs=JOBS)
                rewards[model, temperature] = rewards_of(ran(one, job))
    return rewards


def ran(one: Study, job: Job) -> Report:
    """Run the agent on tasks as `lightning-learn run` does, and grade its rollouts."""
    return run_agent(one.store, job, Grading(rule=one.rule))


def rewards_of(report: Report, arm: str | None = None) -> Rewards:
    """Return the rewards of a run, or of one arm, by task; without a reward it counts as 0."""
    by_task: dict[str, list[float]] = {}
    for rollout, task in report.tasks.items():
        if report.arms[rollout] == arm:
            by_task.setdefault(task, []).append(report.rewards.get(rollout, 0.0))
    return Rewards(by_task)


def _learn(one: Study) -> None:
    """Learn from the rewards, and from shuffled ones."""
    from otel_lightning.learner.weights.learn import learn_weights
    from otel_lightning.learner.weights.settings import Training

    with open_store(one.store) as opened:
        derive_all(opened, one.store)
    settings = Settings(reward=one.rule, agents=one.example.LEARNERS, held_out=GATE_SHARE)
    summary = make_transitions(one.store, settings)
    print(f"{summary.transitions} transitions, mean reward {summary.mean_reward:.3f}.", flush=True)
    for model, shuffle in (("after", None), ("control", 1)):
        training = Training(
            one.folder / "base",
            learning_rate=one.size.learning_rate,
            steps=one.size.steps,
            batch_size=one.size.batch,
            shuffle_rewards=shuffle,
            seed=one.seed,
        )
        learned = learn_weights(one.store, "rft", training, one.folder / model)
        passed = "passed" if learned.verdict.passed else "refused"
        rows = learned.metrics["learned_from"]
        print(
            f"{MODELS[model]}: trained on {rows:.0f} calls. The gate that judges by logged "
            f"rollouts {passed} it; running the agent on new tasks, below, shows more.",
            flush=True,
        )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean; each value is that of one task."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(np.asarray(values), size=(DRAWS, len(values))).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def averaged(repeated: Sequence[Rewards]) -> Rewards:
    """Put the rewards of repetitions on the same tasks together."""
    tasks = sorted(repeated[0].by_task)
    return Rewards(
        {task: [value for one in repeated for value in one.by_task[task]] for task in tasks},
        tuple(repeated),
    )


def gain(new: Rewards, old: Rewards) -> tuple[float, float, float]:
    """Return the difference of two rewards over the same tasks, and its 95 % interval.

    The interval is a bootstrap over tasks. If the new rewards are of several repetitions, these are
    drawn as well: a control of its own chance proves nothing, however many tasks it ran on.
    """
    tasks = sorted(new.by_task.keys() & old.by_task.keys())
    pairs = np.array(
        [
            [np.mean(one.by_task[task]) - np.mean(old.by_task[task]) for task in tasks]
            for one in new.repeated or (new,)
        ]
    )  # [repetitions, tasks]
    rng = np.random.default_rng(0)
    rows = rng.integers(len(pairs), size=(DRAWS, len(pairs)))
    columns = rng.integers(len(tasks), size=(DRAWS, len(tasks)))
    drawn = [
        pairs[row].mean(axis=0)[column].mean() for row, column in zip(rows, columns, strict=True)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(pairs.mean()), float(low), float(high)


def table(rewards: Mapping[tuple[str, str], Rewards], names: Mapping[str, str]) -> list[str]:
    """Write the comparison as lines of a Markdown table; `names` has the text of each model."""
    lines = [
        "| what is served | sampling | success | 95 % | gain | 95 % | rollouts |",
        "|---|---|---|---|---|---|---|",
    ]
    for (model, temperature), measured in rewards.items():
        low, high = interval([float(np.mean(one)) for one in measured.by_task.values()])
        gained = ["", ""]
        if model != "before":
            mean, low_gain, high_gain = gain(measured, rewards["before", temperature])
            gained = [f"{mean:+.3f}", f"[{low_gain:+.3f}, {high_gain:+.3f}]"]
        sampling = "greedy" if temperature == "greedy" else "T = 1"
        count = sum(map(len, measured.by_task.values()))
        cells = [names[model], sampling, f"{measured.mean:.3f}", f"[{low:.3f}, {high:.3f}]"]
        lines.append(f"| {' | '.join([*cells, *gained, str(count)])} |")
    return lines


@contextmanager
def titled(text: str) -> Iterator[None]:
    """Print a title, and the seconds that the block took."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)
    started = time.monotonic()
    yield
    print(f"({time.monotonic() - started:.0f} s)", flush=True)
