"""The journal of a search: which prompts were run on which tasks, and their rewards.

It is a file of JSON lines beside the store. GEPA walks the same way when it gets the same rewards
and proposals, so a search that was killed goes on when the same command is given again: evaluations
that ended are read from here, the one that was cut off is finished by the journal of its run, and
the model's answers are in their cache.
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.prompts.records import Record
from otel_lightning.learner.rollout_runner.engine import AgentFailsError
from otel_lightning.learner.rollout_runner.tasks import Task

NO_REWARD = "No rollout of the search has a reward."
GIVE_GRADER = "Give a grader, or let the agent send rewards."


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The results of a prompt on some tasks."""

    rewards: Mapping[str, float]
    """Reward of each graded task, by its id."""
    records: Mapping[str, Record]
    """What the proposing model is shown of a task, by its id; tasks without text have none."""
    problem: str = ""
    """Why no rollout has a reward, if none has."""


class Evaluation(NamedTuple):
    """One evaluation of a search."""

    name: str
    """Name of its run: the same prompt on the same tasks at the same point has the same one."""
    number: int
    """Its number, from 0."""


Evaluate = Callable[[Sequence[Task], Any, Evaluation], Evaluated]
"""Runs the agent with a variant's value on tasks."""


@dataclass(slots=True)
class SearchJournal:
    """The evaluations of a search over all its starts."""

    name: str
    budget: int
    evaluate: Evaluate
    path: Path | None = None
    """The file; None keeps the journal in memory only."""
    parent: tuple[str, Any] | None = None
    """Name and value of the variant that the search improves, if it began before."""
    _started: dict[str, int] = field(default_factory=dict)
    """Number of rollouts by the name of the run."""
    _ended: dict[str, Evaluated] = field(default_factory=dict)
    _failed: dict[str, int] = field(default_factory=dict)
    """Rollouts of runs whose agent always failed, which are repeated under another name."""
    _walked: list[str] = field(default_factory=list)
    """Runs that this start has asked for."""
    _has_left: bool = False

    @property
    def before(self) -> int:
        """Number of rollouts in the journal."""
        return sum(self._started.values()) + sum(self._failed.values())

    @property
    def spent(self) -> int:
        """Number of rollouts that count against the budget at this point."""
        if self._has_left:
            return self.before
        # A start that repeats the way of an earlier one has to stop where that one stopped, and
        # not sooner, so evaluations that it has not reached yet do not count.
        return sum(self._started[name] for name in self._walked) + sum(self._failed.values())

    @property
    def has_left(self) -> bool:
        """Whether this start goes another way than an earlier one, after a change meanwhile."""
        return self._has_left

    def exhausted(self) -> DataError:
        """Return the error of a search that went another way and has no rollouts left."""
        return DataError(
            f"The search had spent {self.before:,} of {self.budget:,} rollouts, and it cannot go "
            "on where it was: the flag file, the history of proposals or the agent's runs changed "
            "meanwhile. Give a larger --budget, or another --seed to begin anew."
        )

    def begin(self, parent: str, value: Any) -> None:
        """Note the variant that the search improves: live traffic may prefer another one later."""
        self.parent = (parent, value)
        self._write({"event": "search", "parent": parent, "value": value})

    def evaluated(self, tasks: Sequence[Task], value: Any) -> Evaluated:
        """Return the results of a prompt on tasks; run the agent if they are not known.

        Raises:
            DataError: If no rollout has a reward, the budget would be exceeded, or the agent
                cannot be run.
        """
        one = self._named(tasks, value)
        if one.name not in self._started:
            self._has_left = self._has_left or len(self._walked) < len(self._started)
            if self.spent + len(tasks) > self.budget:
                raise self.exhausted()
            self._started[one.name] = len(tasks)
            self._write({"event": "started", "run": one.name, "rollouts": len(tasks)})
        self._walked.append(one.name)
        if one.name in self._ended:
            return self._ended[one.name]
        try:
            found = self.evaluate(tasks, value, one)
        except AgentFailsError:
            # Its rollouts say nothing about the prompt: once the agent is mended, they run anew.
            self._walked.pop()
            self._failed[one.name] = self._started.pop(one.name)
            self._write({"event": "failed", "run": one.name})
            raise
        if not found.rewards:  # nothing is noted: the next start grades the same rollouts again
            raise DataError(found.problem or f"{NO_REWARD} {GIVE_GRADER}")
        self._ended[one.name] = found
        records = {
            task: [record.rollout_id, record.line, record.texts]
            for task, record in found.records.items()
        }
        known = {"rewards": dict(found.rewards), "records": records}
        self._write({"event": "ended", "run": one.name, **known})
        return found

    def note(self, line: Mapping[str, Any]) -> None:
        """Take a line of the file."""
        run = line.get("run", "")
        match line.get("event"):
            case "search":
                self.parent = (line["parent"], line["value"])
            case "started":
                self._started[run] = line["rollouts"]
            case "failed":
                self._failed[run] = self._started.pop(run, 0)
            case "ended":
                records = {
                    task: Record(name, text, tuple(texts))
                    for task, (name, text, texts) in line["records"].items()
                }
                self._ended[run] = Evaluated(line["rewards"], records)

    def _named(self, tasks: Sequence[Task], value: Any) -> Evaluation:
        number = len(self._walked)
        known = [value, [task.whole_fingerprint for task in tasks]]
        name = f"{self.name}.{number}-{digest(known)}"
        while name in self._failed:
            name += "-again"
        return Evaluation(name, number)

    def _write(self, line: dict[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")


@contextmanager
def opened_search(
    folder: Path | None, name: str, budget: int, evaluate: Evaluate
) -> Iterator[SearchJournal]:
    """Open the journal of a search, which no other process may have open.

    Raises:
        DataError: If another process has it open.
    """
    if folder is None:
        yield SearchJournal(name, budget, evaluate)
        return
    folder.mkdir(parents=True, exist_ok=True)
    journal = SearchJournal(name, budget, evaluate, folder / f"{name}.jsonl")
    with (folder / f"{name}.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(
                "This search is in progress already. Wait for it, or begin another one with "
                "--seed N."
            ) from error
        _read(journal, folder / f"{name}.jsonl")
        yield journal


def digest(value: Any) -> str:
    """Return the first characters of a hash of a value that JSON can express."""
    text = json.dumps(value, sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:12]


def _read(journal: SearchJournal, path: Path) -> None:
    data = path.read_bytes() if path.exists() else b""
    if data and not data.endswith(b"\n"):
        # Cut off when the process was killed: what comes next gets a line of its own.
        with path.open("ab") as file:
            file.write(b"\n")
    for text in data.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        journal.note(line)
