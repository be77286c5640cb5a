"""Phoenix: spans and annotations, as its REST API writes them in JSON, or its client in tables.

Source:
    `src/phoenix/server/api/routers/v1/spans.py` and `annotations.py`, and
    `packages/phoenix-client/src/phoenix/client/resources/spans` of Arize-ai/phoenix.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from otel_lightning.collector.trace_files import records
from otel_lightning.collector.trace_files.records import (
    Exported,
    ExportedJudgement,
    ExportedSpan,
    Json,
    LeftOut,
)
from otel_lightning.collector.trace_files.written_values import literal, structure

NAME = "Phoenix"
SPAN = frozenset({"context", "span_kind", "start_time", "attributes"})
OTLP_SPAN = frozenset({"trace_id", "span_id", "start_time_unix_nano"})
CELLS = frozenset({"context.trace_id", "context.span_id", "span_kind"})
"""Columns of `get_spans_dataframe()`."""
ATTRIBUTES, RESULT = "attributes.", "result."
"""Prefixes of the names of columns that are fields of objects."""
TEXTS = ("input.value", "output.value")
"""Attributes that are always a text."""
COUNT = re.compile(r"token_count|\.usage\.")
UNDERSCORE = re.compile(r"_([a-z])")


def matches(row: Json) -> bool:
    """Return whether this is a span or an annotation of Phoenix."""
    names = row.keys()
    return "annotator_kind" in row or any(names >= one for one in (SPAN, OTLP_SPAN, CELLS))


def read(row: Json) -> Iterator[Exported]:
    """Yield the span, or the judgement of an annotation."""
    if "annotator_kind" in row:
        yield _annotation(row)
    elif row.keys() >= CELLS:
        yield _span(_of_cells(row))
    elif row.keys() >= SPAN:
        yield _span(row)
    else:
        # `/spans/otlpv1` answers with spans of OTLP, without their resource and scope.
        yield ExportedSpan(_camel(row), {}, "")


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
        status=records.status_number(one.get("status_code")),
        message=one.get("status_message"),
        events=[_event(event) for event in one.get("events") or []],
    )
    return ExportedSpan(span, {}, "")


def _of_cells(row: Json) -> Json:
    """Return a row of `get_spans_dataframe()` in the form of the REST API."""
    attributes: dict[str, Any] = {}
    for name, value in row.items():
        if name.startswith(ATTRIBUTES):
            key = name.removeprefix(ATTRIBUTES)
            # In CSV a tool's output that spells an object of Python looks like an object.
            attributes |= _flattened(key, value if key in TEXTS else literal(value))
    return {
        **row,
        "context": {name: row[f"context.{name}"] for name in ("trace_id", "span_id")},
        "attributes": attributes,
        "events": structure(row.get("events")),
    }


def _flattened(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that a cell stands for: lists of objects as `messages.0.role`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flattened(f"{name}.{key}", inner)
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for number, inner in enumerate(value):
            yield from _flattened(f"{name}.{number}", inner)
    else:
        yield name, _whole(name, value)


def _whole(name: str, value: Any) -> Any:
    """Return a whole number as such: pandas makes 12.0 of 12 if other rows have no value."""
    if isinstance(value, str) and COUNT.search(name):
        return value.removesuffix(".0")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _camel(row: Json) -> Json:
    """Return the fields by their names in OTLP/JSON: `traceId` in place of `trace_id`."""
    return {UNDERSCORE.sub(lambda at: at[1].upper(), key): value for key, value in row.items()}


def _event(event: Json) -> Json:
    time_ns = records.nanoseconds(event["timestamp"])
    return records.event(event["name"], time_ns, event.get("attributes") or {})


def _annotation(one: Json) -> Exported:
    result: dict[str, Any] = one.get("result") or {
        name.removeprefix(RESULT): value for name, value in one.items() if name.startswith(RESULT)
    }
    score = result.get("score")
    judged = {name: one[name] for name in ("trace_id", "span_id") if one.get(name)}
    if not judged:
        return LeftOut("an annotation of Phoenix of a session, which judges no trace")
    if score is None and not result.get("label"):
        return LeftOut("an annotation of Phoenix with neither a score nor a label")
    item = {
        "id": f"phoenix-{one['id']}",
        "name": one.get("annotation_name") or one["name"],
        "value": None if score is None else float(score),
        "label": result.get("label"),
        "explanation": result.get("explanation"),
        **judged,
    }
    changed = one.get("updated_at") or one["created_at"]
    return ExportedJudgement(item, records.nanoseconds(changed))
