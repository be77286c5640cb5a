"""Standard input and output of a worker."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # as in `main.py`
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Pipes:
    """Standard input and output of a worker: a JSON line in, a JSON line out."""

    def __init__(self) -> None:
        """Make the pipes; the worker gets `worker_ends` as its standard input and output."""
        worker_input, self.tasks = os.pipe()
        self.answers, worker_output = os.pipe()
        self.worker_ends = (worker_input, worker_output)
        for end in (self.tasks, self.answers):
            os.set_blocking(end, False)
        self.unwritten = b""
        """Bytes that do not fit into the pipe yet: a worker may read slowly."""
        self._partial_line = b""
        self.has_ended = False
        """Whether the worker has closed its output."""

    def close_worker_ends(self) -> None:
        """Close the worker's ends in this process; the worker has them now."""
        for end in self.worker_ends:
            os.close(end)

    def give(self, line: str) -> None:
        """Give the worker a line, or as much of it as the pipe takes."""
        self.unwritten = line.encode("utf-8", "replace")
        self.write()

    def write(self) -> None:
        """Write bytes that did not fit before; if the worker has ended, drop them."""
        try:
            while self.unwritten:
                self.unwritten = self.unwritten[os.write(self.tasks, self.unwritten) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.unwritten = b""

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON objects that have arrived; a worker may print other lines besides."""
        while True:
            try:
                data = os.read(self.answers, 1 << 20)
            except BlockingIOError:
                return
            if not data:
                self.has_ended = True
                return
            *whole, self._partial_line = (self._partial_line + data).split(b"\n")
            for line in whole:
                try:
                    answer = json.loads(line)
                except ValueError:
                    continue
                if isinstance(answer, dict):
                    yield answer

    @property
    def partial_bytes(self) -> int:
        """Number of bytes of a line that has not ended."""
        return len(self._partial_line)

    def end_tasks(self) -> None:
        """Close the worker's input: it may finish the task that it has, and then ends."""
        if self.tasks >= 0:
            os.close(self.tasks)
            self.tasks = -1

    def close(self) -> None:
        """Close our ends."""
        self.end_tasks()
        os.close(self.answers)
