"""End a child process whose parent has ended, even in the middle of its work."""

import os
import time

LOOK_SECONDS = 1.0


def end_with(parent: int) -> None:
    """Exit once the parent process has ended; run it in a thread.

    Args:
        parent: Process id of the parent.
    """
    # The system gives a process whose parent has ended another parent.
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)
