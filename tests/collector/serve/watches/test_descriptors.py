"""Connections that are held open, without a token, keep nobody out and stop nothing."""

import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import grpc
import pytest
from support.otlp_client import column, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, eventually
from support.sending import post

from otel_lightning.collector.serve.watches import descriptors
from otel_lightning.collector.serve.watches.descriptors import (
    RESERVED,
    IdleConnections,
    connections_within,
)

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
Starter = Callable[..., Ingester]


@contextmanager
def held(address: str, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open connections, and send nothing or the beginning of a request."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, port = address.split(":")
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in connections:
            one.setblocking(False)  # noqa: FBT003  its only argument
            one.connect_ex((host, int(port)))
        for one in connections if sent else ():
            with suppress(OSError):  # it is closed already
                one.settimeout(10)
                one.sendall(sent)
        yield connections
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def export(address: str, name: str) -> bytes:
    """Send one span over gRPC; a refused connection is tried again, as exporters do."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(TRACES)
        return bytes(
            call(trace_request(name).SerializeToString(), timeout=LIMIT_S, wait_for_ready=True)
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "count"), [pytest.param(1024, 1100, id="few"), pytest.param(20_000, 4400, id="many")]
)
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_held_connections_keep_no_new_sender_out(
    transport: str, files: int, count: int, starter: Starter
) -> None:
    ingester = starter(files=files)
    with held(getattr(ingester, transport), count):
        body = trace_request("over http").SerializeToString()
        assert post(ingester.http, body, timeout=LIMIT_S) == 200
        assert export(ingester.grpc, "over grpc") == b""
        names = "SELECT name FROM spans ORDER BY name"
        eventually(lambda: column(ingester.store, names) == ["over grpc", "over http"])
    assert send(ingester.http, trace_request("after").SerializeToString()).status == 200
    assert ingester.stop() == 0


@pytest.mark.slow
def test_requests_that_never_come_to_their_end_keep_no_new_sender_out(starter: Starter) -> None:
    ingester = starter(files=20_000)
    with held(ingester.http, 4400, b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n"):
        assert post(ingester.http, trace_request("one").SerializeToString(), timeout=LIMIT_S) == 200


def test_a_connection_that_waits_for_its_next_request_is_not_hung_up_on_by_few(
    ingester: Ingester,
) -> None:
    with grpc.insecure_channel(ingester.grpc) as channel:
        call = channel.unary_unary(TRACES)
        assert call(trace_request("one").SerializeToString(), timeout=LIMIT_S) == b""
        with held(ingester.http, 200):
            assert send(ingester.http, trace_request("two").SerializeToString()).status == 200
        assert call(trace_request("three").SerializeToString(), timeout=LIMIT_S) == b""


def test_the_soft_limit_is_raised_at_start(starter: Starter) -> None:
    process = starter().process.pid
    soft, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
    assert soft == min(hard, 65_536)


def test_too_few_descriptors_are_an_error_at_start() -> None:
    command = [sys.executable, "-m", "otel_lightning.collector", "--store", "never.duckdb"]
    limited = ["sh", "-c", 'ulimit -n 200 && exec "$@"', "sh", *command]
    process = subprocess.run(limited, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert process.returncode == 1
    assert "only 200 files may be open at once" in process.stderr
    assert "ulimit -n" in process.stderr


def test_connections_leave_descriptors_in_reserve() -> None:
    assert connections_within(1024) == 1024 - RESERVED


def test_a_connection_that_never_sends_is_closed_also_when_few_are_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "SILENT_SECONDS": 0.3,
        "LOOK_SECONDS": 0.02,
        "LEAST_IDLE_SECONDS": 0.1,
    }.items():
        monkeypatch.setattr(descriptors, name, value)
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as stack:
        port = listening.getsockname()[1]
        silent, talking = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S))
            for _ in range(2)
        )
        accepted = [stack.enter_context(listening.accept()[0]) for _ in range(2)]
        talking.sendall(b"PRI")
        watching = IdleConnections({port}, 1000)
        watching.start()
        assert silent.recv(1) == b"", "closed by the other side"
        watching.stop()
        accepted[1].sendall(b"still there")
        assert talking.recv(100) == b"still there"
