"""Serve certificates that were renewed on disk, and tell before the one that is served expires.

Clients refuse an expired certificate, and the server does not notice: their requests never come. It
is often renewed on disk by a program that sends no signal, as in Kubernetes. If the new files
cannot be used, the old certificate is served further; what counts is the one that was loaded last.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from otel_lightning.collector.alarms import CERTIFYING, Alarms
from otel_lightning.collector.files.reason import reason
from otel_lightning.collector.process.background import BackgroundThread
from otel_lightning.collector.receive.tls import Tls, Validity

logger = logging.getLogger(__name__)
LOOK_SECONDS = 5.0
EARLY_SHARE, EARLY_SECONDS = 0.1, 14 * 86_400
"""The alarm is raised when this share of the certificate's time is left, or this time if less."""


class CertificateWatch(BackgroundThread):
    """A thread that lets renewed files be read, and raises and clears the alarm `certifying`."""

    def __init__(self, tls: Tls, alarms: Alarms, clock: Callable[[], float] = time.time) -> None:
        """Read when the certificates expire; `start()` runs the thread.

        Args:
            tls: The files; they can be used for a server.
            alarms: Gets the alarm.
            clock: Returns Unix seconds.
        """
        super().__init__("certificates", LOOK_SECONDS)
        self._tls, self._alarms, self._clock = tls, alarms, clock
        self._loaded: list[Validity] = []
        self.renew: Callable[[], object] | None = None
        """Lets the server read the files again; None as long as there is no server."""
        self._last_seen: list[tuple[int, ...] | None] | None = None
        """The files at the last look, if they had changed and the server has not read them."""
        self.note_loaded()

    def note_loaded(self) -> None:
        """Record that the server has read the files; the thread looks at them soon."""
        self._files = self._tls.versions()
        try:
            self._loaded = self._tls.validities()
        except (OSError, ValueError, LookupError) as error:
            logger.warning("When the certificates expire cannot be read: %s", reason(error))
            self._loaded = []

    def look(self) -> None:
        """Let the server read files that have changed, and raise or clear the alarm."""
        self._look_at_files()
        warnings = [one for one in (self._warning(validity) for validity in self._loaded) if one]
        if warnings:
            self._alarms.raise_alarm(CERTIFYING, f"{' and '.join(warnings)}. Replace the files")
        else:
            self._alarms.clear(CERTIFYING)

    def _look_at_files(self) -> None:
        files = self._tls.versions()
        if files == self._files or self.renew is None:
            return
        # The files are replaced one after the other: if they do not fit, look once more. Then the
        # server reads them all the same, and logs what is wrong.
        if files == self._last_seen or self._is_usable():
            self._files = files
            self.renew()
        self._last_seen = files

    def _is_usable(self) -> bool:
        try:
            self._tls.check()
        except ValueError:
            return False
        return True

    def _warning(self, validity: Validity) -> str | None:
        now = self._clock()
        if now < validity.begin:
            return f"{validity.subject} is valid only from {_date(validity.begin)} on"
        early = min(EARLY_SHARE * (validity.end - validity.begin), EARLY_SECONDS)
        if now < validity.end - early:
            return None
        verb = "expires" if now < validity.end else "expired"
        return f"{validity.subject} {verb} at {_date(validity.end)}"


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
