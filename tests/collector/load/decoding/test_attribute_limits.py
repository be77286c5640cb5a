"""What is beyond the limits is cut, and says so."""

import json
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from support.examples import examples
from support.otlp_client import column, send
from support.requests_by_hand import trace_request
from support.running import Ingester, eventually

from otel_lightning.collector.load.decoding.attribute_limits import Limits
from otel_lightning.collector.load.decoding.decode import decode

RECORDS = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.text("xyz\u00e9\U0001f600", max_size=6)),
    min_size=1,
    max_size=4,
)


def stored(records: list[dict[str, str]], limits: Limits) -> pa.Table:
    """Return the rows of spans with these attributes."""
    request = trace_request(*map(str, range(len(records))))
    spans = request.resource_spans[0].scope_spans[0].spans
    for span, record in zip(spans, records, strict=True):
        span.dropped_attributes_count = 3
        for key, value in record.items():
            span.attributes.add(key=key).value.string_value = value
    return decode("traces", [request.SerializeToString()], [1], limits).rows


@examples(50)
@given(
    records=RECORDS,
    length=st.none() | st.integers(1, 5),
    most=st.none() | st.integers(1, 5),
)
def test_each_record_keeps_its_first_attributes_cut_to_length_and_says_what_is_missing(
    records: list[dict[str, str]], length: int | None, most: int | None
) -> None:
    rows = stored(records, Limits(length, most))
    for record, found, dropped in zip(
        records,
        rows["attributes"].to_pylist(),
        rows["dropped_attributes_count"].to_pylist(),
        strict=True,
    ):
        kept = list(record.items())[:most]
        expected = [(key, value[:length]) for key, value in kept]
        if len(record) > len(kept):
            expected.append(("lightning.dropped_attributes", str(len(record) - len(kept))))
        cut = [key for key, value in kept if length and len(value) > length]
        if cut:
            expected.append(("lightning.truncated", json.dumps(cut)))
        assert found == expected
        assert dropped == 3 + len(record) - len(kept)


def test_values_that_are_no_text_count_as_the_text_that_is_stored() -> None:
    request = trace_request("a")
    attributes = request.resource_spans[0].scope_spans[0].spans[0].attributes
    attributes.add(key="unset")
    numbers = attributes.add(key="list").value.array_value.values
    for number in range(9):
        numbers.add().int_value = number
    rows = decode("traces", [request.SerializeToString()], [1], Limits(4)).rows
    assert rows["attributes"].to_pylist() == [
        [("unset", None), ("list", "[0,1"), ("lightning.truncated", '["list"]')]
    ]


def test_events_and_log_records_are_cut_too() -> None:
    request = trace_request("a")
    event = request.resource_spans[0].scope_spans[0].spans[0].events.add(name="e")
    event.attributes.add(key="k").value.string_value = "long text"
    events = decode("traces", [request.SerializeToString()], [1], Limits(4)).rows["events"]
    expected = [("k", "long"), ("lightning.truncated", '["k"]')]
    assert events.to_pylist()[0][0]["attributes"] == expected
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "long text"
    rows = decode("logs", [logs.SerializeToString()], [1], Limits(4)).rows
    assert rows["body"].to_pylist() == ["long"]


@pytest.mark.parametrize(("length", "content"), [("1000", "full"), ("60", "truncated")])
def test_a_model_call_of_which_something_was_cut_is_known_as_truncated(
    length: str, content: str, starter: Callable[..., Ingester]
) -> None:
    ingester = starter("--max-value-length", length, "--max-attributes", "40")
    request = trace_request("chat")
    said = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Say something long, please. " * 5,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "Something.",
        "gen_ai.completion.0.finish_reason": "stop",
    }
    for key, value in said.items():
        span = request.resource_spans[0].scope_spans[0].spans[0]
        span.attributes.add(key=key).value.string_value = value
    send(ingester.http, request.SerializeToString())
    eventually(lambda: column(ingester.store, "SELECT content FROM llm_calls") == [content])
