"""One record that cannot be read costs no neighbour, and the table `rejected` says why."""

import json
import time

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from support.otlp_client import JSON, column, send
from support.requests_by_hand import trace_request
from support.running import Ingester, eventually

from otel_lightning.collector.load.decoding.decode import decode
from otel_lightning.collector.otlp.repair import repair


def nested(levels: int) -> bytes:
    """Return an AnyValue so deep; protobuf itself cannot write one that it cannot read."""
    value = AnyValue(int_value=1).SerializeToString()
    for _ in range(levels):
        for field in (1, 5):  # ArrayValue.values, AnyValue.array_value
            value = bytes([field << 3 | 2]) + _varint(len(value)) + value
    return value


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def with_deep_value(request: bytes, levels: int = 200) -> bytes:
    """Put a nested value in the place of the text "DEEP", all lengths around it made right."""
    plain = AnyValue(string_value="DEEP").SerializeToString()
    return _replace(request, plain, nested(levels))


def _replace(message: bytes, old: bytes, new: bytes) -> bytes:
    """Replace a submessage on the way of length-delimited fields that leads to it."""
    out, at = b"", 0
    while at < len(message):
        key, start = _read_varint(message, at)
        if key & 7 != 2:
            end = {0: _read_varint(message, start)[1], 1: start + 8, 5: start + 4}[key & 7]
            out, at = out + message[at:end], end
            continue
        size, start = _read_varint(message, start)
        inner = message[start : start + size]
        if inner == old:
            inner = new
        elif old in inner:
            inner = _replace(inner, old, new)
        out += _varint(key) + _varint(len(inner)) + inner
        at = start + size
    return out


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def spans_with_a_deep_one(levels: int = 200) -> bytes:
    request = trace_request("before", "deep", "after")
    request.resource_spans[0].resource.attributes.add(key="service.name").value.string_value = "s"
    deep = request.resource_spans[0].scope_spans[0].spans[1]
    deep.attributes.add(key="a").value.string_value = "DEEP"
    return with_deep_value(request.SerializeToString(), levels)


def logs_with_a_deep_one(levels: int = 200) -> bytes:
    request = ExportLogsServiceRequest()
    logs = request.resource_logs.add().scope_logs.add().log_records
    for body in ("before", "DEEP", "after"):
        logs.add().body.string_value = body
    return with_deep_value(request.SerializeToString(), levels)


def test_a_reader_of_protobuf_gives_up_the_whole_request() -> None:
    for kind, body in (
        (ExportTraceServiceRequest, spans_with_a_deep_one()),
        (ExportLogsServiceRequest, logs_with_a_deep_one()),
    ):
        with pytest.raises(DecodeError):
            kind.FromString(body)


def test_the_neighbours_of_a_deep_value_keep_all_they_have() -> None:
    body = repair(ExportTraceServiceRequest, spans_with_a_deep_one())
    rows, rejected = decode("traces", [body], [1])
    assert rows["name"].to_pylist() == ["before", "after"]
    assert rows["service_name"].to_pylist() == ["s", "s"]
    assert len(rejected) == 1
    assert "'deep': it is nested deeper than 100 levels" in rejected[0]


@pytest.mark.parametrize("levels", range(44, 54))
def test_a_value_of_any_depth_affects_no_neighbour(levels: int) -> None:
    """A value can be shallow enough for its record alone and too deep for the whole request."""
    body = repair(ExportTraceServiceRequest, spans_with_a_deep_one(levels))
    names = decode("traces", [body], [1])[0]["name"].to_pylist()
    assert set(names) >= {"before", "after"}
    body = repair(ExportLogsServiceRequest, logs_with_a_deep_one(levels))
    bodies = decode("logs", [body], [1])[0]["body"].to_pylist()
    assert set(bodies) >= {"before", "after"}


@pytest.mark.parametrize("levels", [46, 47, 48, 49, 50, 200])
@pytest.mark.parametrize("place", ["resource", "scope"])
def test_a_deep_resource_or_scope_loses_only_its_own_spans(levels: int, place: str) -> None:
    request = trace_request("deep")
    part = request.resource_spans[0]
    shared = part.resource if place == "resource" else part.scope_spans[0].scope
    shared.attributes.add(key="a").value.string_value = "DEEP"
    request.resource_spans.add().CopyFrom(trace_request("other").resource_spans[0])
    request.resource_spans[1].scope_spans[0].spans[0].span_id = b"12345678"
    sent = with_deep_value(request.SerializeToString(), levels)
    try:
        body = ExportTraceServiceRequest.FromString(sent).SerializeToString()
    except DecodeError:
        body = repair(ExportTraceServiceRequest, sent)
    rows, rejected = decode("traces", [body], [1])
    assert "other" in rows["name"].to_pylist()
    if "deep" not in rows["name"].to_pylist():
        assert len(rejected) == 1
        assert f"'deep': its {place} is nested deeper than 100 levels" in rejected[0]


def test_a_bad_text_among_many_records_costs_little() -> None:
    """Each record was looked at: ten CPU-seconds for a megabyte, in which nobody was answered."""
    message = trace_request("BAD", *[""] * 50_000)
    body = message.SerializeToString().replace(b"BAD", b"B\xffD")
    began = time.process_time()
    repaired = repair(ExportTraceServiceRequest, body)
    assert time.process_time() - began < 0.6
    message.resource_spans[0].scope_spans[0].spans[0].name = "B\N{REPLACEMENT CHARACTER}D"
    assert ExportTraceServiceRequest.FromString(repaired) == message


def test_a_deep_value_is_rejected_and_its_neighbours_are_stored(ingester: Ingester) -> None:
    traces = send(ingester.http, spans_with_a_deep_one())
    logs = send(ingester.http, logs_with_a_deep_one(), path="/v1/logs")
    told = ExportTraceServiceResponse.FromString(traces.body).partial_success
    assert (traces.status, told.rejected_spans) == (200, 1)
    told_of_logs = ExportLogsServiceResponse.FromString(logs.body).partial_success
    assert (logs.status, told_of_logs.rejected_log_records) == (200, 1)
    eventually(lambda: column(ingester.store, "SELECT count(*) FROM rejected") == [2])
    assert column(ingester.store, "SELECT name FROM spans ORDER BY 1") == ["after", "before"]
    assert column(ingester.store, "SELECT body FROM logs ORDER BY 1") == ["after", "before"]


def test_why_a_log_record_in_json_was_rejected_can_be_found(ingester: Ingester) -> None:
    good, bad = {"body": {"stringValue": "good"}}, {"eventName": "odd", "traceId": "xyz"}
    request = {"resourceLogs": [{"scopeLogs": [{"logRecords": [bad, good]}]}]}
    reply = send(ingester.http, json.dumps(request).encode(), path="/v1/logs", Content_Type=JSON)
    assert json.loads(reply.body)["partialSuccess"]["rejectedLogRecords"] == "1"
    eventually(lambda: column(ingester.store, "SELECT body FROM logs") == ["good"])
    found = column(ingester.store, "SELECT reason FROM rejected WHERE signal = 'logs'")
    assert found == ["log record 'odd': traceId must be 32 hex digits, got 'xyz'"]
