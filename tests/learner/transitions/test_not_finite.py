"""A reward that is not finite, as a sender writes it, is refused by its name."""

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.otlp.json_encoding import parse_json
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.store import open_store
from otel_lightning.instrumentation import attributes as names
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.transitions.make import Settings, make_transitions

START = 1_800_000_000 * 10**9
RESULT = names.EVALUATION_RESULT


def attribute(key: str, kind: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": {kind: value}}


def judged(value: float | str, trace: str) -> list[dict[str, Any]]:
    return [
        attribute(names.EVALUATION_NAME, "stringValue", "solved"),
        attribute(names.EVALUATION_SCORE_VALUE, "doubleValue", value),
        attribute(names.ROLLOUT_ID, "stringValue", trace),
    ]


def call(trace: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "q"}]}]',
        "gen_ai.output.messages": (
            '[{"role": "assistant", "finish_reason": "stop", '
            '"parts": [{"type": "text", "content": "a"}]}]'
        ),
        names.ROLLOUT_ID: trace,
    }
    return {
        "traceId": trace,
        "spanId": trace[:16],
        "name": "chat m",
        "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(START + 10**9),
        "attributes": [attribute(key, "stringValue", text) for key, text in said.items()],
        "events": events,
    }


@pytest.mark.parametrize("carrier", ["span", "log"])
@pytest.mark.parametrize(
    ("text", "shown"), [("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf")]
)
def test_a_reward_that_is_not_finite_is_refused_by_name(
    tmp_path: Path, carrier: str, text: str, shown: str
) -> None:
    values: dict[str, float | str] = {"a" * 32: 1.0, "b" * 32: text}
    events = {
        trace: [{"name": RESULT, "timeUnixNano": str(START), "attributes": judged(value, trace)}]
        for trace, value in values.items()
    }
    spans = [call(trace, events[trace] if carrier == "span" else []) for trace in values]
    records = [
        {"eventName": RESULT, "timeUnixNano": str(START + 2 * 10**9), "traceId": trace,
         "attributes": judged(value, trace)}
        for trace, value in values.items()
    ]  # fmt: skip
    traces = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    called = parse_json(ExportTraceServiceRequest, json.dumps(traces).encode())
    bodies = [Request("traces", START, called.SerializeToString())]
    if carrier == "log":
        sent = parse_json(ExportLogsServiceRequest, json.dumps(logs).encode())
        bodies.append(Request("logs", START, sent.SerializeToString()))
    path = tmp_path / "traces.duckdb"
    with open_store(path) as store:
        load(store, bodies, dead_letters=tmp_path)
        while refresh(store):
            pass
    with pytest.raises(DataError, match=f"Reward 'solved' of rollout '{'b' * 32}' is {shown}[.]"):
        make_transitions(str(path), Settings())
