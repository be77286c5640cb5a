"""Every answer that the OTLP specification asks for, to requests good, odd and hostile."""

import base64
import gzip
import http.client
import json
import os
import re
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache, partial
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
import zstandard
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.otlp_client import JSON, PROTOBUF, Reply, metric, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, eventually, start

from otel_lightning.collector.receive.accept import Receiver
from otel_lightning.collector.receive.access import AccessGuard
from otel_lightning.collector.receive.grpc import IncompleteCalls
from otel_lightning.collector.receive.grpc import server as grpc_server
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import Store, open_store

MIB = 1024 * 1024
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
VALID_TRACE, VALID_SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingester]:
    """One ingester for all requests: none of them may harm the next."""
    ingester = start(tmp_path_factory.mktemp("otlp") / "traces.duckdb")
    yield ingester
    attached(ingester.store).close()
    assert ingester.stop() == 0


@cache
def attached(store: Path) -> Store:
    return open_store(store, read_only=True)


def column(store: Path, sql: str) -> list[Any]:
    return [next(iter(row.values())) for row in attached(store).query(sql).to_pylist()]


@pytest.fixture
def to(running: Ingester) -> str:
    """Where to send."""
    return running.http


def one(name: str, edit: Callable[[Any], None] = lambda _: None) -> bytes:
    request = trace_request(name)
    edit(request.resource_spans[0].scope_spans[0].spans[0])
    return request.SerializeToString()


def attribute(key: str, **value: Any) -> Callable[[Span], None]:
    return lambda span: span.attributes.add(key=key).value.MergeFrom(AnyValue(**value))


def json_span(span_name: str, **fields: Any) -> dict[str, Any]:
    ids = {"traceId": os.urandom(16).hex(), "spanId": os.urandom(8).hex()}
    return {**ids, "name": span_name, "kind": 2, "startTimeUnixNano": "5", **fields}


def json_request(*spans: Any) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}).encode()


def json_logs(*records: Any) -> bytes:
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": list(records)}]}]}).encode()


def is_full_success(reply: Reply) -> bool:
    if reply.kind == JSON:
        return (reply.status, reply.body) == (200, b"{}")
    return (reply.status, reply.kind, reply.body) == (200, PROTOBUF, b"")


def rejected(reply: Reply) -> tuple[int, str]:
    assert reply.status == 200
    partial = ExportTraceServiceResponse.FromString(reply.body).partial_success
    return partial.rejected_spans, partial.error_message


def stored(ingester: Ingester, name: str) -> list[Any]:
    return column(ingester.store, f"SELECT name FROM spans WHERE name = '{name}'")


# What is valid, in every encoding that the specification names.


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("", bytes),
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("gzip", lambda body: gzip.compress(body[:9]) + gzip.compress(body[9:])),
    ],
)
@pytest.mark.parametrize("form", [PROTOBUF, JSON, f"{JSON}; charset=utf-8"])
def test_every_form_and_compression_is_a_full_success(
    form: str, encoding: str, compress: Callable[[bytes], bytes], to: str
) -> None:
    body = one("valid") if form == PROTOBUF else json_request(json_span("valid"))
    reply = send(to, compress(body), Content_Type=form, Content_Encoding=encoding)
    assert is_full_success(reply)
    assert reply.kind == form.split(";", maxsplit=1)[0]


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs", "/v1/metrics"])
@pytest.mark.parametrize(("form", "body"), [(PROTOBUF, b""), (JSON, b"{}")])
def test_an_empty_request_is_a_full_success(path: str, form: str, body: bytes, to: str) -> None:
    assert is_full_success(send(to, body, path=path, Content_Type=form))


