"""Progress of long work: a bar on a terminal, or a line every ten seconds without one."""

import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

QUIET_S = 2.0
"""Seconds of work before the first report: short work needs no bar."""
LINE_EVERY_S = 10.0
"""Seconds between two plain lines."""
DRAW_EVERY_S = 0.1
"""Seconds between two drawings of the bar."""


@dataclass(slots=True, weakref_slot=True)
class Progress:
    """Reports on standard error how many of `total` units are done; 0 means an unknown total."""

    label: str
    total: int
    _started: float = field(default_factory=time.monotonic)
    _reported: float = 0.0
    _bar: "Bar | None" = None

    def report(self, done: int, note: str | Callable[[], str] = "") -> None:
        """Report the number of finished units, unless the last report is too recent.

        Args:
            done: Number of finished units, out of `total`.
            note: Text beside the numbers, for example the loss, or a function that writes it.
        """
        now = time.monotonic()
        if now - self._started < QUIET_S:
            return
        is_last = done == self.total
        on_terminal = sys.stderr.isatty()
        every = DRAW_EVERY_S if on_terminal else LINE_EVERY_S
        if not is_last and now - self._reported < every:
            return
        self._reported = now
        text = note if isinstance(note, str) else note()
        if on_terminal:
            self._draw(done, text, is_last=is_last)
        else:
            sys.stderr.write(f"{self.label}: {self._count(done)} {text}".rstrip() + "\n")

    def _draw(self, done: int, note: str, *, is_last: bool) -> None:
        if self._bar is None:
            self._bar = _started_bar(self.label, self.total)
            # The bar hides the cursor until it stops. This stops it even if the work fails.
            weakref.finalize(self, self._bar.stop)
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=done, note=note, refresh=True)
        if is_last:
            self._bar.stop()
            self._bar = None

    def _count(self, done: int) -> str:
        return f"{done}/{self.total}" if self.total else str(done)


def _started_bar(label: str, total: int) -> "Bar":
    # Only here: most work ends before it draws, or has no terminal.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    # Only `report` draws, without a thread: a thread would compete with the work for Python's GIL.
    bar = Bar(*columns, console=Console(stderr=True), auto_refresh=False)
    bar.add_task(label, total=total or None, note="")
    bar.start()
    return bar
