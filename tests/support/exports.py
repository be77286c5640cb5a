"""Files that other stores export, made of recordings, and the rows that are derived from files."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_lightning.collector.load.from_files import derive_all, load_file, load_judgements
from otel_lightning.collector.store import open_store
from support.captures import as_texts

EXPORTS = Path(__file__).parents[1] / "data" / "exports"
Json = dict[str, Any]
CALLS = """
    SELECT trace_id, span_id, parent_span_id, step, agent_name, dialect, operation, provider,
        request_model, response_model, response_id, request_params, tool_definitions,
        input_messages, output_messages, finish_reason, input_tokens, output_tokens,
        conversation_id, error_type, error_message, content,
        time_bucket(INTERVAL 1 millisecond, start_time::TIMESTAMP) AS start_time
    FROM llm_calls ORDER BY trace_id, span_id
"""
TOOLS = """
    SELECT trace_id, span_id, llm_span_id, tool_call_id, name, arguments, result, error_type, source
    FROM tool_calls ORDER BY ALL
"""
REWARDS = """
    SELECT trace_id, span_id, name, value, label, explanation, source FROM rewards ORDER BY ALL
"""


class Derived(NamedTuple):
    """Rows that are derived from files."""

    calls: list[Json]
    tools: list[Json]
    rewards: list[Json]
    left_out: list[str]


def derived(store_file: Path, *files: Path) -> Derived:
    """Load files as the command does."""
    with open_store(store_file) as store:
        loaded = [load_file(store, file) for file in files]
        derive_all(store, store_file)
        judged = load_judgements(store, [one for file in loaded for one in file.judgements])
        derive_all(store, store_file)
        left_out = [reason for one in (*loaded, judged) for reason in one.left_out]
        return Derived(store.rows(CALLS), store.rows(TOOLS), store.rows(REWARDS), left_out)


def sent(recording: Path) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(recording.read_bytes())


class Sent(NamedTuple):
    span: Span
    resource: Json
    scope: str


def spans(recording: Path) -> Iterator[Sent]:
    for group in sent(recording).resource_spans:
        for scope in group.scope_spans:
            for span in scope.spans:
                yield Sent(span, as_texts(group.resource.attributes), scope.scope.name)


def iso(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000 / 1e3, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parsed(text: str | None) -> Any:
    try:
        return json.loads(text) if text is not None else None
    except json.JSONDecodeError:
        return text


def without(row: Json, *columns: str) -> Json:
    return {name: value for name, value in row.items() if name not in columns}


PREFIX = "langfuse.observation."


def observation(sent: Sent) -> Json:
    """Convert as `createObservationEvent` of Langfuse's `OtelIngestionProcessor` does."""
    span, attributes = sent.span, as_texts(sent.span.attributes)
    metadata = {
        key.removeprefix(f"{PREFIX}metadata."): parsed(value)
        for key, value in attributes.items()
        if key.startswith(f"{PREFIX}metadata.")
    }
    return {
        "id": span.span_id.hex(),
        "traceId": span.trace_id.hex(),
        "parentObservationId": span.parent_span_id.hex() or None,
        "type": attributes.get(f"{PREFIX}type", "span").upper(),
        "name": span.name,
        "startTime": iso(span.start_time_unix_nano),
        "endTime": iso(span.end_time_unix_nano),
        "input": parsed(attributes.get(f"{PREFIX}input")),
        "output": parsed(attributes.get(f"{PREFIX}output")),
        "model": attributes.get(f"{PREFIX}model.name"),
        "modelParameters": parsed(attributes.get(f"{PREFIX}model.parameters")),
        "usageDetails": parsed(attributes.get(f"{PREFIX}usage_details")) or {},
        "level": attributes.get(f"{PREFIX}level", "ERROR" if span.status.code == 2 else "DEFAULT"),
        "statusMessage": attributes.get(f"{PREFIX}status_message") or span.status.message or None,
        "metadata": {
            **metadata,
            "resourceAttributes": sent.resource,
            "scope": {"name": sent.scope, "attributes": {}},
        },
    }


def blob_row(one: Json) -> Json:
    """Return an observation as Langfuse exports it to blob storage: snake_case, values as text."""
    names = {"".join(f"_{c.lower()}" if c.isupper() else c for c in k): v for k, v in one.items()}
    row = {{"model": "provided_model_name"}.get(name, name): v for name, v in names.items()}
    for name in ("input", "output", "model_parameters"):
        if row[name] is not None and not isinstance(row[name], str):
            row[name] = json.dumps(row[name])
    for name in ("start_time", "end_time"):
        row[name] = row[name].replace("T", " ").removesuffix("Z") + "000"
    return row


GOOD = {"id": "a", "traceId": "t", "type": "SPAN", "startTime": "2026-11-20T10:00:00Z"}
"""The smallest observation of Langfuse."""
