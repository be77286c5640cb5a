"""Connections of which granian reads no request: they are counted, and the first one is logged."""

import asyncio
import http.client
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from support.certificates import Authority
from support.otlp_client import metric, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, cli_here, eventually

from otel_lightning.collector.receive.http.unread_connections import UnreadConnections
from otel_lightning.collector.receive.metrics import Counts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
UNREAD = "lightning_unread_connections_total"
POST = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n"
HANDSHAKE = bytes.fromhex("16030100c8010000c40303") + bytes(200)
BYTES = {
    "TLS where none is spoken": HANDSHAKE,
    "no HTTP": b"\x00\x01garbage\r\n\r\n",
    "too many headers": POST + b"".join(b"X-%d: x\r\n" % n for n in range(200)) + b"\r\n",
    "too long a URL": b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "headers that break off": POST,
}


def send_bytes(address: str, sent: bytes) -> None:
    """Send bytes and nothing after them, and wait until the server has closed the connection."""
    host, _, port = address.rpartition(":")
    place = host.strip("[]"), int(port)
    with socket.create_connection(place, LIMIT_S) as connection, suppress(OSError):
        connection.sendall(sent)  # it may close before it has read all
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_what_is_no_request_is_counted_and_the_first_is_logged(
    host: str, starter: Callable[..., Ingester], capfd: pytest.CaptureFixture[str]
) -> None:
    ingester = starter("--grpc", "none", "--http", f"{host}:0")
    port = ingester.http.rpartition(":")[2]
    told = cli_here("check", "--store", str(ingester.store))
    assert (told.returncode, "unread connections" in told.stdout) == (0, False)
    for number, sent in enumerate(BYTES.values(), 1):
        send_bytes(ingester.http, sent)
        eventually(lambda n=number: metric(ingester.http, UNREAD) == n)  # type: ignore[misc]
    told = cli_here("check", "--store", str(ingester.store))
    assert "unread connections  5 connections to the HTTP port" in told.stdout
    assert told.returncode == 0  # a port that is open to all has such clients always
    with socket.create_connection((host.strip("[]"), int(port)), LIMIT_S):
        pass  # a probe that only connects
    assert send(ingester.http, trace_request("kept").SerializeToString()).status == 200
    send_bytes(ingester.http, b"garbage\r\n\r\n")  # the kernel tells of this end after all others
    eventually(lambda: metric(ingester.http, UNREAD) >= 6)
    assert metric(ingester.http, UNREAD) == 6
    ingester.stop()
    log = capfd.readouterr().err
    assert log.count("no request could be read from what it sent") == 1
    assert f"to port {port}," in log
    assert "it may speak TLS (https://)" in log


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_a_tls_handshake_that_fails_is_counted(
    authority: Authority, starter: Callable[..., Ingester], capfd: pytest.CaptureFixture[str]
) -> None:
    ingester = starter("--grpc", "none", *authority.options("first"))
    trusting = authority.context()
    seen = [send(ingester.http, trace_request("kept").SerializeToString(), tls=trusting).status]
    with pytest.raises(ssl.SSLCertVerificationError):
        send(ingester.http, tls=ssl.create_default_context())
    with pytest.raises((http.client.BadStatusLine, ConnectionError)):
        send(ingester.http)
    metrics = ""

    def counted() -> bool:
        nonlocal metrics
        reply = send(ingester.http, path="/metrics", method="GET", tls=trusting)
        metrics = reply.body.decode()
        return f"{UNREAD} 2" in metrics

    eventually(counted)
    assert seen == [200]
    ingester.stop()
    assert capfd.readouterr().err.count("the TLS handshake failed, or it speaks no TLS") == 1


def test_clients_whose_end_nobody_tells_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "otel_lightning.collector.receive.http.unread_connections"
    monkeypatch.setattr(f"{module}.MOST_CLIENTS", 3)
    monkeypatch.setattr(f"{module}.ARRIVED_SECONDS", 0)
    counts = Counts()
    unread = UnreadConnections(counts, 4318, tls=False)

    async def end(number: int) -> int:
        unread.note_end(f"127.0.0.1:{number}")
        await asyncio.sleep(0.01)
        return counts["unread_connections"].get((), 0)

    for number in range(4):
        unread.note_request(f"127.0.0.1:{number}")
    assert asyncio.run(end(3)) == 0
    assert asyncio.run(end(0)) == 1
