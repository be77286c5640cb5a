"""The heartbeat: a time on the store's disk, from a thread of its own because the disk may hang."""

import logging
import os
from contextlib import suppress
from pathlib import Path

from otel_lightning.collector.last_run import Run
from otel_lightning.collector.process.background import BackgroundThread
from otel_lightning.collector.store import Server, server_file, write_server

logger = logging.getLogger(__name__)
SECONDS = 5.0


class Heartbeat(BackgroundThread):
    """A thread that tells the next process, and commands, that this process serves the store."""

    def __init__(self, run: Run) -> None:
        """Prepare the thread; `start()` runs it.

        Args:
            run: Gets the time until which this process has run.
        """
        super().__init__("heartbeat", SECONDS)
        self._last_run = run
        self._announced: tuple[Path, Server] | None = None

    def announce(self, store: Path, server: Server) -> None:
        """Write the server file, and write it again if somebody deletes it.

        Without it no command finds the process.
        """
        write_server(store, server)
        self._announced = store, server

    def look(self) -> None:
        """Record that the process lives, and write the server file again if it is gone."""
        self._last_run.note_alive()
        if self._announced is None or os.path.lexists(server_file(self._announced[0])):
            return
        with suppress(OSError):  # its folder was moved away, or its disk takes no writes
            write_server(*self._announced)
            logger.warning("'%s' was deleted, and is put back.", server_file(self._announced[0]))