ODD_BUT_VALID = {
    "unknown_field": lambda: one("unknown_field") + b"\xfa\x07\x03abc",
    "end_before_start": lambda: one(
        "end_before_start",
        lambda span: span.MergeFrom(
            Span(start_time_unix_nano=2 * 10**18, end_time_unix_nano=10**18)
        ),
    ),
    "times_zero": lambda: one("times_zero", lambda span: span.ClearField("start_time_unix_nano")),
    "time_beyond_63_bits": lambda: one(
        "time_beyond_63_bits", lambda span: span.MergeFrom(Span(end_time_unix_nano=2**64 - 1))
    ),
    "nul": lambda: one("nul", attribute("k\0", string_value="a\0b")),
    "not_a_number": lambda: one("not_a_number", attribute("n", double_value=float("nan"))),
    "infinite": lambda: one("infinite", attribute("n", double_value=float("-inf"))),
    "largest_integer": lambda: one("largest_integer", attribute("n", int_value=2**63 - 1)),
    "bytes": lambda: one("bytes", attribute("b", bytes_value=bytes(range(256)))),
    "empty_key": lambda: one("empty_key", attribute("", int_value=1)),
    "no_value": lambda: one("no_value", attribute("unset")),
    "unknown_kind": lambda: one("unknown_kind", lambda span: span.MergeFrom(Span(kind=99))),  # type: ignore[arg-type]
    "key_twice": lambda: one(
        "key_twice",
        lambda span: [attribute("same", int_value=n)(span) for n in (1, 2)] and None,
    ),
    "dotted_keys": lambda: one(
        "dotted_keys",
        lambda span: [attribute(k, int_value=1)(span) for k in ("a", "a.b", "a.b.c")] and None,
    ),
    "many_attributes": lambda: one(
        "many_attributes",
        lambda span: [attribute(f"k{n}", int_value=n)(span) for n in range(2000)] and None,
    ),
    "nested": lambda: one("nested", attribute("deep", **nested(30))),
}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"int_value": 1}
    for _ in range(levels):
        value = {"kvlist_value": {"values": [{"key": "k", "value": value}]}}
    return value


@pytest.mark.parametrize("name", ODD_BUT_VALID)
def test_what_is_odd_but_valid_is_stored(name: str, running: Ingester) -> None:
    assert is_full_success(send(running.http, ODD_BUT_VALID[name]()))
    eventually(lambda: stored(running, name) == [name])


def test_a_span_sent_again_is_a_success_and_stored_once(running: Ingester) -> None:
    again = one("again")
    assert is_full_success(send(running.http, again))
    assert is_full_success(send(running.http, again))
    send(running.http, one("after again"))
    eventually(lambda: bool(stored(running, "after again")))
    assert stored(running, "again") == ["again"]


def test_text_that_is_not_utf_8_affects_neither_its_span_nor_its_neighbours(
    running: Ingester,
) -> None:
    body = trace_request("whole name", "cut nameXX").SerializeToString()
    assert is_full_success(send(running.http, body.replace(b"nameXX", b"name\xe2\x82")))
    eventually(lambda: stored(running, "cut name\N{REPLACEMENT CHARACTER}") != [])
    assert stored(running, "whole name") == ["whole name"]


# JSON's own rules.


def test_json_ids_are_hex_of_either_case(running: Ingester) -> None:
    span = json_span("upper case", traceId=VALID_TRACE.upper(), spanId=VALID_SPAN.upper())
    assert is_full_success(send(running.http, json_request(span), Content_Type=JSON))
    sql = "SELECT concat_ws(' ', trace_id, span_id, kind) FROM spans WHERE name = 'upper case'"
    eventually(lambda: column(running.store, sql) == [f"{VALID_TRACE} {VALID_SPAN} SERVER"])


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("padded", base64.standard_b64encode),
        ("url-safe", base64.urlsafe_b64encode),
        ("unpadded", lambda ids: base64.standard_b64encode(ids).rstrip(b"=")),
    ],
)
def test_ids_and_enums_as_protobufs_own_json_has_them_are_read(
    name: str, written: Callable[[bytes], bytes], running: Ingester
) -> None:
    """Raindrop's SDK and others send this JSON, though OTLP has hex and numbers."""
    trace, parent = bytes.fromhex(VALID_TRACE), b"\xef" * 8
    own = b"\xfb\xff" * 3 + name.encode()[:2]
    fields = {"traceId": trace, "spanId": own, "parentSpanId": parent}
    ids = {field: written(value).decode() for field, value in fields.items()}
    link = {"traceId": ids["traceId"], "spanId": ids["spanId"]}
    kind = {"kind": "SPAN_KIND_SERVER", "status": {"code": "STATUS_CODE_ERROR"}}
    span = json_span(name, **ids, **kind, links=[link])
    assert is_full_success(send(running.http, json_request(span), Content_Type=JSON))
    columns = "trace_id, span_id, parent_span_id, kind, status_code, links[1].span_id"
    sql = f"SELECT concat_ws(' ', {columns}) FROM spans WHERE name = '{name}'"
    expected = f"{VALID_TRACE} {own.hex()} {parent.hex()} SERVER ERROR {own.hex()}"
    eventually(lambda: column(running.store, sql) == [expected])


