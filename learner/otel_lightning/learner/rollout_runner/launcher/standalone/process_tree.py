"""The processes that descend from this one, as the system lists them, and signals to them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

TYPE_CHECKING = False  # as in `main.py`
if TYPE_CHECKING:
    from collections.abc import Callable

# Value of the constant in Linux's <linux/prctl.h>; Python has no name for it.
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become, on Linux, the parent of processes whose own parent has ended.

    So a grandchild that an agent leaves behind is found and killed even in another session.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def ended_child() -> int:
    """Return the id of a child that has ended and was not waited for, or 0."""
    try:
        # WNOWAIT leaves it a zombie, so that its process id is not given to another process yet.
        child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return child.si_pid if child else 0


def children() -> list[int]:
    """Return the ids of this process's children; none where the system does not list them."""
    try:
        listed = _read(f"/proc/self/task/{os.getpid()}/children")
    except OSError:
        return []
    # Without those that have ended: they are zombies, or gone.
    return [pid for pid in map(int, listed.split()) if _status_fields(pid)[:1] not in ([], ["Z"])]


def descends_from(pid: int, ancestor: int, variable: bytes) -> bool:
    """Return whether a process descends from one that leads a session of its own.

    Args:
        pid: Id of the process.
        ancestor: Id of the process that it may descend from.
        variable: `NAME=value` in the environment of the ancestor, which its descendants inherit.
            It finds those that moved to another session.
    """
    fields = _status_fields(pid)
    if fields and int(fields[3]) == ancestor:
        return True
    try:
        variables = _read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:
        return False
    return variable in variables


def send_signal(pid: int, number: int, send: Callable[[int, int], None] = os.kill) -> None:
    """Send a signal to a process, or with `os.killpg` to its group, if it still exists."""
    with suppress(ProcessLookupError, PermissionError):
        send(pid, number)


def _status_fields(pid: int) -> list[str]:
    """Return the fields of a process from its state on: state, parent, group, session, …."""
    try:
        text = _read(f"/proc/{pid}/stat").decode("utf-8", "replace")
    except OSError:
        return []
    # The second field, the program's name in parentheses, may itself hold parentheses.
    return text.rpartition(")")[2].split()


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(file, 1 << 16), b""))
    finally:
        os.close(file)
