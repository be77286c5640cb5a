"""Our encoder of attributes gives the same bytes as OpenTelemetry's own."""

import importlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from otel_lightning.instrumentation import encoding, genai

ENCODER = importlib.import_module("opentelemetry.exporter.otlp.proto.common._internal")
VALUES = st.one_of(
    st.text(max_size=80),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.lists(st.integers(0, 2**63 - 1), max_size=30).map(tuple),
    st.lists(st.integers(-5, 5), max_size=30).map(tuple),
    st.lists(st.floats(allow_nan=False), max_size=30).map(tuple),
    st.lists(st.one_of(st.booleans(), st.integers(0, 1)), max_size=12).map(tuple),
    st.lists(st.text(max_size=5), max_size=12).map(tuple),
)


@pytest.fixture(scope="module")
def quick() -> Iterator[Any]:
    original = ENCODER._encode_key_value
    with ExitStack() as undo:
        encoding.encode_quickly(undo)
        yield original
    assert ENCODER._encode_key_value is original


@given(values=st.lists(VALUES, max_size=5))
def test_any_value_is_encoded_as_opentelemetry_encodes_it(quick: Any, values: list[Any]) -> None:
    for value in values:
        ours, theirs = ENCODER._encode_key_value("a key", value), quick("a key", value)
        assert ours.SerializeToString() == theirs.SerializeToString()


def test_equal_values_of_different_types_do_not_share_a_cached_message(quick: Any) -> None:
    for value in (True, 1, 1.0, "1", False, 0, "", "True"):
        assert ENCODER._encode_key_value("k", value) == quick("k", value)


def test_a_span_that_is_exported_twice_has_the_same_bytes_both_times(quick: Any) -> None:
    del quick
    span = TracerProvider().get_tracer("t").start_span("s", attributes={"gen_ai.system": "openai"})
    genai.write_late(span, {"lightning.prompt_token_ids": tuple(range(300))})
    assert isinstance(span, ReadableSpan)
    first, second = (encode_spans([span]).SerializeToString() for _ in range(2))
    assert first == second
