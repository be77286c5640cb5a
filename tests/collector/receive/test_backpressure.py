"""What the senders hear when nothing can be stored, and that it passes by itself."""

import resource
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http import HTTPStatus

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from support.otlp_client import column, metric, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, cli_here, eventually, join

from otel_lightning.collector.receive.http.bodies import Budget
from otel_lightning.collector.receive.refusals import RefusedError, refusal_of
from otel_lightning.collector.spool.spool import SpoolError

RECEIVING = 'lightning_alarm{alarm="receiving"}'
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def limit_files(ingester: Ingester, size: int) -> None:
    """Let no file of the ingester grow beyond a size, as on a full disk."""
    _, most = resource.prlimit(ingester.process.pid, resource.RLIMIT_FSIZE)
    soft = most if size < 0 else size
    resource.prlimit(ingester.process.pid, resource.RLIMIT_FSIZE, (soft, most))


def spool_size(ingester: Ingester) -> int:
    folder = ingester.store.with_name(ingester.store.name + ".spool")
    return sum(path.stat().st_size for path in folder.glob("*.spool"))


def test_a_full_disk_asks_senders_to_come_back_and_passes_by_itself(ingester: Ingester) -> None:
    assert send(ingester.http, trace_request("before").SerializeToString()).status == 200
    names = "SELECT name FROM spans ORDER BY name"
    eventually(lambda: column(ingester.store, names) == ["before"])
    # The store's files may not grow either, so a checkpoint would fail: the next one comes before.
    eventually(lambda: not ingester.store.with_name("traces.duckdb.wal").exists())
    limit_files(ingester, spool_size(ingester) + 100)
    for _ in range(3):
        reply = send(ingester.http, trace_request("x" * 500).SerializeToString())
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "not stored" in reply.reason()
    with grpc.insecure_channel(ingester.grpc) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(TRACES)(trace_request("x" * 500).SerializeToString(), timeout=LIMIT_S)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
    assert retry_delay(dict(refused.value.trailing_metadata())) == 1  # type: ignore[attr-defined]
    assert metric(ingester.http, 'lightning_refused_requests_total{status="503"') == 4

    assert metric(ingester.http, RECEIVING) == 1
    probed = send(ingester.http, path="/readyz", method="GET")
    assert probed.status == 503
    assert b"not ready: Requests cannot be written to the spool" in probed.body
    result = cli_here("check", "--store", str(ingester.store))
    assert result.returncode == 1
    assert "alarm receiving  " in result.stdout

    limit_files(ingester, -1)
    eventually(lambda: metric(ingester.http, RECEIVING) == 0)  # without a further request
    assert send(ingester.http, path="/readyz", method="GET").status == 200
    eventually(lambda: cli_here("check", "--store", str(ingester.store)).returncode == 0)
    assert send(ingester.http, trace_request("after").SerializeToString()).status == 200
    eventually(lambda: column(ingester.store, names) == ["after", "before"])


def retry_delay(metadata: dict[str, bytes]) -> int:
    status = Status.FromString(metadata["grpc-status-details-bin"])
    info = RetryInfo()
    assert status.details[0].Unpack(info)
    return int(info.retry_delay.seconds)


@pytest.mark.parametrize(
    "error", [SpoolError("the disk is full"), TimeoutError(), ZeroDivisionError(), KeyError("x")]
)
def test_every_trouble_of_ours_is_answered_with_come_back_soon(error: Exception) -> None:
    refusal = refusal_of(error)
    assert refusal.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert refusal.code == grpc.StatusCode.UNAVAILABLE.value[0]
    assert retry_delay({"grpc-status-details-bin": refusal.message().SerializeToString()}) == 1


def test_an_unexpected_error_is_logged_and_a_refusal_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusal = RefusedError(HTTPStatus.BAD_REQUEST, "no")
    assert refusal_of(refusal) is refusal
    assert not caplog.records
    refusal_of(ZeroDivisionError("by nought"))
    assert "by nought" in caplog.text


def test_large_bodies_together_stay_within_a_budget() -> None:
    budget = Budget(100)
    with budget.holding() as first:
        first(60)
        with budget.holding() as second:
            second(30)
            with pytest.raises(RefusedError, match="Try again"):
                second(30)
        first(40)
    with budget.holding() as third:
        third(100)


# Connections.


def connect(ingester: Ingester, sent: bytes = b"") -> socket.socket:
    host, _, port = ingester.http.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=LIMIT_S)
    connection.sendall(sent)
    return connection


HEADERS = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"


def test_a_sender_that_is_refused_in_the_middle_of_its_body_hears_why(
    starter: Callable[..., Ingester],
) -> None:
    ingester, large = starter("--max-body", "8"), 8 << 20
    body = HEADERS + b"Content-Length: %d\r\n\r\n%b" % (large, bytes(large - 1))
    with ExitStack() as waiting:

        def is_refused() -> bool:
            """Open one more connection whose body takes memory, and send a large request."""
            waiting.enter_context(connect(ingester, body))
            return send(ingester.http, bytes(large)).status == 503

        eventually(is_refused)
    chunk = b"100000\r\n%b\r\n" % bytes(1 << 20)
    chunks = HEADERS + b"Transfer-Encoding: chunked\r\n\r\n" + 24 * chunk + b"0\r\n\r\n"
    with connect(ingester, chunks) as connection:
        assert connection.recv(12) == b"HTTP/1.1 413"


def test_a_thousand_idle_connections_keep_nobody_out(ingester: Ingester) -> None:
    idle = [connect(ingester) for _ in range(1000)]
    assert send(ingester.http, trace_request("a").SerializeToString()).status == 200
    for connection in idle:
        connection.close()


def test_a_sender_that_hangs_up_half_way_affects_nobody_else(ingester: Ingester) -> None:
    for length in (1000, 10_000_000):
        connect(ingester, HEADERS + b"Content-Length: %d\r\n\r\nabc" % length).close()
    assert send(ingester.http, trace_request("a").SerializeToString()).status == 200


@pytest.mark.slow
def test_connections_that_stand_still_or_crawl_are_ended(ingester: Ingester) -> None:
    body = HEADERS + b"Content-Length: 100000\r\n\r\n"
    cases = {"nothing": (b"", b""), "headers": (HEADERS, b"X: 1\r\n"), "body": (body, b"x")}
    with ThreadPoolExecutor() as threads:
        ends = {name: threads.submit(ended, ingester, *case) for name, case in cases.items()}
        assert {name: end.result(LIMIT_S) for name, end in ends.items()} == {
            "nothing": b"",
            "headers": b"",
            "body": b"HTTP/1.1 408",
        }


def ended(ingester: Ingester, sent: bytes, drip: bytes) -> bytes:
    """Send some bytes, then one drop a second, and return what comes back before the end."""
    connection = connect(ingester, sent)
    done = threading.Event()

    def crawl() -> None:
        with suppress(OSError):  # it was ended
            while drip and not done.wait(1):
                connection.sendall(drip)

    crawling = threading.Thread(target=crawl, daemon=True)
    crawling.start()
    try:
        return connection.recv(12)
    finally:
        done.set()
        join(crawling)
        connection.close()
