"""Processes, threads and servers that tests start: none is waited for without a limit of time."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import HTTPServer
from pathlib import Path
from typing import Any

READY_SECONDS = 120
LIMIT_S = 300
"""Seconds until a wait is a failure: ten times the longest one on a loaded machine."""
INSTALL_S = 900
"""Likewise for an installation, which may have to fetch some hundreds of megabytes."""


def finish(
    *command: str | Path, seconds: float = LIMIT_S, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and keep what it writes; `check` makes a failure an error."""
    options = {"capture_output": True, "text": True} | options
    process = subprocess.run(command, timeout=seconds, check=False, **options)
    assert not check or process.returncode == 0, f"{command}\n{process.stdout}\n{process.stderr}"
    return process


def installing(python: str | Path) -> list[str]:
    """Return pip's command for another environment, which needs no pip of its own.

    Making an environment with pip takes seconds, and so does compiling what no test imports.
    """
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    return [*pip, "--quiet", "--disable-pip-version-check", "--no-compile"]


@contextmanager
def background(*command: str | Path, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a program for the block, and kill it if it still runs at the end.

    `with subprocess.Popen(...)` waits without a limit when the block ends, also when an assertion
    in it fails: the program would never be told to stop, and the test would hang.
    """
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def join(*waited: threading.Thread, seconds: float = LIMIT_S) -> None:
    """Wait until threads have ended; fail if one does not."""
    for thread in waited:
        thread.join(seconds)
        assert not thread.is_alive(), f"{thread.name} did not end"


@contextmanager
def serving(server: HTTPServer) -> Iterator[str]:
    """Answer requests in a thread for the block; yields the server's URL on loopback."""
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    with server:
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            join(thread)


@dataclass
class Ingester:
    """A running ingester and where it listens."""

    process: subprocess.Popen[bytes]
    store: Path
    http: str
    grpc: str
    """Empty if it takes no OTLP over gRPC."""

    def stop(self) -> int:
        """Ask it to end, and return its exit status; what does not end is killed, and an error."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(LIMIT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)


def cli(
    *arguments: str, cwd: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `lightning-ingest` as a user does, with a text in its pipe."""
    return finish(
        sys.executable, "-m", "otel_lightning.collector", *arguments, input=stdin, cwd=cwd
    )


def cli_here(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `lightning-ingest` in this process, where a process of its own would show nothing more.

    Another Python takes a second to start. Not for a command that serves, nor beside threads: it
    replaces the standard streams.
    """
    from click.testing import CliRunner

    from otel_lightning.collector.cli import main

    # Some commands leave pandas out of their process; other tests of this process may need it.
    finders = list(sys.meta_path)
    umask = os.umask(0)
    os.umask(umask)  # commands make their files private
    with contextlib.chdir(cwd or "."):
        result = CliRunner().invoke(main, arguments, prog_name="lightning-ingest")
    os.umask(umask)
    sys.meta_path[:] = finders
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)


def start(store: Path, *more: str, files: int | None = None) -> Ingester:
    """Start an ingester, let it choose free ports, and wait until it says how to reach it.

    With `files`, it may open so many files at most.
    """
    server_file = store.with_name(store.name + ".server")
    server_file.unlink(missing_ok=True)  # left by a killed predecessor
    addresses = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    options = ["--store", str(store), *addresses, *more]
    command = [sys.executable, "-m", "otel_lightning.collector", "serve", *options]
    if files:
        command = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    told = json.loads(written_by(process, server_file))
    return Ingester(process, store, told["http"], told["grpc"] or "")


def written_by(process: subprocess.Popen[Any], file: Path) -> str:
    """Wait until a server has written a file, and return its text; kill what takes too long."""
    deadline = time.monotonic() + READY_SECONDS
    try:
        while not (file.exists() and (text := file.read_text().strip())):
            assert process.poll() is None, f"{process.args!r} ended before it was ready"
            assert time.monotonic() < deadline, f"{process.args!r} did not start"
            time.sleep(0.02)
    except AssertionError:
        process.kill()
        raise
    return text


@contextmanager
def running(store: Path, *more: str) -> Iterator[Ingester]:
    """Run an ingester for the block."""
    ingester = start(store, *more)
    try:
        yield ingester
        ingester.stop()
    finally:
        ingester.kill()


def eventually(condition: Callable[[], bool], seconds: float = LIMIT_S) -> None:
    """Wait for what must become true; fail if it does not.

    It rests for as long as the last look took: some conditions open a store, and looking at one
    all the time would take the processor from what is waited for.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, "it did not become true in time"
        time.sleep(max(0.05, now - began))
