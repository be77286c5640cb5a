"""A rollout that is longer than the memory limit is derived all the same."""

import json
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh.refresh import refresh_with_more_memory
from otel_lightning.collector.store import open_store

CALLS, AT_ONCE, LIMIT = 160, 20, 32_000_000


def call(number: int) -> bytes:
    """Return a request with one call of one conversation, whose text no other call has."""
    message = ExportTraceServiceRequest()
    span = (
        message.resource_spans.add()
        .scope_spans.add()
        .spans.add(
            name="chat",
            trace_id=(number + 1).to_bytes(16),
            span_id=(number + 1).to_bytes(8),
            start_time_unix_nano=number + 1,
        )
    )
    text = " ".join(str(number * 100_000 + word) for word in range(30_000))
    messages = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
    facts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": "long",
        "gen_ai.input.messages": json.dumps(messages),
    }
    for key, value in facts.items():
        span.attributes.add(key=key).value.string_value = value
    return message.SerializeToString()


@pytest.mark.slow
def test_rollout_that_does_not_fit_the_memory_limit_is_derived_with_more_for_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        for first in range(0, CALLS, AT_ONCE):
            some = [Request("traces", 1, call(n)) for n in range(first, first + AT_ONCE)]
            load(store, some, dead_letters=tmp_path)
        store.checkpoint()
        store.limit(LIMIT)
        refresh_with_more_memory(store)
        counted = store.query("SELECT count(*) AS n FROM llm_calls")["n"][0].as_py()
    assert counted == CALLS
    assert "does not fit" in caplog.text
