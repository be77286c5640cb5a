"""Processes of our own that answer over a pipe: a pool of them, messages, and a time limit.

A message is its kind, its number of bytes, and its content. The child reads from stdin and writes
to stdout. It cannot be interrupted over a pipe, so the parent kills it after a timeout.
"""

import contextlib
import os
import queue
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import pyarrow as pa

HEADER = struct.Struct("<BQ")  # kind of the message, and number of bytes that follow
LOOK_SECONDS = 1.0
KILLED_FIRST = "1000"
"""Value of `oom_score_adj`: if memory runs out, Linux kills this process before all others."""


class LateError(OSError):
    """The child was killed because it took too long."""


class Child:
    """A child process: the function `main` of one of our modules."""

    def __init__(self, module: str) -> None:
        """Start it.

        Args:
            module: The module whose `main` the child runs.
        """
        command = [sys.executable, "-c", f"from {module} import main; main()"]
        self._process = subprocess.Popen(
            # In a session of its own the child does not get the terminal's Ctrl+C: the parent ends
            # it.
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._is_killed = False
        self._to: Any = self._process.stdin
        self._from: Any = self._process.stdout

    @property
    def is_alive(self) -> bool:
        """Whether the process runs, and nobody has killed it."""
        return not self._is_killed and self._process.poll() is None

    def kill(self) -> None:
        """Kill the process, also while another thread waits for its answer, which then fails."""
        self._is_killed = True
        self._process.kill()

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self.kill()
        self._process.communicate()

    def ask(self, kind: int, content: bytes | memoryview) -> tuple[int, bytes]:
        """Send one message and return the next one of the child.

        Raises:
            OSError: If the process has ended.
        """
        send(self._to, kind, content)
        return receive(self._from)

    @contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """Kill the process if the block takes longer; None is no limit.

        Raises:
            LateError: If it took longer.
            OSError: If the process ended by itself. In both cases it has ended.
        """
        timed_out = threading.Event()

        def give_up() -> None:
            timed_out.set()
            self.kill()

        timer = threading.Timer(seconds or threading.TIMEOUT_MAX, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        # A killed child closes its pipes, so the block fails; the event tells why.
        except OSError as error:
            self.end()
            if timed_out.is_set():
                raise LateError from error
            raise
        finally:
            timer.cancel()


C = TypeVar("C", bound=Child)


class Pool(Generic[C]):
    """Starts children when they are needed, and replaces those that died."""

    def __init__(self, start: Callable[[], C], most: int) -> None:
        """Create a pool without children.

        Args:
            start: Starts one child.
            most: Most children at once; who needs one more waits.
        """
        self._start = start
        self._places = threading.BoundedSemaphore(most)
        self._idle: queue.SimpleQueue[C] = queue.SimpleQueue()

    @contextmanager
    def one(self) -> Iterator[C]:
        """Yield a child that no other thread uses during the block."""
        with self._places:
            child = self._take()
            try:
                yield child
            finally:
                if child.is_alive:
                    self._idle.put(child)

    def close(self) -> None:
        """Stop all idle children."""
        while not self._idle.empty():
            self._idle.get().end()

    def _take(self) -> C:
        while not self._idle.empty():
            child = self._idle.get()
            if child.is_alive:
                return child
        return self._start()


def send(stream: IO[bytes], kind: int, content: bytes | memoryview = b"") -> None:
    """Write one message.

    Raises:
        OSError: If the other process has ended.
    """
    stream.write(HEADER.pack(kind, len(content)))
    stream.write(content)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[int, bytes]:
    """Read one message: its kind and content.

    Raises:
        BrokenPipeError: If the other process has closed the stream, or has ended.
    """
    kind, size = HEADER.unpack(_exactly(stream, HEADER.size))
    return kind, _exactly(stream, size)


def packed(rows: pa.Table) -> memoryview:
    """Write a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return memoryview(sink.getvalue())


def unpacked(content: bytes | memoryview) -> pa.Table:
    """Read a table from an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
        return reader.read_all()


def end_with(parent: int) -> None:
    """Exit once the parent process has ended, even in the middle of work; run it in a thread.

    Args:
        parent: Process id of the parent.
    """
    # The system gives a process whose parent has ended another parent.
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)


def be_killed_first() -> None:
    """Let the system end this process before its parent when memory runs out.

    The parent receives and stores; it replaces this process. Only Linux can be told.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(KILLED_FIRST)


def limit_memory(memory_bytes: int) -> None:
    """Limit the memory that this process may allocate from now on, by RLIMIT_AS."""
    import resource

    with contextlib.suppress(OSError):  # not Linux: only DuckDB's own limit applies
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  no Path: no memory
            # The first number is the size of the address space in pages (proc(5)). RLIMIT_AS counts
            # it too, so the limit comes on top.
            present_bytes = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(
            resource.RLIMIT_AS, (present_bytes + memory_bytes, present_bytes + memory_bytes)
        )
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _exactly(stream: IO[bytes], size: int) -> bytes:
    # A buffered stream returns less only at its end.
    content = stream.read(size)
    if len(content) < size:
        raise BrokenPipeError
    return content
