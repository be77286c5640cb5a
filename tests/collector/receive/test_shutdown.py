"""Stopping under load: in time, and without losing what was acknowledged."""

import gzip
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from support.otlp_client import column, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, eventually, finish, join

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SPANS = 50
ENOUGH = 40 * SPANS
"""Acknowledged spans before the end, so that it comes in the middle of work."""


class Load:
    """Senders over HTTP and gRPC that remember which spans were acknowledged."""

    def __init__(self, ingester: Ingester) -> None:
        self.acknowledged: set[str] = set()
        self._ingester, self._done = ingester, threading.Event()
        over = [self._over_http] * 3 + [self._over_grpc] * 3
        self._threads = [
            threading.Thread(target=self._send, args=(one,), daemon=True) for one in over
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._done.set()
        join(*self._threads)

    def _send(self, over: Callable[[bytes], bool]) -> None:
        while not self._done.is_set():
            names = [os.urandom(8).hex() for _ in range(SPANS)]
            try:
                if over(trace_request(*names).SerializeToString()):
                    self.acknowledged.update(names)
            except (OSError, grpc.RpcError):
                time.sleep(0.01)

    def _over_http(self, body: bytes) -> bool:
        return send(self._ingester.http, body).status == 200

    def _over_grpc(self, body: bytes) -> bool:
        with grpc.insecure_channel(self._ingester.grpc) as channel:
            return channel.unary_unary(TRACES)(body, timeout=LIMIT_S) == b""


def names(ingester: Ingester) -> set[str]:
    return set(column(ingester.store, "SELECT name FROM spans"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_once_it_drains_in_time_and_loses_nothing(
    number: signal.Signals, ingester: Ingester
) -> None:
    load = Load(ingester)
    eventually(lambda: len(load.acknowledged) > ENOUGH)
    ingester.process.send_signal(number)
    status = ingester.process.wait(LIMIT_S)
    load.stop()
    assert status == 0
    assert load.acknowledged <= names(ingester)


def test_asked_twice_it_leaves_at_once_and_loses_nothing(
    starter: Callable[[], Ingester],
) -> None:
    ingester = starter()
    load = Load(ingester)
    eventually(lambda: len(load.acknowledged) > ENOUGH)
    ingester.process.send_signal(signal.SIGINT)
    ingester.process.send_signal(signal.SIGINT)
    status = ingester.process.wait(LIMIT_S)
    load.stop()
    # 0: it had drained before the second signal came.
    assert status in (0, 130)
    again = starter()
    eventually(lambda: load.acknowledged <= names(again))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of another process")
def test_asked_without_room_for_another_thread_it_ends_in_order_and_loses_nothing(
    starter: Callable[[], Ingester], capfd: pytest.CaptureFixture[str]
) -> None:
    ingester = starter()
    sent = [os.urandom(8).hex() for _ in range(SPANS)]
    for name in sent:  # compressed, so that threads decompress them
        body = gzip.compress(trace_request(name).SerializeToString())
        assert send(ingester.http, body, Content_Encoding="gzip").status == 200
    pid = ingester.process.pid
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    now = pages * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (now, now))
    assert ingester.stop() == 0
    assert "Traceback" not in capfd.readouterr().err
    again = starter()
    eventually(lambda: set(sent) <= names(again))


BREAK = """
import asyncio, sys, threading, time
from pathlib import Path
from otel_lightning.collector.__main__ import main
from otel_lightning.collector.receive import grpc
from otel_lightning.collector.receive.http import server as http_server

async def break_down(server, serve):
    serving = asyncio.create_task(serve())
    while not announced.exists():
        await asyncio.sleep(0.01)
    serving.cancel()
    raise RuntimeError("it broke")

def breaking_http(*args, make=http_server.server):
    server = make(*args)
    server.serve = lambda serve=server.serve: break_down(server, serve)
    return server

def breaking_grpc(*args, make=grpc.server):
    server = make(*args)
    threading.Thread(target=stop, args=[server], daemon=True).start()
    return server

def stop(server):
    while not announced.exists():
        time.sleep(0.01)
    server.stop(0)

which, *sys.argv[1:] = sys.argv[1:]
announced = Path(sys.argv[sys.argv.index("--store") + 1] + ".server")
if which == "HTTP":
    http_server.server = breaking_http
else:
    grpc.server = breaking_grpc
main()
"""


@pytest.mark.parametrize("which", ["HTTP", "gRPC"])
def test_when_one_of_its_servers_breaks_down_the_process_ends_and_says_so(
    which: str, tmp_path: Path
) -> None:
    store = str(tmp_path / "t.duckdb")
    command = [sys.executable, "-c", BREAK, which, "--store", store]
    addresses = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    process = finish(*command, *addresses)
    assert process.returncode == 1
    assert f"Error: the {which} server ended by itself" in process.stderr
    assert "everything that was acknowledged is stored" in process.stdout


def test_a_connection_that_stands_still_does_not_delay_the_end(ingester: Ingester) -> None:
    host, _, port = ingester.http.rpartition(":")
    half = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab"
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.sendall(half)
        assert ingester.stop() == 0
