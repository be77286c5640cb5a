"""Phoenix: spans and annotations, as its REST API and its client write them in JSON.

Source:
    `src/phoenix/server/api/routers/v1/spans.py` and `annotations.py` of Arize-ai/phoenix.
"""

import re
from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.trace_files import records
from otel_lightning.collector.trace_files.records import (
    Exported,
    ExportedJudgement,
    ExportedSpan,
    Json,
    LeftOut,
)

NAME = "Phoenix"
SPAN = frozenset({"context", "span_kind", "start_time", "attributes"})
OTLP_SPAN = frozenset({"trace_id", "span_id", "start_time_unix_nano"})
UNDERSCORE = re.compile(r"_([a-z])")


def matches(row: Json) -> bool:
    """Tell whether this is a span or an annotation of Phoenix."""
    return row.keys() >= SPAN or row.keys() >= OTLP_SPAN or "annotator_kind" in row


def read(row: Json) -> Iterator[Exported]:
    """Yield the span, or the judgement of an annotation."""
    if "annotator_kind" in row:
        yield _annotation(row)
    elif row.keys() >= SPAN:
        yield _span(row)
    else:
        # `/spans/otlpv1` answers with spans of OTLP, without their resource and scope.
        yield ExportedSpan(records.otlp_span(_camel(row)), {}, "")


def _span(one: Json) -> ExportedSpan:
    context, parent = one["context"], one.get("parent_id")
    span = records.span(
        trace_id=records.trace_id(context["trace_id"]),
        span_id=records.span_id(context["span_id"]),
        parent_id=parent and records.span_id(parent),
        name=one["name"],
        start_ns=records.nanoseconds(one["start_time"]),
        end_ns=records.nanoseconds(one["end_time"]) if one.get("end_time") else None,
        attributes={"openinference.span.kind": one["span_kind"], **one["attributes"]},
        status=records.CODES.index(one.get("status_code") or "UNSET"),
        message=one.get("status_message"),
        events=[_event(event) for event in one.get("events") or []],
    )
    return ExportedSpan(span, {}, "")


def _camel(row: Json) -> Json:
    """Return the fields by their names in OTLP/JSON: `traceId` in place of `trace_id`."""
    return {UNDERSCORE.sub(lambda at: at[1].upper(), key): value for key, value in row.items()}


def _event(event: Json) -> Json:
    time_ns = records.nanoseconds(event["timestamp"])
    return records.event(event["name"], time_ns, event.get("attributes") or {})


def _annotation(one: Json) -> Exported:
    result: dict[str, Any] = one.get("result") or {}
    judged = {name: one[name] for name in ("trace_id", "span_id") if one.get(name)}
    if not judged:
        return LeftOut("an annotation of Phoenix of a session, which judges no trace")
    if result.get("score") is None and not result.get("label"):
        return LeftOut("an annotation of Phoenix with neither a score nor a label")
    item = {
        "id": f"phoenix-{one['id']}",
        "name": one["name"],
        "value": result.get("score"),
        "label": result.get("label"),
        "explanation": result.get("explanation"),
        **judged,
    }
    changed = one.get("updated_at") or one["created_at"]
    return ExportedJudgement(item, records.nanoseconds(changed))
