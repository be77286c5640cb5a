"""Read tasks: JSON lines, JSON, CSV or Parquet, one task a row."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.task_splits import HELD_OUT, position

HIDDEN = ("expected", "metadata")
"""Fields of a task that the agent never sees."""
QUOTED_CHARACTERS = 60
"""Characters of a wrong line that a message repeats."""
HASH_CHARACTERS = 12
UNSPLIT = "all"
"""Name of all tasks, where a split can be chosen."""


@dataclass(frozen=True)
class Task:
    """One task: the agent's input, and the fields that only a grader sees."""

    task_id: str
    fields: Mapping[str, Any]
    """The fields that the agent gets, by name; the id is not among them."""
    expected: Any = None
    metadata: Any = None
    has_own_id: bool = True
    """Whether its id is given, and not a hash of its fields."""

    @property
    def input(self) -> Any:
        """The agent's input: the field `input` if it is the only one, otherwise all fields."""
        return self.fields["input"] if self.fields.keys() == {"input"} else dict(self.fields)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the agent's input: a task with another input has other rollouts."""
        return sha256(_canonical([self.task_id, dict(self.fields)])).hexdigest()

    @cached_property
    def input_hash(self) -> str:
        """Hash of the fields without the id, and without white space and capitals."""
        return sha256(_canonical(_folded(dict(self.fields)))).hexdigest()

    @cached_property
    def content_hash(self) -> str:
        """Hash of the input and of what only a grader sees: equal for one task under two ids."""
        hidden = _folded([self.expected, self.metadata])
        return sha256(_canonical([self.input_hash, hidden])).hexdigest()

    @cached_property
    def whole_fingerprint(self) -> str:
        """Hash of the whole task, including the fields that only a grader sees."""
        return sha256(_canonical([self.fingerprint, self.expected, self.metadata])).hexdigest()

    def position(self) -> float:
        """Return the position of the task in [0, 1), by which `transitions` splits as well."""
        return position(self.task_id)


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a file, and warnings about the file."""

    tasks: tuple[Task, ...]
    without_id: int = 0


def read_tasks(path: Path) -> Tasks:
    """Read a file of tasks: `.jsonl`, `.json`, `.csv` or `.parquet`.

    A task without an id gets a hash of its fields as its id.

    Raises:
        DataError: If the file cannot be read, a row is no task, or two tasks have one id.
    """
    try:
        rows = list(_rows(path))
    except OSError as error:
        raise DataError(f"The tasks '{path}' cannot be read: {error.strerror}.") from error
    return tasks_of(rows, str(path))


def tasks_of(rows: Iterable[tuple[str, Any]], source: str) -> Tasks:
    """Make tasks of rows that were read, each with the place that a message names.

    Raises:
        DataError: If a row is no task, two tasks have one id, or there is no row.
    """
    tasks: list[Task] = []
    places: dict[str, str] = {}
    without_id = 0
    for place, row in rows:
        task = _task(place, row)
        without_id += not task.has_own_id
        if task.task_id in places:
            conflict = "the id" if task.has_own_id else "no id, and the same fields as"
            raise DataError(
                f"{place}: has {conflict} '{task.task_id}' of {places[task.task_id]}. "
                "Give every task an id of its own."
            )
        places[task.task_id] = place
        tasks.append(task)
    if not tasks:
        raise DataError(f"{source}: has no task. Write one JSON object a line, with id and input.")
    return Tasks(tuple(tasks), without_id)


def tasks_in_split(tasks: Iterable[Task], split: str, held_out: float) -> list[Task]:
    """Keep the tasks of a split, by the same hash of the id as `lightning-learn transitions`.

    Args:
        tasks: The tasks.
        split: `train`, `heldout` or `all`.
        held_out: Share of the tasks that is held out, in [0, 1].
    """
    if split == UNSPLIT:
        return list(tasks)
    is_held_out = split == HELD_OUT
    return [task for task in tasks if (task.position() < held_out) == is_held_out]


def tasks_fingerprint(tasks: Iterable[Task]) -> str:
    """Hash tasks, in whatever order they come and however often."""
    return sha256(_canonical(sorted({task.whole_fingerprint for task in tasks}))).hexdigest()


def copies_of(tasks: Iterable[Task]) -> dict[str, tuple[str, int]]:
    """Find tasks that differ from an earlier one in nothing but the id, white space and capitals.

    A task that is an id and nothing else has no copy. Neither have tasks that are all equal: there
    the agent has to take what differs from the id.

    Returns:
        By the id of a copy: the id of the task that it repeats, and its number among the copies of
        that task, from 1.
    """
    by_content: dict[str, dict[str, None]] = {}
    for task in tasks:
        if task.fields:
            by_content.setdefault(task.content_hash, {})[task.task_id] = None
    if len(by_content) == 1:
        return {}
    repeated = (list(ids) for ids in by_content.values())
    return {
        copy: (first, number)
        for first, *copies in repeated
        for number, copy in enumerate(copies, start=1)
    }


def copies_warning(judging: Iterable[Task], learning: Iterable[Task]) -> str | None:
    """Warn of tasks that judge and have the same input as a task to learn from, or as each other.

    It is no error: an agent may take what differs from the id. A task that is an id and nothing
    else has no input to compare.

    Args:
        judging: Held-out tasks.
        learning: Tasks to learn from.

    Returns:
        Sentences with their number and an example; None if there is no such task.
    """
    judging = [task for task in judging if task.fields]
    learned = {task.input_hash: task.task_id for task in learning if task.fields}
    copies = [
        (task.task_id, learned[task.input_hash]) for task in judging if task.input_hash in learned
    ]
    one_task = copies_of(judging)
    by_input: dict[str, list[str]] = {}
    for task in judging:
        if task.task_id not in one_task:
            by_input.setdefault(task.input_hash, []).append(task.task_id)
    repeated = [ids for ids in by_input.values() if len(ids) > 1]
    sentences = [_also_learned_from(copies)] if copies else []
    if one_task:
        sentences.append(_counted_once(one_task))
    if repeated:
        first, second, *_ = repeated[0]
        sentences.append(
            f"{sum(map(len, repeated)):,} held-out tasks have the same input as another held-out "
            f"task, such as '{first}' and '{second}'. If they are the same task, the gate counts "
            "it several times, and more passes by chance than it says: give the task once, and "
            "more --samples."
        )
    return " ".join(sentences) or None


def _counted_once(copies: Mapping[str, tuple[str, int]]) -> str:
    copy, (first, _) = next(iter(copies.items()))
    repeat = number_of(len(copies), "held-out task repeats", "held-out tasks repeat")
    return (
        f"{repeat} another one under another id, such as '{copy}' and '{first}', and counts as the "
        "same task. If they are different tasks, give them different metadata."
    )


def _also_learned_from(copies: Sequence[tuple[str, str]]) -> str:
    return (
        f"{number_of(len(copies), 'held-out task has', 'held-out tasks have')} the same input as a "
        f"task to learn from, under another id, such as '{copies[0][0]}' and '{copies[0][1]}'. If "
        "they are the same task, the gate judges by what was learned from: leave one of the two "
        "out."
    )


def _task(place: str, row: Any) -> Task:
    if not isinstance(row, Mapping):
        raise DataError(f"{place}: is {_quoted(row)}, not a JSON object with the fields of a task.")
    fields = {
        name: value
        for name, value in row.items()
        if name not in ("id", *HIDDEN) and value is not None
    }
    own_id = row.get("id")
    if own_id is not None and (not isinstance(own_id, str | int) or str(own_id) == ""):
        raise DataError(f"{place}: has the id {_quoted(own_id)}. Write a text or a whole number.")
    if not fields and own_id is None:
        raise DataError(f"{place}: has neither an id nor a field for the agent, such as input.")
    task_id = str(own_id) if own_id is not None else _hash(fields)
    return Task(task_id, fields, row.get("expected"), row.get("metadata"), own_id is not None)


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    suffix = path.suffix.lower()
    if suffix in (".csv", ".parquet"):
        for number, row in enumerate(_table(path), start=1):
            yield f"{path}, row {number}", row
        return
    text = _text(path)
    if suffix == ".json":
        for number, row in enumerate(_list(path, text), start=1):
            yield f"{path}, task {number}", row
        return
    yield from _lines(path, text)


def _text(path: Path) -> str:
    try:
        # Also without the byte order mark that Windows programs put first.
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 ({error}). Save it as UTF-8.") from error


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield f"{path}:{number}", json.loads(line)
        except ValueError as error:
            # The last line has no line end: it was probably cut off while it was written.
            cut = number == text.count("\n") + 1
            problem = "the last line is cut off" if cut else "not a JSON object"
            remedy = "Write the file again." if cut else "Correct the line."
            raise DataError(
                f"{path}:{number}: {problem} ({error}): {_quoted(line)}. {remedy}"
            ) from error


def _list(path: Path, text: str) -> list[Any]:
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error}).") from error
    if isinstance(rows, dict) and isinstance(rows.get("tasks"), list):
        rows = rows["tasks"]
    if not isinstance(rows, list):
        raise DataError(f"{path}: is no JSON array of tasks.")
    return rows


def _table(path: Path) -> list[dict[str, Any]]:
    import polars as pl

    try:
        is_csv = path.suffix.lower() == ".csv"
        # All columns of a CSV stay text: a task id such as 007 must not become 7.
        frame = pl.read_csv(path, infer_schema=False) if is_csv else pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: cannot be read as a table: {error}") from error
    # By way of JSON, so that dates and decimals become the texts that an agent is given anyway.
    return json.loads(frame.write_json())  # type: ignore[no-any-return]


def _hash(fields: Mapping[str, Any]) -> str:
    return sha256(_canonical(dict(fields))).hexdigest()[:HASH_CHARACTERS]


def _folded(value: Any) -> Any:
    """Return a value with its texts in lower case, and with single spaces."""
    if isinstance(value, str):
        return " ".join(value.casefold().split())
    if isinstance(value, Mapping):
        return {name: _folded(part) for name, part in value.items()}
    return [_folded(part) for part in value] if isinstance(value, list) else value


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _quoted(value: Any) -> str:
    text = str(value)
    return f"'{text[:QUOTED_CHARACTERS]}{'…' if len(text) > QUOTED_CHARACTERS else ''}'"
