"""Watch the symbolic link by which the user named the store."""

from pathlib import Path

from otel_lightning.collector.alarms import LINKING, Alarms
from otel_lightning.collector.process.background import BackgroundThread

SECONDS = 5.0


class LinkWatch(BackgroundThread):
    """Raises an alarm while the link leads to another file than the one that is stored into.

    Storing goes on. Otherwise requests would wait on the spool beside a file without a link, where
    nobody looks for them.
    """

    def __init__(self, link: Path, store: Path, alarms: Alarms) -> None:
        """Prepare the thread; `start()` runs it.

        Args:
            link: The symbolic link.
            store: The file that it led to when the process started.
            alarms: Gets the alarm `linking`.
        """
        super().__init__("link watch", SECONDS)
        self._link, self._store, self._alarms = link, store, alarms

    def look(self) -> None:
        """Raise the alarm, or clear it."""
        if (file := self._link.resolve()) == self._store:
            self._alarms.clear(LINKING)
            return
        self._alarms.raise_alarm(
            LINKING,
            f"'{self._link}' leads to '{file}' now, and what arrives is stored in '{self._store}'. "
            "Restart lightning-ingest, or let the link lead back",
        )
