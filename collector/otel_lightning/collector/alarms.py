"""Alarms: the present faults of the receiving process.

An alarm is raised when requests cannot be written to the spool, acknowledged ones cannot be stored
or derived, or only too late, when parts of the process die again and again, when old traces cannot
be deleted, no checkpoint can be written, the certificate expires, or the store's link was changed.
It is cleared when that is over. While it is raised, `/metrics` shows it, and `lightning-ingest
check` names it and exits with 1. If it lasts, new requests are refused with 503, except for those
in `HARMLESS`.
The log has one line when an alarm is raised and one when it is cleared.

`check` runs in another process, and the store itself may be broken. So the alarms are also written
to a file beside the store, which remains if the process dies. After an orderly stop it has those
that are still true, such as `storing`.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from otel_lightning.collector.files.atomic import PRIVATE, replaced
from otel_lightning.collector.files.reason import reason

logger = logging.getLogger(__name__)

RECEIVING, STORING = "receiving", "storing"
RETAINING, CHECKPOINTING = "retaining", "checkpointing"
CERTIFYING, LINKING = "certifying", "linking"
LAGGING, RESTARTING, RETRYING = "lagging", "restarting", "retrying"
KINDS = {
    RECEIVING: "Requests cannot be written to the spool: senders are asked to send them again.",
    STORING: "What was acknowledged cannot be stored.",
    "deriving": "What was stored cannot be derived.",
    RETRYING: "Batches to derive are given up again and again, and their rows do not come.",
    LAGGING: "Rows are stored and derived later than --max-lag after their request.",
    RESTARTING: "Parts of the process die again and again, and are started again.",
    RETAINING: "Old traces cannot be deleted, so more is kept than --retain or --max-size allows.",
    CERTIFYING: "The TLS certificate has expired or soon will: then clients refuse it.",
    LINKING: "The link to the store leads to another file than the one that is stored into.",
    CHECKPOINTING: "No checkpoint can be written, so DuckDB's log grows with all that is stored.",
}
"""Every alarm by name, and its meaning. Add a line here to add an alarm."""
HARMLESS = frozenset({LAGGING, RESTARTING, RETAINING, CERTIFYING, LINKING, CHECKPOINTING})
"""Alarms for which no request is refused: nothing that is sent is at risk. While rows lag, the
spool refuses requests by a rule of its own, which leaves out what a former process left."""
OF_THE_PROCESS = frozenset({RESTARTING, CERTIFYING, LINKING, CHECKPOINTING})
"""Alarms that tell nothing about what is stored, so they are over when the process has stopped."""
REFUSE_AFTER_SECONDS = 60.0
"""Duration of an alarm after which new requests are refused; by default."""
WRITE_SECONDS, END_SECONDS = 1.0, 5.0
"""Longest wait for the disk of the alarms' file: it may hang. The second is for an orderly stop."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm: its name in `KINDS`, the reason, and its start in Unix seconds."""

    name: str
    reason: str
    since: float


class Alarms:
    """The alarms of one process; any thread may raise and clear them."""

    def __init__(
        self,
        file: Path | None = None,
        refuse_after: float = REFUSE_AFTER_SECONDS,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without alarms.

        Args:
            file: File in which other processes read the alarms; None writes no file.
            refuse_after: Seconds that an alarm lasts before new requests are refused.
            clock: Returns Unix seconds.
            steady: Returns seconds of a clock that nobody can set: the duration of an alarm.
        """
        self._file, self._refuse_after, self._clock = file, refuse_after, clock
        self._steady = steady
        self._began: dict[str, float] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._raised: dict[str, Alarm] = {}
        self._has_warned = False  # that the file cannot be written
        if file:
            file.unlink(missing_ok=True)

    def raise_alarm(self, name: str, reason: str) -> None:
        """Raise an alarm; if it is raised already, update its reason and keep its start."""
        with self._lock:
            raised = self._raised.get(name)
            since = raised.since if raised else self._clock()
            self._began.setdefault(name, self._steady())
            self._raised[name] = Alarm(name, reason, since)
        if not raised:
            logger.error("Alarm '%s': %s (%s)", name, KINDS[name], reason)
        if not raised or raised.reason != reason:
            self._write()

    def clear(self, name: str) -> None:
        """Clear an alarm, if it is raised."""
        if name not in self._raised:  # runs after each batch, so without the lock
            return
        with self._lock:
            ended = self._raised.pop(name, None)
            if ended is None:  # another thread has just cleared it
                return
            lasted = self._steady() - self._began.pop(name)
        logger.warning("Alarm '%s' is over after %.0f seconds.", name, lasted)
        self._write()

    def end(self) -> None:
        """Leave in the file, at an orderly stop, only the alarms that are true without us."""
        with self._lock:
            for name in OF_THE_PROCESS & self._raised.keys():
                del self._raised[name], self._began[name]
        self._write(END_SECONDS)

    def is_raised(self, name: str) -> bool:
        """Return whether an alarm is raised."""
        return name in self._raised

    def raised(self) -> list[Alarm]:
        """Return the raised alarms, the oldest first."""
        with self._lock:
            return sorted(self._raised.values(), key=lambda alarm: alarm.since)

    def refusal(self) -> str | None:
        """Return why new requests must be refused; None if they are accepted."""
        if not self._raised:  # runs for each request, so without the lock
            return None
        for alarm in self.raised():
            began = self._began.get(alarm.name)
            if began is None or alarm.name in HARMLESS:  # another thread has just cleared it
                continue
            lasted = self._steady() - began
            if lasted >= self._refuse_after:
                return f"{KINDS[alarm.name]} For {lasted:.0f} seconds: {alarm.reason}"
        return None

    def _write(self, seconds: float = WRITE_SECONDS) -> None:
        """Write the file; leave that to a thread if its disk takes longer than some seconds."""
        if self._file is None:
            return
        thread = threading.Thread(target=self._write_file, name="alarms", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no room for a thread
            self._write_file()
        else:
            thread.join(seconds)

    def _write_file(self) -> None:
        assert self._file  # noqa: S101 - the caller asked
        with self._writing:  # after the one before, so that the file ends as it is now
            with self._lock:
                raised = [asdict(one) for one in self._raised.values()]
            try:
                if raised:
                    with replaced(self._file, PRIVATE) as temporary:
                        temporary.write_text(json.dumps(raised))
                else:
                    self._file.unlink(missing_ok=True)
            except OSError as error:  # such as a full disk; /metrics and refusals show the alarm
                if not self._has_warned:
                    logger.warning(
                        "The alarms cannot be written to '%s': %s", self._file, reason(error)
                    )
                self._has_warned = True
            else:
                self._has_warned = False


def alarms_file(store_path: Path) -> Path:
    """Return the file for the alarms of the process that serves a store; beside the store."""
    return store_path.with_name(store_path.name + ".alarms")


def read_alarms(store_path: Path) -> list[Alarm]:
    """Read the alarms of the process that serves a store, or of the last one if it died."""
    try:
        return [Alarm(**one) for one in json.loads(alarms_file(store_path).read_text())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        return [Alarm(STORING, f"the alarms cannot be read ({reason(error)})", time.time())]
