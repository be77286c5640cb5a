"""The journal of a run: which attempts started, how they ended, and which are in the store.

It is a file of JSON lines beside the store, to which the launcher and the runner append. By it, a
run that was killed can go on: an attempt that has ended is never run again, and one that is not in
the store yet is sent there by the next start of the same run.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any, NamedTuple

from otel_lightning.collector.files.atomic import make_private
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.file_lock import locked_alone, opened_lock
from otel_lightning.learner.rollout_runner.launcher.processes import INTERRUPTED, Ended

LOCK_SECONDS = 30.0
"""Longest wait for the launcher of a killed runner, which ends its agents first."""
RUNNER_KILLED = "the runner was killed"
"""Reason of an attempt that started and never ended."""
FOLDER_VARIABLE = "LIGHTNING_RUN_FOLDER"
NAMES = frozenset(field.name for field in fields(Ended))


class Started(NamedTuple):
    """Start of an attempt in Unix nanoseconds, and its run, task, sample and arm."""

    time: int
    about: Mapping[str, Any]


@dataclass(slots=True)
class Journal:
    """The journal of a run: a file with the start and the end of each attempt."""

    folder: Path
    started: dict[str, Started] = field(default_factory=dict)
    ended: dict[str, Ended] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    path: Path = field(init=False)
    """The file."""
    outputs: Path = field(init=False)
    """Folder of the agents' output, until it is in the store."""
    inputs: Path = field(init=False)
    """Folder of the tasks as agents read them."""

    def __post_init__(self) -> None:
        """Name its files."""
        self.path = self.folder / "journal.jsonl"
        self.outputs, self.inputs = self.folder / "output", self.folder / "input"

    def write(self, *lines: dict[str, Any]) -> None:
        """Append lines."""
        with self.path.open("ab") as file:
            file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    def note_started(self, rollout_id: str, now_ns: int, about: Mapping[str, Any]) -> None:
        """Append that an attempt starts, for an executor without the launcher, which does this."""
        line = {"rollout_id": rollout_id, "time": now_ns, "about": about}
        self.write({"event": "started", **line})

    def note_ended(self, *ends: Ended) -> None:
        """Append how attempts ended."""
        self.write(*({"event": "ended", **asdict(end)} for end in ends))

    def note_interrupted(self) -> list[Ended]:
        """Record that attempts which started and never ended were interrupted; return them."""
        cut = [
            Ended(rollout_id, INTERRUPTED, started.time, time.time_ns(), reason=RUNNER_KILLED)
            for rollout_id, started in self.started.items()
            if rollout_id not in self.ended
        ]
        self.note_ended(*cut)
        self.ended |= {end.rollout_id: end for end in cut}
        return cut

    def note_stored(self, rollouts: Iterable[str]) -> None:
        """Record that attempts are in the store, and delete their output here."""
        names = list(rollouts)
        self.write({"event": "stored", "rollout_ids": names})
        self.stored.update(names)
        for name in names:
            for suffix in ("out", "err"):
                (self.outputs / f"{name}.{suffix}").unlink(missing_ok=True)

    def unsent(self) -> list[Ended]:
        """Return the ended attempts that are not in the store."""
        return [end for name, end in self.ended.items() if name not in self.stored]

    def forget_inputs(self) -> None:
        """Delete the tasks as agents read them."""
        shutil.rmtree(self.inputs, ignore_errors=True)


@contextmanager
def opened_journal(folder: Path) -> Iterator[tuple[Journal, IO[bytes]]]:
    """Open the journal of a run, which no other process may have open.

    Yields:
        The journal, and its lock file. The launcher keeps the lock file open too, so that the next
        start waits until the agents of a killed runner are gone.

    Raises:
        DataError: If another process has it open, or its lock cannot be used.
    """
    with opened_lock(folder / "lock") as lock:
        for part in ("output", "input"):
            make_private(folder / part)
        _lock(lock, folder)
        yield _read(folder), lock


def _lock(lock: IO[bytes], folder: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while not locked_alone(lock):
        if time.monotonic() > deadline:
            raise DataError(
                f"The run '{folder.name}' is in progress already. Wait for it, or start another "
                "with --name NAME."
            )
        time.sleep(0.1)


def _read(folder: Path) -> Journal:
    journal = Journal(folder)
    if not journal.path.exists():
        return journal
    data = journal.path.read_bytes()
    if data and not data.endswith(b"\n"):  # cut off when the machine stopped
        with journal.path.open("ab") as file:
            file.write(b"\n")
    for text in data.splitlines():
        _apply_line(journal, text)
    return journal


def _apply_line(journal: Journal, text: bytes) -> None:
    try:
        line = json.loads(text)
    # A line that was cut off when the machine stopped: its attempt counts as interrupted.
    except ValueError:
        return
    match line.get("event"):
        case "started":
            journal.started[line["rollout_id"]] = Started(line["time"], line.get("about") or {})
        case "ended":
            # A journal of a later version may have further fields.
            ended_fields = {name: value for name, value in line.items() if name in NAMES}
            journal.ended[line["rollout_id"]] = Ended(**ended_fields)
        case "stored":
            journal.stored.update(line["rollout_ids"])


def end_leftovers(folder: Path) -> int:
    """Kill the processes of a run that a killed launcher left behind; return their number.

    They are found by the variable `LIGHTNING_RUN_FOLDER`, on Linux only. Call it while the journal
    is open: then no launcher of this run is alive.
    """
    mark = f"{FOLDER_VARIABLE}={folder.resolve()}".encode()
    count = 0
    # Every process of the machine: children of a killed launcher were adopted by init and have no
    # other mark than their environment.
    for process in Path("/proc").glob("[0-9]*") if Path("/proc/self").exists() else ():
        if int(process.name) == os.getpid():
            continue
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
                count += 1
        except OSError:
            continue
    return count
