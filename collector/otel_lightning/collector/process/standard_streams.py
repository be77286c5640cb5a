"""Standard input, output and error: a process must go on when one is closed or its disk is full.

A supervisor may close them, the program that reads the log may end, and the log's disk may be full.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path


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


def drop_unwritten() -> None:
    """Drop what the standard output and error do not take; call it at the end.

    Otherwise Python would try again, and change the exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream:
                stream.flush()
        except OSError:
            with suppress(OSError), Path(os.devnull).open("wb") as null:
                os.dup2(null.fileno(), stream.fileno())