def test_json_fields_that_are_unknown_or_null_are_ignored(running: Ingester) -> None:
    span = json_span("unknown json", new={"x": [1]}, status=None, attributes=None)
    assert is_full_success(send(running.http, json_request(span), Content_Type=JSON))
    eventually(lambda: stored(running, "unknown json") != [])


def test_half_a_surrogate_pair_in_json_loses_nothing(running: Ingester) -> None:
    body = json_request(json_span("cut \ud83d"), json_span("beside the cut"))
    assert is_full_success(send(running.http, body, Content_Type=JSON))
    eventually(lambda: stored(running, "cut ?") != [])
    assert stored(running, "beside the cut") != []


@pytest.mark.parametrize(
    ("name", "wrong", "reason"),
    [
        ("enum name", {"kind": "SPAN_KIND_NONE"}, "kind must be a number"),
        ("short base64", {"traceId": "W47/95gDgQPSabYzgT/G"}, "traceId must be 32 hex digits"),
        ("number id", {"spanId": 7}, "spanId must be 16 hex digits"),
        ("word time", {"startTimeUnixNano": "noon"}, "startTimeUnixNano must be an integer"),
        ("big time", {"startTimeUnixNano": str(2**64)}, "Value out of range"),
        ("list name", {"name": ["x"]}, "name must be a string"),
        ("text for list", {"attributes": "a=b"}, "expected a JSON array"),
        ("text for object", {"attributes": ["a=b"]}, "expected a JSON object"),
    ],
)
def test_a_json_span_against_the_rules_affects_no_neighbour(
    name: str, wrong: dict[str, Any], reason: str, running: Ingester
) -> None:
    body = json_request(
        json_span(f"before {name}"), json_span(name, **wrong), json_span(name[::-1])
    )
    reply = send(running.http, body, Content_Type=JSON)
    partial = json.loads(reply.body)["partialSuccess"]
    assert (reply.status, partial["rejectedSpans"]) == (200, "1")
    assert reason in partial["errorMessage"]
    eventually(lambda: stored(running, name[::-1]) != [])
    assert stored(running, f"before {name}") != []
    assert stored(running, name) == []
    escaped = reason.replace("'", "''")
    assert column(running.store, f"SELECT reason FROM rejected WHERE contains(reason, '{escaped}')")


def test_a_json_log_record_against_the_rules_affects_no_neighbour(running: Ingester) -> None:
    good = {"body": {"stringValue": "good log"}, "severityNumber": 9, "timeUnixNano": "1"}
    body = json_logs({"severityNumber": "SEVERITY_NUMBER_LOUD"}, good)
    reply = send(running.http, body, path="/v1/logs", Content_Type=JSON)
    partial = json.loads(reply.body)["partialSuccess"]
    assert partial["rejectedLogRecords"] == "1"
    assert "severityNumber must be a number" in partial["errorMessage"]
    sql = "SELECT severity FROM logs WHERE body = 'good log'"
    eventually(lambda: column(running.store, sql) == ["INFO"])


# Identifiers.


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("short trace id", {"trace_id": b"\1" * 5}),
        ("zero trace id", {"trace_id": bytes(16)}),
        ("empty trace id", {"trace_id": b""}),
        ("short span id", {"span_id": b"\1" * 3}),
        ("zero span id", {"span_id": bytes(8)}),
        ("empty span id", {"span_id": b""}),
        ("long span id", {"span_id": b"\1" * 9}),
    ],
)
def test_a_span_without_valid_ids_is_rejected_alone(
    name: str, ids: dict[str, bytes], running: Ingester
) -> None:
    request = trace_request(f"beside {name}")
    request.MergeFrom(trace_request(name, **ids))
    count, message = rejected(send(running.http, request.SerializeToString()))
    assert count == 1
    assert "trace_id must be 16 bytes" in message
    eventually(lambda: stored(running, f"beside {name}") != [])
    assert column(running.store, f"SELECT reason FROM rejected WHERE contains(reason, '{name}')")


