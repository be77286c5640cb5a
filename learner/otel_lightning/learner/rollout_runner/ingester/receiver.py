"""The `lightning-ingest` that receives the telemetry of agents and of the runner."""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_lightning.collector.store import StoreError, read_server, server_file
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.ingester.idle_ingester import Claim, IdleIngester
from otel_lightning.learner.rollout_runner.ingester.ingester_users import users_of_ingester
from otel_lightning.learner.rollout_runner.launcher.processes import (
    INHERITED,
    Processes,
    Spec,
    wait_until,
)

if TYPE_CHECKING:
    from http.client import HTTPConnection

READY_SECONDS = 60.0
GRACE_SECONDS = 20.0
"""Time for the ingester to store what it has received, before it is killed."""
ENDING_SECONDS = GRACE_SECONDS + 5.0
"""Longest wait for its end."""
SEND_SECONDS = 60.0
"""Timeout of one request, and the least time that a refused request is sent again."""
RETRY_SECONDS = 0.5
SCOPE = "lightning-learn run"
INGESTER = "lightning-ingest"
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
"""Variable with the headers that exporters send, such as a token."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """An OTLP receiver: its address, and the token or certificate that it requires."""

    url: str
    headers: Mapping[str, str]
    cert: str | None = None
    patience: float = SEND_SECONDS
    """Longest time in seconds that a refused request is sent again: the receiver may be busy."""
    held: "list[Event]" = field(default_factory=list)
    """Log records that go with the next request."""
    idle: IdleIngester | None = None
    """The ingester, if it starts only when it is needed."""

    @property
    def is_asleep(self) -> bool:
        """Whether the ingester has not been needed yet."""
        return self.idle is not None and not self.idle.is_awake

    def look(self, started_ns: Iterable[int]) -> None:
        """Start the ingester if it has not started and is needed now.

        Args:
            started_ns: Starts of the attempts that run, in Unix nanoseconds.

        Raises:
            DataError: If it ended by itself.
        """
        if self.idle is not None:
            self.idle.look(started_ns)

    def environment(self) -> dict[str, str]:
        """Return the variables that make an agent send there."""
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        if self.cert:
            variables["OTEL_EXPORTER_OTLP_CERTIFICATE"] = self.cert
        # A process inherits it anyway. On a cluster's machine it would be missing, and the receiver
        # would refuse every span.
        if HEADERS_VARIABLE in os.environ:
            variables[HEADERS_VARIABLE] = os.environ[HEADERS_VARIABLE]
        return variables

    def check_agents(self) -> None:
        """Check that agents may send: they have only the headers of the environment.

        Raises:
            DataError: If the receiver requires a token that they would not send.
        """
        if self.idle is not None:
            return  # it has no token, and nobody would answer before it has started
        refusal = self._refusal(b"", _headers_from_environment())
        if refusal is not None and refusal.startswith("401"):
            has_token = HEADERS_VARIABLE in os.environ
            problem = (
                f"refuses the token in {HEADERS_VARIABLE}" if has_token else "requires a token"
            )
            raise DataError(
                f"The receiver at {self.url} {problem}, so it would store no call of an agent. "
                f"Give agents the token that lightning-ingest was started with: export "
                f"{HEADERS_VARIABLE}='authorization=Bearer TOKEN'"
            )

    def send(self, events: Sequence["Event"]) -> None:
        """Send log records, and return once they are durable.

        Raises:
            StoreError: If the receiver refuses them, or does not answer in time.
        """
        body = _request([*self.held, *events]).SerializeToString()
        if self.idle is not None and self.idle.take(body):
            self.held.clear()
            return
        deadline = time.monotonic() + self.patience
        while (problem := self._refusal(body, self.headers)) is not None:
            # A status 4xx does not change by trying again; a refused connection or 5xx may.
            if time.monotonic() > deadline or problem.startswith("4"):
                raise StoreError(f"The receiver at {self.url} does not take the journal: {problem}")
            time.sleep(RETRY_SECONDS)
        self.held.clear()

    def send_held(self) -> None:
        """Send the log records that wait for a request, if there are any."""
        if self.held:
            self.send([])

    def _refusal(self, body: bytes, sent: Mapping[str, str]) -> str | None:
        import http.client  # only here: a run whose agents send nothing does without

        connection = self._connection()
        headers = {"Content-Type": "application/x-protobuf", **sent}
        try:
            path = urlsplit(self.url).path.rstrip("/")
            connection.request("POST", f"{path}/v1/logs", body, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__
        finally:
            connection.close()
        if answer.status == http.client.OK:
            return None
        return f"{answer.status} {answer.reason}: {text[:200].decode('utf-8', 'replace')}"

    def _connection(self) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection

        url = urlsplit(self.url)
        if url.scheme != "https":
            return HTTPConnection(url.netloc, timeout=SEND_SECONDS)
        import ssl

        context = ssl.create_default_context()
        if self.cert:  # the server's own certificate is trusted directly
            # The certificate of a server on this machine is usually self-signed and for any name:
            # it is compared with the file itself instead of with the system's authorities.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(self.cert)
        return HTTPSConnection(url.netloc, timeout=SEND_SECONDS, context=context)


@dataclass(frozen=True, slots=True)
class Event:
    """One log record of the runner: its content decides its id, so sending it again is harmless."""

    name: str
    time_ns: int
    body: Mapping[str, Any]
    attributes: Mapping[str, str | float]


@contextmanager
def receiving(
    store: Path,
    processes: Processes,
    folder: Path,
    endpoint: str | None = None,
    patience: float = SEND_SECONDS,
) -> Iterator[Receiver]:
    """Use the ingester that serves a store, or start one for the block.

    One that was started ends once no other run of the store uses it.

    Args:
        store: Path of the store, which is created if it does not exist.
        processes: Where to start it.
        folder: Where the output of one that is started goes.
        endpoint: Use this OTLP receiver instead, such as a Collector in front.
        patience: Longest time in seconds that a refused request is sent again.

    Raises:
        DataError: If the ingester does not start; the message has its last words.
    """
    if endpoint:
        yield Receiver(endpoint, _headers_from_environment(), patience=patience)
        return
    with users_of_ingester(store) as users:
        users.join()
        if read_server(store) is not None:
            yield _local(store, patience)
            return
        users.leave()
        _start(store, processes, folder)
        try:
            yield _local(store, patience)
        finally:
            users.wait_for_others()
            processes.end_service(INGESTER, ENDING_SECONDS)


@contextmanager
def receiving_when_needed(
    store: Path,
    processes: Processes,
    folder: Path,
    claim: Claim,
    patience: float,
) -> Iterator[Receiver]:
    """Listen for an ingester of a store, which is started when somebody needs it.

    Args:
        store: Path of the store.
        processes: Where to start it.
        folder: Where its output goes.
        claim: The socket; the launcher of `processes` has a copy of it.
        patience: Longest time in seconds that a refused request is sent again.
    """
    number = claim.listening.fileno()
    spec = _spec(store, folder, f"fd://{INHERITED}", listener=number)
    idle = IdleIngester(store, claim, spec, processes)
    try:
        yield Receiver(claim.url, {}, patience=patience, idle=idle)
    finally:
        if idle.is_awake:
            with users_of_ingester(store) as users:
                users.wait_for_others()
                processes.end_service(INGESTER, ENDING_SECONDS)


def _local(store: Path, patience: float) -> Receiver:
    server = read_server(store)
    if server is None:
        raise StoreError(f"lightning-ingest, which served '{store}', has ended. Run it again.")
    scheme = "https" if server.tls_cert else "http"
    headers = {"Authorization": f"Bearer {server.token}"}
    return Receiver(f"{scheme}://{server.http}", headers, server.tls_cert, patience)


def _start(store: Path, processes: Processes, folder: Path) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    server_file(store).unlink(missing_ok=True)  # of one that was killed
    # Port 0: the system chooses a free port, and the server file names it.
    spec = _spec(store, folder, "127.0.0.1:0")
    processes.start(spec)
    wait_until(
        processes,
        spec,
        lambda: read_server(store) is not None,
        READY_SECONDS,
        f"lightning-ingest for '{store}'",
    )


def _spec(store: Path, folder: Path, http: str, *, listener: int | None = None) -> Spec:
    # Nobody could know a gRPC port: agents get the HTTP port by OTEL_EXPORTER_OTLP_ENDPOINT and the
    # protocol beside it.
    addresses = ["--http", http, "--grpc", "none"]
    command = [sys.executable, "-m", "otel_lightning.collector", "serve", *addresses]
    return Spec(
        INGESTER,
        [*command, "--store", str(store.resolve())],
        folder,
        # The ingester must not trace itself into its own store.
        environment={"LIGHTNING_INSTRUMENT": "false"},
        grace=GRACE_SECONDS,
        is_service=True,
        listener=listener,
    )


def _request(events: Sequence[Event]) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    scope.scope.name = SCOPE
    for event in events:
        record = scope.log_records.add(event_name=event.name, time_unix_nano=event.time_ns)
        if event.body:
            # Sorted, since the log record's id is a hash of its content.
            record.body.string_value = _valid(json.dumps(event.body, sort_keys=True))
        record.attributes.extend(
            KeyValue(key=key, value=_value(value)) for key, value in event.attributes.items()
        )
    return request


def _value(value: str | float) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=_valid(value))
    return AnyValue(double_value=value)


def _valid(text: str) -> str:
    """Replace halves of surrogate pairs, which protobuf refuses."""
    return text.encode("utf-8", "replace").decode()


def _headers_from_environment() -> dict[str, str]:
    headers = os.environ.get(HEADERS_VARIABLE, "")
    pairs = (pair.partition("=") for pair in headers.split(",") if "=" in pair)
    # The format of OTEL_EXPORTER_OTLP_HEADERS: key=value pairs as in W3C Baggage, percent-encoded.
    return {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}


def reachable(endpoint: str) -> str:
    """Check that an endpoint is a URL.

    Raises:
        DataError: If it is not.
    """
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise DataError(f"'{endpoint}' is no URL. Write one such as http://127.0.0.1:4318.")
    return endpoint
