"""Standard input, output and error: a process must go on when one is closed, full or not read.

A supervisor may close them, the program that reads the log may end or stop reading, and the log's
disk may be full.
"""

import os
import stat
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO


def open_missing() -> None:
    """Open the null device in place of each standard stream that is closed; call it first of all.

    The system gives a file the lowest free descriptor. So without this the store's file would
    become the standard output, and what a library prints would be written into it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets this descriptor: all lower ones are open
            os.set_inheritable(descriptor, True)  # noqa: FBT003  it has no name
    # Python has None in place of a stream that was closed when it started.
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def write_any_text() -> None:
    """Write a character that the encoding of the terminal lacks as an escape; no error."""
    if isinstance(sys.stdout, TextIOWrapper):  # a test may have replaced it
        sys.stdout.reconfigure(errors="backslashreplace")


def never_wait() -> None:
    """Let no write to standard output and error wait for a reader, such as that of a full pipe.

    The system refuses what does not fit, also from libraries and from processes that we start. A
    pipe or terminal is opened a second time for that, because other programs share the one that
    we inherited. Where that is not allowed (and on macOS), it stays as it is.
    """
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        if stream is not None and _descriptor(stream) != descriptor:  # a test replaced it
            continue
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):  # journald's: no other process has it
            os.set_blocking(descriptor, False)
        elif stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
            with suppress(OSError):
                opened = os.open(f"/proc/self/fd/{descriptor}", flags)
                os.dup2(opened, descriptor)
                os.close(opened)


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except OSError:
        return None


def drop_unwritten() -> None:
    """Drop text that cannot be written to standard output or error; call it at the end.

    Otherwise Python would try to write it again, and change the exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream:
                stream.flush()
        except OSError:
            with suppress(OSError), Path(os.devnull).open("wb") as null:
                os.dup2(null.fileno(), stream.fileno())