# What is not OTLP.


NOT_OTLP: dict[str, tuple[bytes, dict[str, str], int]] = {
    "random bytes": (bytes(range(255, 0, -1)), {}, 400),
    "cut off": (one("cut off")[:-7], {}, 400),
    "json sent as protobuf": (json_request(json_span("x")), {}, 400),
    "protobuf sent as json": (one("x"), {"Content_Type": JSON}, 400),
    "json cut off": (b'{"resourceSpans": [', {"Content_Type": JSON}, 400),
    "a json array": (b"[1,2]", {"Content_Type": JSON}, 400),
    "json nested without end": (b"[" * 100_000, {"Content_Type": JSON}, 400),
    "json of another shape": (b'{"resourceSpans": 7}', {"Content_Type": JSON}, 400),
    "text": (one("x"), {"Content_Type": "text/plain"}, 415),
    "no content type": (one("x"), {"Content_Type": ""}, 415),
    "nearly the content type": (one("x"), {"Content_Type": "application/protobuf"}, 415),
    "not gzip": (b"not gzip at all", {"Content_Encoding": "gzip"}, 400),
    "gzip cut off": (gzip.compress(one("x"))[:-9], {"Content_Encoding": "gzip"}, 400),
    "not deflate": (b"not deflate", {"Content_Encoding": "deflate"}, 400),
    "not zstd": (one("x"), {"Content_Encoding": "zstd"}, 400),
    "unknown encoding": (one("x"), {"Content_Encoding": "foo"}, 415),
}


@pytest.mark.parametrize("name", NOT_OTLP)
def test_what_is_not_otlp_is_refused_for_good_and_says_why(name: str, to: str) -> None:
    body, headers, status = NOT_OTLP[name]
    reply = send(to, body, **headers)
    assert reply.status == status
    assert "retry-after" not in reply.headers
    if headers.get("Content_Type", PROTOBUF) != PROTOBUF:
        assert reply.kind == JSON
        assert json.loads(reply.body)["message"]
    else:
        assert (reply.kind, bool(reply.reason())) == (PROTOBUF, True)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_post_is_taken(method: str, to: str) -> None:
    reply = send(to, one("x") if method == "PUT" else b"", method=method)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/v1", "/v1/traces/", "/v1/profiles"])
def test_other_paths_are_not_found_and_the_known_ones_are_named(path: str, to: str) -> None:
    reply = send(to, path=path)
    assert reply.status == 404
    assert "/v1/traces" in reply.reason()


@pytest.mark.parametrize("kind", ["", "application/x-www-form-urlencoded"])
def test_who_speaks_no_protobuf_is_refused_in_json(kind: str, to: str) -> None:
    for path, method in (("/feedback", "POST"), ("/v1/traces", "GET"), ("/v1/traces", "POST")):
        reply = send(to, path=path, method=method, Content_Type=kind)
        assert reply.kind == JSON
        assert json.loads(reply.body)["message"]


def send_chunks(to: str, chunks: list[bytes], rest: bytes) -> int:
    """Send a body in chunked encoding, then the rest as it is; return the status of the answer."""
    with closing(http.client.HTTPConnection(to, timeout=LIMIT_S)) as connection:
        connection.putrequest("POST", "/v1/traces")
        connection.putheader("Content-Type", PROTOBUF)
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        for chunk in chunks:
            connection.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        connection.send(rest)
        return connection.getresponse().status


def test_a_body_that_breaks_off_within_its_chunks_is_not_acknowledged(running: Ingester) -> None:
    cut = trace_request("cut_chunks").SerializeToString()  # a valid request by itself
    assert send_chunks(running.http, [cut], b"zz\r\n") == 400
    assert send_chunks(running.http, [cut[:9], cut[9:]], b"\x00") == 400
    whole = trace_request("whole_chunks").SerializeToString()
    assert send_chunks(running.http, [whole[:9], whole[9:]], b"0\r\n\r\n") == 200
    assert send_chunks(running.http, [], b"0\r\n\r\n") == 200  # an empty request is valid
    names = "SELECT name FROM spans WHERE name LIKE '%_chunks'"
    eventually(lambda: column(running.store, names) == ["whole_chunks"])


