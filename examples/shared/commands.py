"""Run the programs of a demo, in the background or to their end, and print titles between them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

BIN = Path(sys.executable).parent
"""The folder of the commands that were installed with this Python."""


@contextmanager
def background(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the block ends; then ask it to stop."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()  # else the end of the block would wait for it without a limit


def run(
    *command: str, allowed: tuple[int, ...] = (0,), quiet: bool = False, **environment: str
) -> int:
    """Run a program to its end, and return its exit code; its output goes to ours.

    Args:
        command: The program and its arguments.
        allowed: Exit codes with which the demo goes on; with any other one it ends.
        quiet: Whether to drop the standard output.
        environment: Variables that are added to ours.
    """
    output = subprocess.DEVNULL if quiet else None
    process = subprocess.run(command, env=os.environ | environment, stdout=output, check=False)
    if process.returncode not in allowed:
        demo = Path(sys.argv[0]).name
        sys.exit(f"{demo}: `{' '.join(command)}` failed with exit code {process.returncode}")
    return process.returncode


def flagged(options: Mapping[str, object]) -> list[str]:
    """Write options as command-line words."""
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def title(text: str) -> None:
    """Begin a part of the output."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)
