"""The rollouts of a run: each task, sample and arm once, with an id that is always the same."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from otel_lightning.collector.load.position import STALL_SECONDS
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.tasks import UNSPLIT, Task

MAX_TASK_ID_LENGTH = 60
SEEDS = 2**31


@dataclass(frozen=True, slots=True)
class Arms:
    """Arms to compare on the same tasks and seeds: variants of one flag."""

    key: str
    flags: Path
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Job:
    """An agent to run on tasks.

    The rollouts of a job are identified by its tasks, `name`, `seed`, arms and model. Running the
    same job again runs only what is missing.
    """

    tasks: Path | Sequence[Task]
    command: Sequence[str] = ()
    """The agent and its arguments; `{id}`, `{input}`, `{file}` and names of fields are replaced."""
    url: str | None = None
    """Instead of a command: where to POST each task."""
    serve: Sequence[str] = ()
    """Instead of a command: a worker that stays, a JSON line in and a JSON line out."""
    name: str | None = None
    """Name of the run; by default a hash of the command, the file of tasks and the seed."""
    samples: int = 1
    jobs: int = 2
    timeout: float = 300.0
    """Seconds for one attempt."""
    grace: float = 2.0
    """Seconds between SIGTERM and SIGKILL."""
    retries: int = 2
    """Further attempts at a rollout that was lost; an agent that failed is not run again."""
    rerun: Sequence[str] = ()
    """Statuses whose rollouts are attempted once more: `failed`, `timeout`, `lost`."""
    seed: int = 0
    split: str = UNSPLIT
    held_out: float = 0.3
    limit: int | None = None
    shard: tuple[int, int] = (1, 1)
    arms: Arms | None = None
    model: str | None = None
    """Label of the model that the agent uses, to compare models."""
    model_fingerprint: str | None = None
    """Hash of that model's files: another model under the same label has other rollouts."""
    environment: "dict[str, str] | None" = None
    """Further variables of the agent."""
    stdin: str = "json"
    """Standard input of the agent: `json` (the task), `input` (its input as text) or `none`."""
    endpoint: str | None = None
    """OTLP receiver to send to; by default the ingester of the store."""
    max_output: int = 64 * 2**20
    """Bytes that an agent may write before it is ended."""
    store_timeout: float = STALL_SECONDS
    """Longest wait for an ingester that makes no progress, in seconds."""
    ray: bool = False
    """Run each attempt as a Ray task."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One rollout to have: a task, a sample and an arm."""

    task: Task
    sample: int
    seed: int
    key: str
    """Id of the rollout's first attempt."""
    arm: str | None = None

    def rollout_id(self, attempt: int) -> str:
        """Return the id of an attempt; each further one has its own."""
        return self.key if attempt == 0 else f"{self.key}-a{attempt}"


def run_name(job: Job) -> str:
    """Return the name of a run, which `attempts.run_id` has: the given one, or a hash.

    Raises:
        DataError: If the given name cannot be a folder and a part of ids.
    """
    if job.name is not None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", job.name):
            raise DataError(
                f"'{job.name}' cannot name a run. Use letters, digits, '_', '-' and '.', at most "
                "100, and begin with a letter or digit."
            )
        return job.name
    tasks_path = str(job.tasks.resolve()) if isinstance(job.tasks, Path) else ""
    parts = [*job.command, "\0", *job.serve, "\0", job.url or "", tasks_path, str(job.seed)]
    return f"run-{sha256(chr(0).join(parts).encode()).hexdigest()[:8]}"


def runs_folder(store: Path) -> Path:
    """Return the folder of all runs of a store, which is beside it."""
    return store.with_name(f"{store.name}.runs")


def journal_folder(store: Path, job: Job) -> Path:
    """Return the folder of the run's journal, or of its part's."""
    folder = runs_folder(store)
    number, count = job.shard
    # Machines that send elsewhere often share a disk, as in a SLURM array. One journal can be open
    # in one process only.
    if count > 1 and job.endpoint:
        folder = folder / f"part-{number}-of-{count}"
    return folder / run_name(job)


def plan(
    job: Job, tasks: Sequence[Task], arm_prints: Mapping[str, str] | None = None
) -> Iterator[Planned]:
    """Yield the rollouts of a job in the order to start them.

    All tasks come once before any comes again. The arms of one task and sample follow each other
    in an order of chance, so that they meet the same conditions.

    Args:
        job: The job.
        tasks: Its tasks.
        arm_prints: Hash of the content of each arm: an arm that was edited has other rollouts.
    """
    name = run_name(job)
    # Hashes beside the labels, since the next time a label may be of another model or text.
    prints = arm_prints or {}
    model = (job.model or "", job.model_fingerprint or "")
    number, count = job.shard
    arms: Sequence[str | None] = job.arms.names if job.arms else (None,)
    for sample in range(job.samples):
        for task in tasks:
            shard_hash = _hash(task.task_id, str(sample))
            # By hash and not by position, so that every shard has a similar mix of tasks, and a
            # task that is added moves no other.
            if int(shard_hash[:16], 16) % count != number - 1:
                continue
            # The arm is no part of it: all arms of a task and sample get the same seed, which pairs
            # them.
            seed = int(_hash(str(job.seed), task.task_id, str(sample))[:16], 16) % SEEDS
            for arm in sorted(arms, key=lambda arm: _hash(str(seed), arm or "")):
                parts = (name, str(job.seed), task.fingerprint, str(sample))
                key = _hash(*parts, arm or "", prints.get(arm or "", ""), *model)[:10]
                rollout_id = f"{_as_part_of_id(task.task_id)}-{sample}-{key}"
                yield Planned(task, sample, seed, rollout_id, arm)


def _as_part_of_id(task_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", task_id)[:MAX_TASK_ID_LENGTH]


def _hash(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
