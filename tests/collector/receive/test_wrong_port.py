"""Who sends to the wrong port hears where to send instead."""

from collections.abc import Callable

import grpc
import pytest
from support.otlp_client import send
from support.requests_by_hand import trace_request
from support.running import Ingester, cli

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def test_a_grpc_exporter_at_the_http_port_hears_the_right_address(ingester: Ingester) -> None:
    for _ in range(2):
        with grpc.insecure_channel(ingester.http) as channel:
            call = channel.unary_unary(TRACES)
            with pytest.raises(grpc.RpcError) as refused:
                call(trace_request("lost").SerializeToString(), timeout=20)
        told: grpc.Call = refused.value  # type: ignore[assignment]
        assert told.code() is grpc.StatusCode.UNIMPLEMENTED
        assert f"send gRPC to {ingester.grpc}" in (told.details() or "")
    assert send(ingester.http, trace_request("kept").SerializeToString()).status == 200


def test_the_log_says_it_once(
    capfd: pytest.CaptureFixture[str], starter: Callable[[], Ingester]
) -> None:
    ingester = starter()
    for _ in range(3):
        with grpc.insecure_channel(ingester.http) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(TRACES)(b"", timeout=20)
    ingester.stop()
    assert capfd.readouterr().err.count("A gRPC exporter sends to the wrong port") == 1


def test_help_names_both_ports_and_who_sends_where() -> None:
    told = " ".join(cli("serve", "--help").stdout.split())
    assert "PROTOCOL=grpc send to port 4317" in told
    assert "http/json to port 4318" in told