def send_raw(to: str, version: str, body: bytes, *headers: str) -> bytes:
    """Send a request as it is, and no more; return the whole answer."""
    host, _, port = to.rpartition(":")
    lines = [f"POST /v1/traces HTTP/{version}", f"Host: {to}", f"Content-Type: {PROTOBUF}"]
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.sendall("\r\n".join([*lines, *headers, "", ""]).encode() + body)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(partial(connection.recv, 4096), b""))


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_body_without_a_length_is_not_acknowledged(version: str, running: Ingester) -> None:
    """HTTP/1 knows no body without it: the request would be acknowledged as an empty one."""
    answer = send_raw(running.http, version, one("without length"))
    assert answer.startswith(f"HTTP/{version} 411 ".encode())
    assert b"neither Content-Length nor Transfer-Encoding" in answer
    assert metric(running.http, 'lightning_refused_requests_total{status="411"') >= 1


def test_a_large_body_that_breaks_off_is_not_acknowledged(running: Ingester) -> None:
    cut = blob(2 * MIB)  # a valid request by itself
    answer = send_raw(running.http, "1.1", cut, f"Content-Length: {len(cut) + 9}")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert f"broke off after {len(cut)} of {len(cut) + 9} bytes".encode() in answer


def test_a_zstd_body_that_is_cut_off_between_two_blocks_is_not_acknowledged(to: str) -> None:
    first = one("cut", attribute("random", string_value=os.urandom(99_000).hex()))
    stream = zstandard.ZstdCompressor().compressobj()
    cut = stream.compress(first) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    reply = send(to, cut, Content_Encoding="zstd")
    assert (reply.status, "it is cut off" in reply.reason()) == (400, True)
    assert is_full_success(send(to, cut + stream.flush(), Content_Encoding="zstd"))
    frames = [zstandard.compress(part) for part in (first[:9], b"", first[9:])]
    assert is_full_success(send(to, b"".join(frames), Content_Encoding="zstd"))


# Size.


def blob(size: int) -> bytes:
    return one("blob", attribute("blob", string_value="x" * size))


def test_a_body_of_ten_megabytes_is_taken(to: str) -> None:
    assert is_full_success(send(to, blob(10 * MIB)))


TOO_LARGE: dict[str, Callable[[], tuple[bytes, str]]] = {
    "100 MB": lambda: (blob(100 * MIB), ""),
    "gzip of 300 MB": lambda: (gzip.compress(blob(300 * MIB), 1), "gzip"),
    "gzip bomb": lambda: (zeros(1024, 31), "gzip"),
    "deflate bomb": lambda: (zeros(200, 15), "deflate"),
    "gzip bomb that lies": lambda: (zeros(200, 31)[:-4] + b"\0\0\0\1", "gzip"),
    "zstd bomb": lambda: (zstandard.ZstdCompressor().compress(bytes(200 * MIB)), "zstd"),
}


def zeros(megabytes: int, window: int) -> bytes:
    compressor = zlib.compressobj(1, zlib.DEFLATED, window)
    parts = [compressor.compress(bytes(MIB)) for _ in range(megabytes)]
    return b"".join([*parts, compressor.flush()])


@pytest.mark.slow
@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_is_too_large_is_refused_and_takes_little_memory(name: str, running: Ingester) -> None:
    body, encoding = TOO_LARGE[name]()
    before = peak_memory(running, reset=True)
    reply = send(running.http, body, Content_Encoding=encoding)
    assert reply.status == 413
    assert "--max-body" in reply.reason()
    assert peak_memory(running) - before < 150 * MIB
    assert is_full_success(send(running.http, b"")), "it goes on receiving"


