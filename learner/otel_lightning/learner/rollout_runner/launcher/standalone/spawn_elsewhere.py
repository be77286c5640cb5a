"""Start a process where `posix_spawn` cannot begin a session."""

import os
import subprocess
from collections.abc import Mapping, Sequence


def spawn_elsewhere(
    command: Sequence[str],
    environment: Mapping[bytes, bytes],
    files: Sequence[tuple[int, str, int]],
    pipes: tuple[int, int] | None,
) -> int:
    """Start a process in a session of its own; return its id.

    Args:
        command: What to start.
        environment: Its variables.
        files: Number, path and flags of each standard stream that is a file.
        pipes: Standard input and output, if they are no files.
    """
    opened = {number: os.open(path, flags, 0o666) for number, path, flags in files}
    ends = {**opened, **dict(enumerate(pipes or ()))}
    try:
        return subprocess.Popen(
            command,
            stdin=ends[0],
            stdout=ends[1],
            stderr=ends[2],
            env=environment,
            start_new_session=True,
        ).pid
    finally:
        for file in opened.values():
            os.close(file)
