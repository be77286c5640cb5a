"""Requests that our encoder joins from bytes equal those of OpenTelemetry's own."""

from contextlib import ExitStack
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, StatusCode

from otel_lightning.instrumentation import encoding, genai


def test_spans_of_several_scopes_are_sent_as_opentelemetry_sends_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "desk"}, "https://schema"))
    spans: list[Any] = []
    for name in ("one", "two", "one"):
        tracer = provider.get_tracer(name, "1.0", "https://schema/of/scope", {"kind": name})
        with tracer.start_as_current_span(
            "call", links=[Link(spans[0].context)] if spans else None
        ):
            span: Any = trace.get_current_span()
            span.add_event("said", {"ids": tuple(range(20)), "text": "é"})
            span.set_attributes({"a": 1, "long": "x" * 100, "flags": [True] * 9, "b": b"\x00"})
            span.set_attributes({"zero": 0, "less": -3, "no": False, "empty": "", "half": 0.5})
            genai.write_late(span, {"": "no key", "broken": "\ud800", "large": 2**63, "one": (1,)})
            genai.write_late(span, {"ids": tuple(range(300)), "p": (-0.5,) * 30, "z": (2**70,) * 9})
            span.set_status(StatusCode.ERROR, "failed")
        spans.append(span)
    spans.append(TracerProvider().get_tracer("plain").start_span("empty"))
    spans[-1].end()
    theirs = encode_spans(spans)
    with ExitStack() as undo:
        encoding.encode_quickly(undo)
        ours = encode_spans(spans)
    assert ours == theirs
    assert ours.SerializeToString() == theirs.SerializeToString()
    assert len(theirs.resource_spans) == 2
    assert "stepped aside" not in caplog.text


def test_half_of_a_surrogate_pair_in_a_name_or_an_error_affects_no_other_span() -> None:
    provider = TracerProvider()
    spans: list[Any] = []
    for name in ("execute_tool \ud800", "fine"):
        spans.append(provider.get_tracer("agent").start_span(name))
        spans[-1].add_event("\udcff")
        spans[-1].set_status(StatusCode.ERROR, "no file '\udcff'")
        spans[-1].end()
    with ExitStack() as undo:
        encoding.encode_quickly(undo)
        sent = encode_spans(spans)
    found = sent.resource_spans[0].scope_spans[0].spans
    assert [span.name for span in found] == ["execute_tool ?", "fine"]
    assert {span.status.message for span in found} == {"no file '?'"}
