"""The running ingester, spoken to by real exporters and by hand."""

import gzip
import http.client
import json
import os
import time
import zlib
from collections.abc import Callable
from typing import Any

import grpc
import pytest
import zstandard
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from requests_by_hand import trace_request
from running import Ingester, eventually

from otel_lightning.collector.store import open_store

PROTOBUF, JSON = "application/x-protobuf", "application/json"


def post(
    ingester: Ingester, body: bytes, path: str = "/v1/traces", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(ingester.http, timeout=30)
    sent = {"Content-Type": PROTOBUF} | {k.replace("_", "-"): v for k, v in headers.items()}
    connection.request("POST", path, body, sent)
    answer = connection.getresponse()
    reply = answer.read()
    connection.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, reply


def stored(ingester: Ingester, column: str = "name") -> list[Any]:
    with open_store(ingester.store) as store:
        return store.query(f"SELECT {column} FROM spans ORDER BY 1")[column].to_pylist()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_spans_of_the_sdk_exporters_are_stored(protocol: str, ingester: Ingester) -> None:
    exporter: SpanExporter
    if protocol == "grpc":
        exporter = GrpcExporter(endpoint=ingester.grpc, insecure=True)
    else:
        exporter = HttpExporter(endpoint=f"http://{ingester.http}/v1/traces")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("t").start_as_current_span("parent") as parent:
        parent.set_attribute("answer", 42)
    provider.shutdown()
    eventually(lambda: stored(ingester) == ["parent"])
    assert stored(ingester, "trace_id") == [f"{parent.get_span_context().trace_id:032x}"]


def test_attributes_are_asked_for_by_key(ingester: Ingester) -> None:
    request = trace_request("chat")
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.add(key="gen_ai.request.model").value.string_value = "small"
    span.attributes.add(key="gen_ai.usage.input_tokens").value.int_value = 7
    post(ingester, request.SerializeToString())
    eventually(lambda: stored(ingester) == ["chat"])
    with open_store(ingester.store) as store:
        row = store.query(
            "SELECT attributes['gen_ai.request.model'] AS model,"
            " attributes['gen_ai.usage.input_tokens']::BIGINT AS tokens FROM spans"
        ).to_pylist()[0]
    assert row == {"model": "small", "tokens": 7}


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("", bytes),
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
    ],
)
def test_every_encoding_is_read(
    encoding: str, compress: Callable[[bytes], bytes], ingester: Ingester
) -> None:
    body = compress(trace_request("a").SerializeToString())
    status, headers, reply = post(ingester, body, Content_Encoding=encoding)
    assert (status, headers["content-type"]) == (200, PROTOBUF)
    assert not ExportTraceServiceResponse.FromString(reply).HasField("partial_success")
    eventually(lambda: stored(ingester) == ["a"])


def test_json_is_read_and_answered_in_json(ingester: Ingester) -> None:
    span = {"traceId": "0A" * 16, "spanId": "0b" * 8, "name": "j", "kind": 3, "unknown": 1}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    status, headers, reply = post(ingester, body, Content_Type=f"{JSON}; charset=utf-8")
    assert (status, headers["content-type"], reply) == (200, JSON, b"{}")
    eventually(lambda: stored(ingester) == ["j"])
    assert stored(ingester, "trace_id") == ["0a" * 16]
    assert stored(ingester, "kind") == ["CLIENT"]


def test_a_bad_span_costs_no_good_one(ingester: Ingester) -> None:
    request = trace_request("good", "no trace", "short span id")
    spans = request.resource_spans[0].scope_spans[0].spans
    spans[1].trace_id, spans[2].span_id = bytes(16), b"abc"
    _, _, reply = post(ingester, request.SerializeToString())
    assert ExportTraceServiceResponse.FromString(reply).partial_success.rejected_spans == 2
    eventually(lambda: stored(ingester) == ["good"])
    with open_store(ingester.store) as store:
        reasons = store.query("SELECT reason FROM rejected ORDER BY 1")["reason"].to_pylist()
    assert [reason.split("'")[1] for reason in reasons] == ["no trace", "short span id"]


def test_a_span_sent_twice_is_stored_once(ingester: Ingester) -> None:
    twice = trace_request("once", trace_id=b"t" * 16, span_id=b"s" * 8).SerializeToString()
    post(ingester, twice + twice)
    eventually(lambda: stored(ingester) == ["once"])
    post(ingester, twice)
    post(ingester, trace_request("later").SerializeToString())
    eventually(lambda: "later" in stored(ingester))
    assert stored(ingester) == ["later", "once"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff\xff", {}, 400),
        (b"{", {"Content_Type": JSON}, 400),
        (b"[1,2]", {"Content_Type": JSON}, 400),
        (b"not gzip", {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(b"x" * 999)[:-9], {"Content_Encoding": "gzip"}, 400),
        (b"", {"Content_Encoding": "br"}, 415),
        (b"", {"Content_Type": "text/plain"}, 415),
        (gzip.compress(bytes(65 << 20)), {"Content_Encoding": "gzip"}, 413),
    ],
)
def test_what_is_not_otlp_is_refused_with_a_status_message(
    body: bytes, headers: dict[str, str], status: int, ingester: Ingester
) -> None:
    answered, received, reply = post(ingester, body, **headers)
    assert answered == status
    if received["content-type"] == JSON:
        assert json.loads(reply)["message"]
    else:
        assert Status.FromString(reply).message
    assert post(ingester, b"")[0] == 200, "it goes on receiving"


def test_metrics_are_answered_but_not_stored(ingester: Ingester) -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.sum.data_points.add(as_int=1)
    status, _, reply = post(ingester, request.SerializeToString(), "/v1/metrics")
    partial = ExportMetricsServiceResponse.FromString(reply).partial_success
    assert (status, partial.rejected_data_points) == (200, 1)


def test_grpc_refuses_what_is_not_otlp(ingester: Ingester) -> None:
    with grpc.insecure_channel(ingester.grpc) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        with pytest.raises(grpc.RpcError) as refused:
            export(b"\xff\xff\xff")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]


def test_sql_answers_while_it_runs_and_after_it_stopped(ingester: Ingester) -> None:
    post(ingester, trace_request("a").SerializeToString())
    eventually(lambda: stored(ingester) == ["a"])
    assert ingester.stop() == 0
    assert stored(ingester) == ["a"]
    assert not ingester.store.with_name("traces.duckdb.server").exists()


def test_what_was_acknowledged_survives_kill_9(starter: Callable[[], Ingester]) -> None:
    acknowledged: set[str] = set()
    for _ in range(5):
        running = starter()
        deadline = time.monotonic() + 0.7
        while time.monotonic() < deadline:
            names = [os.urandom(8).hex() for _ in range(50)]
            status, _, _ = post(running, trace_request(*names).SerializeToString())
            assert status == 200
            acknowledged.update(names)
        running.kill()
    last = starter()
    eventually(lambda: len(stored(last)) >= len(acknowledged))
    assert last.stop() == 0
    assert sorted(acknowledged) == stored(last)
