"""An ingester whose log is in a file, and which may lose nothing that it acknowledged."""

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from subprocess import Popen, TimeoutExpired

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.otlp_client import column, metric, send
from support.requests_by_hand import trace_request
from support.running import background, cli, eventually, running, written_by

END_S = 60
CRASH_S = 10
"""Seconds in which a process that has closed its connections ends."""
CRASHED = "terminate called after throwing an instance of 'duckdb::IOException'", "truncate file"


@dataclass
class Logged:
    """A running ingester, and what it has acknowledged."""

    process: Popen[bytes]
    store: Path
    log: Path
    http: str
    acknowledged: Counter[str] = field(default_factory=Counter)
    """Number of spans by name."""

    def sends(self, *names: str) -> int:
        """Send spans, and return the status of the answer."""
        return self.sends_request(trace_request(*names))

    def sends_request(self, request: ExportTraceServiceRequest) -> int:
        status = send(self.http, request.SerializeToString()).status
        if status == 200:
            scopes = [one for resource in request.resource_spans for one in resource.scope_spans]
            self.acknowledged.update(span.name for scope in scopes for span in scope.spans)
        return status

    def stores(self, name: str) -> None:
        """Send a span, and wait until it is stored."""
        assert self.sends(name) == 200
        eventually(lambda: name in stored_names(self.store))

    @contextmanager
    def unless_duckdb_crashes(self) -> Iterator[None]:
        """Leave the block early if DuckDB has ended the process, and for no other reason.

        If a disk stops after a commit was written and before it is synced, DuckDB 1.5 cannot take
        the commit back and ends the process: https://github.com/duckdb/duckdb/issues/22860. Then
        the rest of the block cannot be asked for; what was acknowledged has to be stored anyway.
        """
        try:
            yield
        except (AssertionError, OSError, HTTPException):
            if not self.has_crashed():
                raise

    def has_crashed(self) -> bool:
        """Whether DuckDB has ended the process, as it says in the log."""
        try:
            ended = self.process.wait(CRASH_S)
        except TimeoutExpired:
            return False
        log = self.log.read_text()
        return ended == -signal.SIGABRT and all(words in log for words in CRASHED)

    def ends_by_itself(self) -> bool:
        """Whether it ends with exit code 1, for its supervisor, or DuckDB has ended it."""
        return self.process.wait(END_S) == 1 or self.has_crashed()

    def must_have_lost_nothing(self) -> None:
        """Start the ingester again: it has to store all that was acknowledged, and new spans."""
        unasked = f"process {self.process.pid} was not asked to stop"
        if self.process.returncode:
            checked = cli("check", "--store", str(self.store))
            assert checked.returncode == 1, checked.stdout
            assert unasked in checked.stdout
        with running(self.store) as again:
            self.http = again.http
            assert self.sends("after a restart") == 200
            eventually(lambda: self.acknowledged <= Counter(stored_names(self.store)))
            for alarm in ("storing", "receiving"):
                assert metric(again.http, f'lightning_alarm{{alarm="{alarm}"}}') == 0
            checked = cli("check", "--store", str(self.store))
            assert (unasked in checked.stdout) == bool(self.process.returncode), checked.stdout


@contextmanager
def logged(store: Path, log: Path, *more: str, before: tuple[str, ...] = ()) -> Iterator[Logged]:
    """Run an ingester for the block.

    After the block its disks have to take writes again: it is started once more, and all that it
    acknowledged has to be in the store.
    """
    options = ("--http", "127.0.0.1:0", "--grpc", "none", "--refuse-after", "1s", *more)
    command = (sys.executable, "-m", "otel_lightning.collector", "serve", *options)
    with (
        log.open("a") as stderr,
        background(*before, *command, "--store", store, stderr=stderr) as process,
    ):
        server_file = written_by(process, store.with_name(store.name + ".server"))
        ingester = Logged(process, store, log, json.loads(server_file)["http"])
        try:
            yield ingester
        except BaseException:  # pytest shows it: what the process did tells why
            print(f"exit status {process.poll()}, log:\n{log.read_text()}")
            raise
    ingester.must_have_lost_nothing()


def stored_names(store: Path) -> list[str]:
    """The names of the stored spans."""
    return column(store, "SELECT name FROM spans")
