"""Start a process in a session of its own."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # as in `main.py`
if TYPE_CHECKING:
    from typing import Any

ENVIRONMENT = dict(os.environb)
"""The environment as bytes: decoding and encoding it would cost as much as starting an agent."""
_PROGRAMS: dict[tuple[str, bytes], str] = {}
"""Path of each program that was looked up, by its name and PATH."""


def spawn(spec: dict[str, Any], pipes: tuple[int, int] | None = None) -> int:
    """Start the process of a spec; return its id.

    Args:
        spec: What to start, as `Spec.message` of the runner writes it.
        pipes: Standard input and output of a worker, instead of the spec's files. Its standard
            error is appended to the file.

    Raises:
        OSError: If it cannot be started.
        ValueError: If an argument or a variable cannot be passed to a process.
    """
    own = {os.fsencode(name): os.fsencode(text) for name, text in spec["environment"].items()}
    environment = {**ENVIRONMENT, **own}
    output = os.O_WRONLY | os.O_CREAT
    files = [(2, spec["stderr"], output | (os.O_APPEND if pipes else os.O_TRUNC))]
    if not pipes:
        files.append((0, spec["stdin"] or os.devnull, os.O_RDONLY))
        files.append((1, spec["stdout"], output | os.O_TRUNC))
    if not hasattr(os, "POSIX_SPAWN_OPEN") or not sys.platform.startswith("linux"):
        from .spawn_elsewhere import spawn_elsewhere

        return spawn_elsewhere(spec["command"], environment, files, pipes)
    listener = spec.get("listener")
    pid = os.posix_spawn(
        _program(spec["command"][0], environment.get(b"PATH", os.fsencode(os.defpath))),
        spec["command"],
        environment,
        file_actions=[
            *((os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(pipes or ())),
            *([(os.POSIX_SPAWN_DUP2, listener, 3)] if listener else ()),
            *((os.POSIX_SPAWN_OPEN, number, path, flags, 0o666) for number, path, flags in files),
        ],
        setsid=True,
        # Python ignores these signals, and an agent expects them as any program does.
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )
    if listener:  # so that nobody can connect once the service has ended
        os.close(listener)
    return pid


def _program(name: str, path: bytes) -> str:
    """Return the path of a program, as a shell looks it up.

    Raises:
        FileNotFoundError: If no folder of PATH has it.
    """
    if "/" in name:
        return name
    if (name, path) not in _PROGRAMS:
        folders = os.fsdecode(path).split(os.pathsep)
        files = [os.path.join(folder or ".", name) for folder in folders]  # noqa: PTH118 - `pathlib` is not imported
        programs = [file for file in files if os.access(file, os.X_OK) and not os.path.isdir(file)]  # noqa: PTH112 - likewise
        if not programs:
            raise FileNotFoundError(2, "No such file or directory", name)
        _PROGRAMS[name, path] = programs[0]
    return _PROGRAMS[name, path]