def peak_memory(ingester: Ingester, *, reset: bool = False) -> int:
    """The most memory that it had since the last reset."""
    if reset:
        Path(f"/proc/{ingester.process.pid}/clear_refs").write_text("5")
    status = Path(f"/proc/{ingester.process.pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match
    return int(match[1]) * 1024


def test_the_limit_can_be_set(tmp_path: Path) -> None:
    ingester = start(tmp_path / "traces.duckdb", "--max-body", "1")
    try:
        assert send(ingester.http, blob(MIB)).status == 413
        assert send(ingester.http, gzip.compress(blob(MIB)), Content_Encoding="gzip").status == 413
        assert is_full_success(send(ingester.http, blob(MIB // 2)))
    finally:
        ingester.kill()


# gRPC.


def export(ingester: Ingester, body: bytes, service: str = "trace.v1.TraceService") -> Any:
    limit = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(ingester.grpc, options=limit) as channel:
        path = f"/opentelemetry.proto.collector.{service}/Export"
        return channel.unary_unary(path)(body, timeout=LIMIT_S, compression=grpc.Compression.Gzip)


def test_grpc_answers_as_http_does(running: Ingester) -> None:
    assert export(running, one("over grpc")) == b""
    partial = ExportTraceServiceResponse.FromString(
        export(running, trace_request("bad", trace_id=b"").SerializeToString())
    )
    assert partial.partial_success.rejected_spans == 1
    assert ExportLogsServiceResponse.FromString(export(running, b"", "logs.v1.LogsService"))
    eventually(lambda: stored(running, "over grpc") != [])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (lambda: b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
        (lambda: blob(70 * MIB), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_grpc_refuses_for_good_without_retry_info(
    body: Callable[[], bytes], code: grpc.StatusCode, running: Ingester
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        export(running, body())
    assert refused.value.code() is code  # type: ignore[attr-defined]
    assert "grpc-status-details-bin" not in dict(refused.value.trailing_metadata())  # type: ignore[attr-defined]


def test_a_message_over_the_limit_is_told_to_both_sides(running: Ingester) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        export(running, blob(70 * MIB))
    assert "--max-body" in refused.value.details()  # type: ignore[attr-defined]
    counter = 'lightning_refused_requests_total{status="413",transport="grpc"}'
    assert metric(running.http, counter) >= 1


def test_senders_whose_message_never_comes_stop_no_other_one(running: Ingester) -> None:
    with ExitStack() as stack:
        ended = Event()
        stack.callback(ended.set)
        slow = stack.enter_context(grpc.insecure_channel(running.grpc)).stream_unary(TRACES)
        calls = [slow.future(never(ended)) for _ in range(40)]
        assert not any(call.done() for call in calls)
        assert export(running, one("beside slow senders")) == b""


def never(ended: Event) -> Iterator[bytes]:
    ended.wait(LIMIT_S)
    yield from ()


@pytest.fixture
def grpc_receiver(tmp_path: Path) -> Iterator[Receiver]:
    """The receiver of a gRPC server, which `serving_grpc` starts."""
    with closing(Spool(tmp_path / "spool")) as spool:
        yield Receiver(spool, AccessGuard(), dict, max_body=MIB)


@contextmanager
def serving_grpc(receiver: Receiver, incomplete: IncompleteCalls) -> Iterator[grpc.Channel]:
    """Serve gRPC in this process, and connect to it."""
    address = f"unix:{receiver.spool.folder.parent}/grpc"
    server = grpc_server(receiver, address, incomplete)
    server.start()
    incomplete.start()
    try:
        with grpc.insecure_channel(address) as channel:
            yield channel
    finally:
        incomplete.stop()
        server.stop(0).wait(LIMIT_S)


def over_grpc(status: int) -> dict[Any, int]:
    return {(("status", str(status)), ("transport", "grpc")): 1}


def test_a_message_that_does_not_come_in_time_is_refused_and_counted(
    grpc_receiver: Receiver,
) -> None:
    counts, ended = grpc_receiver.counts, Event()
    with serving_grpc(grpc_receiver, IncompleteCalls(seconds=0.2)) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.stream_unary(TRACES)(never(ended), timeout=LIMIT_S)
        # This code tells an exporter to send again.
        assert refused.value.code() is grpc.StatusCode.CANCELLED  # type: ignore[attr-defined]
        eventually(lambda: counts["refused_requests"] == over_grpc(408))
        ended.set()
    assert not counts["unfinished_requests"]


def test_many_senders_whose_message_never_comes_stop_nobody_for_long(
    grpc_receiver: Receiver,
) -> None:
    """They have all threads, and as many calls again wait for one before ours."""
    ended, threads = Event(), 8
    incomplete = IncompleteCalls(LIMIT_S, threads, crowded_seconds=0.1)
    with serving_grpc(grpc_receiver, incomplete) as channel:
        hung = [channel.stream_unary(TRACES).future(never(ended)) for _ in range(2 * threads)]
        eventually(incomplete.threads.are_wanted)
        body = one("beside hung senders")
        assert channel.unary_unary(TRACES)(body, timeout=LIMIT_S / 2) == b""
        assert any(call.done() for call in hung)
        ended.set()


def test_a_call_that_its_sender_ends_counts_as_unfinished(grpc_receiver: Receiver) -> None:
    counts, ended = grpc_receiver.counts, Event()
    incomplete = IncompleteCalls()
    with serving_grpc(grpc_receiver, incomplete) as channel:
        for number in range(1, 21):
            call = channel.stream_unary(TRACES).future(never(ended))
            eventually(lambda: incomplete.count == 1)
            call.cancel()
            counted = {(("transport", "grpc"),): number}
            eventually(lambda counted=counted: counts["unfinished_requests"] == counted)
        ended.set()
    assert not counts["refused_requests"]


def test_a_message_that_grpc_refuses_counts_as_unfinished(grpc_receiver: Receiver) -> None:
    with serving_grpc(grpc_receiver, IncompleteCalls()) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(TRACES)(bytes(3 * MIB), timeout=LIMIT_S)
        code = refused.value.code()  # type: ignore[attr-defined]
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        counts = grpc_receiver.counts
        eventually(lambda: counts["unfinished_requests"] == {(("transport", "grpc"),): 1})
    assert not counts["refused_requests"]


def test_a_call_without_a_message_is_no_otlp(grpc_receiver: Receiver) -> None:
    with serving_grpc(grpc_receiver, IncompleteCalls()) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.stream_unary(TRACES)(iter(()), timeout=LIMIT_S)
        assert refused.value.details() == "the call has no message"  # type: ignore[attr-defined]
    assert grpc_receiver.counts["refused_requests"] == over_grpc(400)


def test_a_call_of_another_service_is_refused_and_counted(grpc_receiver: Receiver) -> None:
    with serving_grpc(grpc_receiver, IncompleteCalls()) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=LIMIT_S)
        code = refused.value.code()  # type: ignore[attr-defined]
        assert code is grpc.StatusCode.UNIMPLEMENTED
        assert "'/grpc.health.v1.Health/Check' is not offered" in refused.value.details()  # type: ignore[attr-defined]
    assert grpc_receiver.counts["refused_requests"] == over_grpc(405)


def test_a_sender_without_a_token_is_refused_before_its_message_is_read(tmp_path: Path) -> None:
    ingester = start(tmp_path / "traces.duckdb", "--token", "secret")
    ended = Event()
    try:
        with grpc.insecure_channel(ingester.grpc) as channel, pytest.raises(grpc.RpcError) as no:
            channel.stream_unary(TRACES)(never(ended), timeout=LIMIT_S)
        assert no.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
    finally:
        ended.set()
        ingester.kill()


# Counting.


def test_metrics_show_what_was_received_and_refused(to: str) -> None:
    # Calls of gRPC that another test gave up may be counted only now.
    requests = 'requests_total{signal="traces",transport="http"}'
    names = (requests, "accepted_records_total", "rejected_records_total")
    before = [metric(to, f"lightning_{name}") for name in names]
    send(to, trace_request("counted", "counted too").SerializeToString())
    send(to, trace_request("bad", trace_id=b"").SerializeToString())
    send(to, b"\xff\xff")
    after = [metric(to, f"lightning_{name}") for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [3, 2, 1]
    assert metric(to, 'lightning_refused_requests_total{status="400",transport="http"}') >= 1


def test_metrics_that_are_dropped_are_counted(to: str) -> None:
    body = (
        b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"gauge":{"dataPoints":[{},{}]}}]}]}]}'
    )
    before = metric(to, "lightning_dropped_metric_points_total")
    reply = send(to, body, path="/v1/metrics", Content_Type=JSON)
    assert json.loads(reply.body)["partialSuccess"]["rejectedDataPoints"] == "2"
    assert metric(to, "lightning_dropped_metric_points_total") == before + 2


@pytest.mark.slow
def test_the_backlog_is_empty_once_all_is_stored(to: str) -> None:
    send(to, one("last"))
    eventually(lambda: metric(to, "lightning_spool_backlog_bytes") == 0)
    eventually(lambda: metric(to, "lightning_loader_lag_seconds") == 0)  # deriving counts too
