"""Who sends to the wrong port hears where to send instead."""

import http.client
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from support.otlp_client import column, metric, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, cli_here, eventually

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
WRONG_AT_GRPC = 'lightning_wrong_port_total{port="grpc"}'


def test_a_grpc_exporter_at_the_http_port_hears_the_right_address(ingester: Ingester) -> None:
    for _ in range(2):
        with grpc.insecure_channel(ingester.http) as channel:
            call = channel.unary_unary(TRACES)
            with pytest.raises(grpc.RpcError) as refused:
                call(trace_request("lost").SerializeToString(), timeout=LIMIT_S)
        told: grpc.Call = refused.value  # type: ignore[assignment]
        assert told.code() is grpc.StatusCode.UNIMPLEMENTED
        assert f"send gRPC to {ingester.grpc}" in (told.details() or "")
    assert send(ingester.http, trace_request("kept").SerializeToString()).status == 200


def test_a_client_at_the_wrong_port_is_logged_once(
    capfd: pytest.CaptureFixture[str], starter: Callable[[], Ingester]
) -> None:
    ingester = starter()
    for _ in range(3):
        with grpc.insecure_channel(ingester.http) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(TRACES)(b"", timeout=LIMIT_S)
    assert metric(ingester.http, 'lightning_wrong_port_total{port="http"}') == 3
    ingester.stop()
    assert capfd.readouterr().err.count("A gRPC exporter sends to the wrong port") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_an_http_exporter_at_the_grpc_port_is_logged_once_counted_and_found_by_doctor(
    capfd: pytest.CaptureFixture[str], starter: Callable[[], Ingester]
) -> None:
    ingester = starter()
    sizes = (0, 10, 200_000)
    for number, size in enumerate(sizes, 1):
        with pytest.raises((http.client.BadStatusLine, ConnectionError)):
            send(ingester.grpc, bytes(size))
        eventually(lambda n=number: metric(ingester.http, WRONG_AT_GRPC) == n)  # type: ignore[misc]
    result = cli_here("doctor", "--store", str(ingester.store))
    assert result.returncode == 1
    assert result.stdout.startswith("3 of 3 requests since the start were sent to the port of the")
    assert "3 to the port for grpc" in result.stdout
    result = cli_here("check", "--store", str(ingester.store))
    assert result.returncode == 1
    assert "wrong port  3 connections to the port for grpc" in result.stdout
    assert ingester.stop() == 0
    port = ingester.http.rpartition(":")[2]
    log = capfd.readouterr().err
    assert log.count("127.0.0.1 speaks another protocol than gRPC") == 1
    assert f"http/protobuf or http/json send to port {port};" in log


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_grpc_clients_and_probes_that_only_connect_are_not_taken_for_http(
    ingester: Ingester,
) -> None:
    address = ingester.grpc.rpartition(":")
    for _ in range(3):
        with grpc.insecure_channel(ingester.grpc) as channel:
            channel.unary_unary(TRACES)(trace_request("kept").SerializeToString(), timeout=LIMIT_S)
        with grpc.insecure_channel(ingester.grpc) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary("/no.Service/Method")(b"", timeout=LIMIT_S)
        with grpc.insecure_channel(ingester.grpc) as channel:
            grpc.channel_ready_future(channel).result(LIMIT_S)
        with socket.create_connection((address[0], int(address[2])), LIMIT_S):
            pass
        with socket.create_connection((address[0], int(address[2])), LIMIT_S) as probe:
            assert probe.recv(100)
    # The ingester reads the kernel's messages in order: this one comes after those of all others.
    with pytest.raises((http.client.BadStatusLine, ConnectionError)):
        send(ingester.grpc)
    eventually(lambda: metric(ingester.http, WRONG_AT_GRPC) > 0)
    assert metric(ingester.http, WRONG_AT_GRPC) == 1


def test_help_names_both_ports_and_who_sends_where() -> None:
    output = " ".join(cli_here("serve", "--help").stdout.split())
    assert "PROTOCOL=grpc send to port 4317" in output
    assert "http/json to port 4318" in output


def test_an_ingester_without_grpc_receives_over_http_and_names_no_address_for_grpc(
    starter: Callable[..., Ingester],
) -> None:
    ingester = starter("--grpc", "none")
    assert send(ingester.http, trace_request("kept").SerializeToString()).status == 200
    with (
        grpc.insecure_channel(ingester.http) as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        channel.unary_unary(TRACES)(b"", timeout=LIMIT_S)
    told: grpc.Call = refused.value  # type: ignore[assignment]
    assert told.code() is grpc.StatusCode.UNIMPLEMENTED
    assert told.details() == (
        "this is the port for OTLP over HTTP: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
    )
    if sys.platform == "linux":  # what it is for: a start without gRPC costs less
        assert "cygrpc" not in Path(f"/proc/{ingester.process.pid}/maps").read_text()
    assert ingester.stop() == 0
    assert column(ingester.store, "SELECT name FROM spans") == ["kept"]
