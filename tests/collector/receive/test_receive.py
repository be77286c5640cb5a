"""The running ingester, spoken to by real exporters and by hand."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from support.examples import by_profile
from support.otlp_client import send
from support.requests_by_hand import trace_request
from support.running import Ingester, cli, eventually

from otel_lightning.collector.store import open_store


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
    send(ingester.http, request.SerializeToString())
    eventually(lambda: stored(ingester) == ["chat"])
    with open_store(ingester.store) as store:
        row = store.query(
            "SELECT attributes['gen_ai.request.model'] AS model,"
            " attributes['gen_ai.usage.input_tokens']::BIGINT AS tokens FROM spans"
        ).to_pylist()[0]
    assert row == {"model": "small", "tokens": 7}


def test_sql_answers_while_it_runs_and_after_it_stopped(ingester: Ingester) -> None:
    send(ingester.http, trace_request("a").SerializeToString())
    eventually(lambda: stored(ingester) == ["a"])
    assert ingester.stop() == 0
    assert stored(ingester) == ["a"]
    assert not ingester.store.with_name("traces.duckdb.server").exists()


def test_what_was_acknowledged_survives_kill_9(starter: Callable[[], Ingester]) -> None:
    acknowledged: set[str] = set()
    for _ in range(by_profile(quick=2, thorough=5)):
        running = starter()
        deadline = time.monotonic() + 0.7
        while time.monotonic() < deadline:
            names = [os.urandom(8).hex() for _ in range(50)]
            assert send(running.http, trace_request(*names).SerializeToString()).status == 200
            acknowledged.update(names)
        running.kill()
    last = starter()
    eventually(lambda: len(stored(last)) >= len(acknowledged))
    assert last.stop() == 0
    assert sorted(acknowledged) == stored(last)


def test_memory_and_what_is_derived_at_once_are_settings(starter: Callable[..., Ingester]) -> None:
    ingester = starter("--memory", "300MB", "--spans-at-once", "1")
    send(ingester.http, trace_request(*"abc").SerializeToString())
    eventually(lambda: stored(ingester) == ["a", "b", "c"])
    with open_store(ingester.store) as store:
        limit = store.query("SELECT current_setting('memory_limit') AS it")["it"].to_pylist()
        eventually(lambda: not store.query("FROM stale").num_rows)
    assert limit == ["286.1 MiB"]


def test_too_little_memory_is_wrong_usage() -> None:
    result = cli("serve", "--memory", "1MB")
    assert (result.returncode, "must be at least 256MB" in result.stderr) == (2, True)
