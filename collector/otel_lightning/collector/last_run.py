"""How the last process that served a store ended: as it was asked to, by an error, or killed.

A file beside the store exists as long as a process serves it. The process sets the file's time
every few seconds, and deletes the file when it is asked to stop. If the file is there when the next
process starts, the last one ended by an error, which the file has, or it was killed, for instance
because memory ran out, or it crashed in a library, or its machine stopped.
"""

import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from otel_lightning.collector.files.process_file import run_file, runs_still, write_process_file
from otel_lightning.collector.files.reason import reason

logger = logging.getLogger(__name__)
BOOT = Path("/proc/sys/kernel/random/boot_id")
MOST_ENDS = 10
KILLED = (
    "it was killed, perhaps because memory ran out (dmesg may say so), or it crashed, and the end "
    "of its log says how"
)
MACHINE = "its machine stopped"
REASON_LENGTH = 300


@dataclass(frozen=True, slots=True)
class End:
    """An end that nobody asked for."""

    pid: int
    at: float
    """The last time when the process is known to have run, in Unix seconds."""
    why: str

    @property
    def sentence(self) -> str:
        """The time and the reason of the end, without a full stop: more may follow."""
        at = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds")
        why = self.why.removesuffix(".")
        return f"process {self.pid} was not asked to stop, and ended at about {at}: {why}"


@dataclass(frozen=True, slots=True)
class _Noted:
    """The content of the file."""

    pid: int
    boot: str
    """Identifies the start of the machine."""
    error: str | None = None
    former: End | None = None
    """End of the previous process, if nobody had asked for it. The file has this key."""
    ends: list[float] = field(default_factory=list)
    """Times of the last such ends, in Unix seconds."""


class Run:
    """The process that serves a store, as the next one will see it."""

    def __init__(self, store_path: Path, clock: Callable[[], float] = time.time) -> None:
        """Record that this process serves a store; only one process can, at a time.

        Args:
            store_path: Path of the store.
            clock: Returns Unix seconds.
        """
        self._file, self._clock = run_file(store_path), clock
        self.previous_end = unasked_end(store_path)
        """End of the previous process, if nobody had asked for it."""
        noted = _read(self._file)
        ends = [*noted.ends, self.previous_end.at] if noted and self.previous_end else []
        self._noted = _Noted(os.getpid(), _boot(), None, self.previous_end, ends[-MOST_ENDS:])
        self._write()

    def recent_ends(self, seconds: float) -> int:
        """Return how many processes ended without being asked to, within this time until now."""
        now = self._clock()
        return sum(0 <= now - at < seconds for at in self._noted.ends)

    def note_alive(self) -> None:
        """Record that this process runs; call it every few seconds."""
        with suppress(OSError):  # such as a disk that is read-only
            try:
                os.utime(self._file)
            except FileNotFoundError:  # somebody deleted it
                self._replace()

    def end(self, error: BaseException | None = None) -> None:
        """Note the end of this process.

        Args:
            error: Why it ends, if nobody has asked it to.
        """
        if error:
            why = f"{type(error).__name__}: {error}"
            self._noted = replace(self._noted, error=why[:REASON_LENGTH])
            self._write()
            return
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _write(self) -> None:
        try:
            self._replace()
        except OSError as error:  # such as a full disk: only the next start knows less
            logger.warning("'%s' cannot be written: %s", self._file, reason(error))

    def _replace(self) -> None:
        write_process_file(self._file, json.dumps(asdict(self._noted)))


def unasked_end(store_path: Path) -> End | None:
    """Return how the last process that served a store ended, if nobody had asked it to.

    Call it only if no process serves the store.
    """
    noted = _read(run_file(store_path))
    if noted is None:
        return None
    try:
        at = run_file(store_path).stat().st_mtime
    except OSError:
        return None
    why = noted.error or (KILLED if noted.boot == _boot() else MACHINE)
    return End(noted.pid, at, why)


def previous_end(store_path: Path) -> End | None:
    """Return the end of the process before the one that serves a store, if nobody asked for it."""
    noted = _read(run_file(store_path))
    return noted.former if noted else None


def is_running(store_path: Path) -> bool:
    """Return whether the process that last served a store still runs; False if that is unknown."""
    with suppress(OSError):  # there is no such file
        return runs_still(run_file(store_path)) or False
    return False


def _read(file: Path) -> _Noted | None:
    try:
        noted = json.loads(file.read_text())
        end = End(**noted.pop("former")) if noted.get("former") else None
        return _Noted(**{**noted, "former": end})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _boot() -> str:
    with suppress(OSError):
        return BOOT.read_text().strip()
    return ""
