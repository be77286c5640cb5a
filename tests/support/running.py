"""A real `lightning-ingest` in a process of its own."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS = 120


@dataclass
class Ingester:
    """A running ingester and where it listens."""

    process: subprocess.Popen[bytes]
    store: Path
    http: str
    grpc: str

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


def cli(
    *arguments: str, cwd: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `lightning-ingest` as a user does, with a text in its pipe."""
    command = [sys.executable, "-m", "otel_lightning.collector", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=300, cwd=cwd, check=False
    )


def start(store: Path, *more: str, files: int | None = None) -> Ingester:
    """Start an ingester on free ports and wait until it says how to reach it.

    With `files`, it may open so many files at most.
    """
    told = store.with_name(store.name + ".server")
    told.unlink(missing_ok=True)  # left by a killed predecessor
    grpc = f"127.0.0.1:{_free_port()}"
    options = ["--store", str(store), "--grpc", grpc, "--http", "127.0.0.1:0", *more]
    command = [sys.executable, "-m", "otel_lightning.collector", "serve", *options]
    if files:
        command = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + READY_SECONDS
    while not told.exists():
        assert process.poll() is None, "lightning-ingest ended before it was ready"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return Ingester(process, store, json.loads(told.read_text())["http"], grpc)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what must become true; fail if it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.05)
