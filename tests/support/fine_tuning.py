"""`lightning-learn weights` in a process of its own, and the losses that it stored."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.running import LIMIT_S, background

if TYPE_CHECKING:
    from conftest import Traces


FAST = ["--learning-rate", "5e-3"]


def curve(traces: "Traces", name: str = "loss") -> dict[int, float]:
    """A metric by its step, over all runs."""
    rows = traces.ask(f"SELECT step, value FROM run_steps WHERE name = '{name}'")
    return {row["step"]: row["value"] for row in rows}


def command(traces: "Traces", model: Path, output: Path, *options: str) -> list[str]:
    paths = ["--store", str(traces.path), "--model", str(model), "--output", str(output)]
    return ["-m", "otel_lightning.learner", "weights", "--algorithm", "rft", *paths, *options]


def output_of(*words: str) -> str:
    """Run Python to its end and return its output."""
    with started(*words, stdout=subprocess.PIPE) as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    return str(output)


@contextmanager
def started(*words: str, **pipes: int) -> Iterator[subprocess.Popen[str]]:
    """Run Python for the block; what still runs at the end is killed with its children."""
    options: dict[str, Any] = {"env": os.environ | {"OMP_NUM_THREADS": "1"}, "text": True}
    options |= {"stderr": subprocess.STDOUT, "start_new_session": True} | pipes
    with background(sys.executable, *words, **options) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def last_curve(traces: "Traces") -> dict[int, float]:
    """The losses of the last run."""
    last = "(SELECT max(run_id) FROM run_steps)"
    rows = traces.ask(f"SELECT step, value FROM run_steps WHERE name = 'loss' AND run_id = {last}")
    return {row["step"]: row["value"] for row in rows}
