"""Recordings as the provider would have made them once more: every invented id is another one."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

DATA = Path(__file__).parents[1] / "data"


class Recording(NamedTuple):
    """What was sent in one scenario, and the ids that the provider gave to tool calls."""

    name: str
    spans: bytes
    truth: dict[str, Any]
    ids: tuple[str, ...]


def recordings() -> list[Recording]:
    """Return the recordings whose spans have tool calls with ids."""
    return [one for path in sorted(DATA.glob("*/*.otlp.pb")) if (one := _read(path)) and one.ids]


def _read(path: Path) -> Recording | None:
    stem = path.name.removesuffix(".otlp.pb")
    truth = path.with_name(f"{stem}.truth.json")
    if not truth.exists():
        return None
    content, spans = json.loads(truth.read_text()), path.read_bytes()
    ids = {
        call["id"]
        for one in content["llm_calls"]
        for message in one["output_messages"]
        for call in message.get("tool_calls") or ()
        if call.get("id") and call["id"].encode() in spans
    }
    return Recording(f"{path.parent.name}/{stem}", spans, content, tuple(sorted(ids)))


def with_other_ids(recording: Recording, seed: int) -> bytes:
    """Return the spans with a random id for each tool call, of the same length."""
    spans = recording.spans
    for one in recording.ids:
        spans = spans.replace(one.encode(), _other(one, seed).encode())
    return spans


def once_more(recording: Recording, seed: int) -> bytes:
    """Return the spans of another run: other ids of tool calls, responses and traces."""
    spans = with_other_ids(recording, seed)
    for call in recording.truth["llm_calls"]:
        if response_id := call.get("response_id"):
            spans = spans.replace(response_id.encode(), _other(response_id, seed).encode())
    request = ExportTraceServiceRequest.FromString(spans)
    for group in request.resource_spans:
        for scope in group.scope_spans:
            for span in scope.spans:
                span.trace_id = sha256(span.trace_id + bytes([seed])).digest()[:16]
    return request.SerializeToString()


def _other(one: str, seed: int) -> str:
    """Keep the beginning, such as `call_`, which tells whose id it is."""
    begins = len(one) - len(one.replace("-", "_").rpartition("_")[2])
    drawn = sha256(f"{seed} {one}".encode()).hexdigest() * 2
    return (one[:begins] + drawn)[: len(one)]
