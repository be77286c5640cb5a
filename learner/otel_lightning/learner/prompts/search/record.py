"""The record of a search: its settings and its rollouts, so that a killed search can go on.

GEPA makes the same choices from the same seed and the same rewards. So the next start repeats them
with the rewards of this record and the answers of the cache, and runs only what is missing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from otel_lightning.collector.files.atomic import locked, make_private, replaced
from otel_lightning.collector.files.reason import reason
from otel_lightning.collector.store import StoreLike, opened
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.policy.serving import flag_file
from otel_lightning.learner.prompts.proposals.history import History
from otel_lightning.learner.prompts.proposals.plan import Plan
from otel_lightning.learner.prompts.serving.variants import variants_with_text
from otel_lightning.learner.rollout_runner.tasks import Task

FILE = "search.json"


class Graded(NamedTuple):
    """A rollout of the search with its reward."""

    rollout_id: str
    task_id: str
    reward: float


@dataclass(slots=True)
class Evaluation:
    """One evaluation of a prompt on some tasks."""

    key: str
    """Hash of the prompt and the tasks."""
    rollouts: int
    unused: int = 0
    """Rollouts of earlier starts that the search came to no more, and that its budget paid for."""
    graded: list[Graded] | None = None
    """None until it has ended."""


@dataclass(slots=True)
class Beginning:
    """The inputs at the start of a search; the log may have changed since."""

    parent: str
    value: Any
    """The parent's value in the flag file."""
    proposals: int
    """Number of earlier proposals for the flag."""
    hashes: list[str]
    failed: list[str]


@dataclass(slots=True)
class SearchRecord:
    """The evaluations of a search so far; with a folder, each change is saved at once."""

    name: str = "search"
    folder: Path | None = None
    beginning: Beginning | None = None
    evaluations: list[Evaluation] = field(default_factory=list)
    given_up: bool = False
    """Whether no start shall go on with it."""
    replaces: str | None = None
    """Name of a search that this one replaces, because its prompt was changed."""

    @property
    def rollouts(self) -> int:
        """Number of rollouts that all starts together have begun."""
        return sum(evaluation.rollouts + evaluation.unused for evaluation in self.evaluations)

    def pinned(self, plan: Plan) -> Plan:
        """Return the plan with the beginning of this search, which is noted by the first start."""
        if self.beginning is None:
            past = plan.history
            value = plan.variants[plan.parent].value
            self.beginning = Beginning(
                plan.parent, value, past.count, sorted(past.hashes), list(past.failed)
            )
            self._save()
        begun = self.beginning
        past = History(begun.proposals, frozenset(begun.hashes), tuple(begun.failed))
        return replace(plan, parent=begun.parent, history=past)

    def cost(self, number: int, key: str) -> int:
        """Return the rollouts that an evaluation takes from the budget besides its own."""
        if self._is_known(number, key):
            return self.evaluations[number].unused
        return sum(
            evaluation.rollouts + evaluation.unused for evaluation in self.evaluations[number:]
        )

    def begin(self, number: int, key: str, rollouts: int) -> None:
        """Record an evaluation before its first rollout, unless an earlier start has noted it."""
        if self._is_known(number, key):
            return
        unused = self.cost(number, key)
        self.evaluations[number:] = [Evaluation(key, rollouts, unused)]
        self._save()

    def end(self, number: int, graded: Sequence[Graded]) -> None:
        """Record the rewards of an evaluation."""
        self.evaluations[number].graded = list(graded)
        self._save()

    def give_up(self) -> None:
        """Record that the next start shall begin a new search."""
        self.given_up = True
        self._save()

    def _is_known(self, number: int, key: str) -> bool:
        return number < len(self.evaluations) and self.evaluations[number].key == key

    def _save(self) -> None:
        if self.folder is None:
            return
        saved = asdict(self)
        for name in ("name", "folder", "replaces"):
            del saved[name]
        with replaced(self.folder / FILE) as file:
            file.write_text(json.dumps(saved), encoding="utf-8")


def evaluation_key(tasks: Sequence[Task], value: Any) -> str:
    """Hash a prompt and the tasks that it is evaluated on."""
    return _hash([value, [task.whole_fingerprint for task in tasks]])[:8]


@contextmanager
def opened_search(
    store: StoreLike, folder: Path, flags: Path, key: str, identity: Mapping[str, Any]
) -> Iterator[SearchRecord]:
    """Open the record of the search that was begun with the same settings and has not ended.

    Args:
        store: Path of the store, or an open store.
        folder: Folder of all searches of the store.
        flags: The flag file.
        key: The flag.
        identity: All settings that the way of the search depends on.

    Yields:
        The record; a new one if there is none to go on with. No other process has it open.

    Raises:
        DataError: If another process has it open, or it cannot be read.
        StoreError: If the store cannot be read.
    """
    prefix = f"search-{_hash(identity)[:10]}-"
    with opened(store) as db:
        ended = set(read(db, __package__, "ended_searches", prefix=prefix)["run_id"])
    variants = variants_with_text(flag_file.read_flag_file(flags, key), key)
    replaces = None
    for number in count(1):
        name = f"{prefix}{number}"
        if name in ended:
            continue
        own = folder / name
        make_private(own)
        with _alone(own):
            record = _read(own)
            begun = record.beginning
            parent = variants.get(begun.parent) if begun else None
            if begun and (parent is None or parent.value != begun.value):
                # Its proposals could not be written: they improve a prompt that is gone.
                record.give_up()
                replaces = name
            if not record.given_up:
                record.replaces = replaces
                yield record
                return


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder, wait=False))
        except BlockingIOError as error:
            raise DataError(
                f"The search '{folder.name}' is in progress already. Wait for it, or start another "
                "with --seed NUMBER."
            ) from error
        yield


def _read(folder: Path) -> SearchRecord:
    file = folder / FILE
    if not file.exists():
        return SearchRecord(folder.name, folder)
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        beginning = saved["beginning"]
        evaluations = [
            Evaluation(**row | {"graded": _graded(row["graded"])}) for row in saved["evaluations"]
        ]
        return SearchRecord(
            folder.name,
            folder,
            Beginning(**beginning) if beginning else None,
            evaluations,
            saved["given_up"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"'{file}' cannot be read ({reason(error)}), so the search cannot go on. Delete the "
            f"folder '{folder}' to begin a new one."
        ) from error


def _graded(rows: Sequence[Sequence[Any]] | None) -> list[Graded] | None:
    return None if rows is None else [Graded(*row) for row in rows]


def _hash(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
