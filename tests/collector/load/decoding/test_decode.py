"""Decoding: what goes in comes out, against protobuf's own classes as the second implementation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from support.captures import is_text_of
from support.examples import examples

from otel_lightning.collector.load.decoding.decode import decode
from otel_lightning.collector.otlp.signals import Signal

texts = st.text(st.characters(codec="utf-8"), max_size=20)
scalars = st.one_of(
    st.builds(AnyValue, string_value=texts),
    st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, double_value=st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(AnyValue, bytes_value=st.binary(max_size=9)),
    st.just(AnyValue()),
)


@st.composite
def values(draw: st.DrawFn) -> AnyValue:
    if draw(st.booleans()):
        return draw(scalars)
    nested = AnyValue()
    if draw(st.booleans()):
        nested.array_value.values.extend(draw(st.lists(scalars, max_size=3)))
    else:
        for key, value in draw(st.dictionaries(texts, scalars, max_size=3)).items():
            nested.kvlist_value.values.add(key=key, value=value)
    return nested


ids = st.binary(min_size=16, max_size=16).filter(any)
times = st.integers(0, 2**63 - 1)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    span = Span(
        trace_id=draw(ids),
        span_id=draw(ids)[:8],
        name=draw(texts),
        kind=draw(st.sampled_from(range(6))),  # type: ignore[arg-type]
        start_time_unix_nano=draw(times),
        end_time_unix_nano=draw(times),
    )
    if not any(span.span_id):
        span.span_id = b"8" * 8
    for key, value in draw(st.lists(st.tuples(texts, values()), max_size=4)):
        span.attributes.add(key=key, value=value)
    for name, time in draw(st.lists(st.tuples(texts, times), max_size=2)):
        event = span.events.add(name=name, time_unix_nano=time)
        event.attributes.add(key="k", value=draw(values()))
    return span


def nanoseconds(time: Any) -> int:
    return time.value if time is not None else 0


@examples(200)
@given(st.lists(spans(), max_size=5), texts)
def test_every_span_comes_out_as_it_went_in(sent: list[Span], service: str) -> None:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = service
    resource.scope_spans.add().spans.extend(sent)
    rows = decode("traces", [request.SerializeToString()], [1]).rows.to_pylist()
    assert len(rows) == len(sent)
    for row, span in zip(rows, sent, strict=True):
        assert (row["trace_id"], row["span_id"]) == (span.trace_id.hex(), span.span_id.hex())
        assert (row["name"], row["service_name"]) == (span.name, service)
        assert nanoseconds(row["start_time"]) == span.start_time_unix_nano
        stored = dict(row["attributes"])
        last = {kv.key: kv.value for kv in span.attributes}
        assert stored.keys() == last.keys()
        assert all(is_text_of(stored[key], value) for key, value in last.items())
        for event, sent_event in zip(row["events"], span.events, strict=True):
            assert event["name"] == sent_event.name
            assert is_text_of(dict(event["attributes"])["k"], sent_event.attributes[0].value)


@examples(50)
@given(st.lists(values(), min_size=1, max_size=5))
def test_every_log_body_comes_out_as_it_went_in(sent: list[AnyValue]) -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for value in sent:
        records.add(body=value)
    rows = decode("logs", [request.SerializeToString()], [1]).rows.to_pylist()
    assert all(is_text_of(row["body"], value) for row, value in zip(rows, sent, strict=True))


@pytest.mark.parametrize("of", ["resource", "scope"])
@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_what_records_share_is_not_copied_for_each(signal: Signal, of: str) -> None:
    """Copies would need more bytes than an Arrow array of texts can have."""
    count, shared = 2_100, "x" * (1 << 20)
    assert count * len(shared) > 2**31
    request = ExportTraceServiceRequest() if signal == "traces" else ExportLogsServiceRequest()
    resource = getattr(request, f"resource_{'spans' if signal == 'traces' else 'logs'}").add()
    scope = getattr(resource, f"scope_{'spans' if signal == 'traces' else 'logs'}").add()
    if of == "resource":
        resource.resource.attributes.add(key="service.name").value.string_value = shared
    else:
        scope.scope.name = shared
    for number in range(1, count + 1):
        if signal == "traces":
            scope.spans.add(trace_id=number.to_bytes(16), span_id=number.to_bytes(8))
        else:
            scope.log_records.add(time_unix_nano=number)
    rows = decode(signal, [request.SerializeToString()], [1]).rows
    assert len(rows) == count
    name = "service_name" if of == "resource" else "scope_name"
    assert rows[name][count - 1].as_py() == shared


def test_equal_log_records_of_one_request_stay_two_and_of_two_requests_are_one() -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for _ in range(2):
        records.add(event_name="e", time_unix_nano=5)
    body = request.SerializeToString()
    log_ids = decode("logs", [body, body], [1, 2]).rows["log_id"].to_pylist()
    assert log_ids[:2] == log_ids[2:]
    assert log_ids[0] != log_ids[1]


def test_invalid_utf_8_loses_only_the_invalid_characters() -> None:
    request = ExportTraceServiceRequest()
    spans_ = request.resource_spans.add().scope_spans.add().spans
    for name in ("BADNAME", "good"):
        spans_.add(name=name, trace_id=b"t" * 16, span_id=b"s" * 8)
    body = request.SerializeToString().replace(b"BADNAME", b"BAD\xff\xfeME")
    names = decode("traces", [body], [1]).rows["name"].to_pylist()
    assert names == ["BAD\ufffd\ufffdME", "good"]


def test_the_last_of_equal_keys_counts() -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id = b"t" * 16, b"s" * 8
    span.attributes.add(key="same").value.int_value = 1
    span.attributes.add(key="other").value.int_value = 2
    span.attributes.add(key="same").value.string_value = "two"
    row = decode("traces", [request.SerializeToString()], [1]).rows.to_pylist()[0]
    assert row["attributes"] == [("other", "2"), ("same", "two")]
