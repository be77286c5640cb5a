"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from dataclasses import dataclass, field

QUIET_S = 2.0
"""Work that ends sooner says nothing."""

LINE_EVERY_S = 10.0
WIDTH = 30


@dataclass(slots=True)
class Progress:
    """Reports on standard error how much of `total` is done; 0 where that is not known."""

    label: str
    total: int
    _started: float = field(default_factory=time.monotonic)
    _reported: float = 0.0

    def report(self, done: int, note: str = "") -> None:
        """Say how far the work is, if it is time to.

        Args:
            done: How much is done, out of `total`.
            note: What else to show, for example the loss.
        """
        now = time.monotonic()
        if now - self._started < QUIET_S:
            return
        if sys.stderr.isatty():
            self._draw(done, note)
        elif now - self._reported >= LINE_EVERY_S or done == self.total:
            self._reported = now
            sys.stderr.write(f"{self.label}: {self._count(done)} {note}".rstrip() + "\n")

    def _draw(self, done: int, note: str) -> None:
        filled = "#" * (WIDTH * done // self.total) if self.total else ""
        bar = f" [{filled:<{WIDTH}}]" if self.total else ":"
        end = "\n" if done == self.total else ""
        sys.stderr.write(f"\r{self.label}{bar} {self._count(done)} {note}{end}")
        sys.stderr.flush()

    def _count(self, done: int) -> str:
        return f"{done}/{self.total}" if self.total else str(done)
