"""MLflow: a trace as `Trace.to_json()` and `mlflow traces get` write it.

The table that `search_traces()` returns has this JSON in the column `trace`.

Source:
    `mlflow/entities/trace.py`, `span.py` and `assessment.py` of mlflow/mlflow 3, and
    `mlflow/genai/scorers/aggregation.py` for the scores of words.
"""

from collections.abc import Iterator, Mapping

from otel_lightning.collector.trace_files import records
from otel_lightning.collector.trace_files.records import (
    Exported,
    ExportedJudgement,
    ExportedSpan,
    Json,
    LeftOut,
)
from otel_lightning.collector.trace_files.written_values import structure

NAME = "MLflow"
RATINGS = {"yes": 1.0, "no": 0.0}
"""The words of MLflow's judges (`CategoricalRating`), and how `mlflow.genai` averages them."""


def matches(row: Json) -> bool:
    """Return whether this is a trace of MLflow."""
    trace = _trace(row)
    data = trace.get("data")
    return "info" in trace and isinstance(data, Mapping) and "spans" in data


def _trace(row: Json) -> Json:
    """Return the trace that a record is, or that a row of a table has."""
    trace = structure(row.get("trace"))
    return trace if isinstance(trace, Mapping) else row


def read(row: Json) -> Iterator[Exported]:
    """Yield the spans of a trace and its assessments."""
    trace = _trace(row)
    spans = trace["data"]["spans"]
    if not spans:
        yield LeftOut("a trace of MLflow without spans")
        return
    service = (trace["info"].get("tags") or {}).get("service.name")
    for one in spans:
        yield ExportedSpan(_span(one), {"service.name": service}, "mlflow")
    trace_id = records.trace_id(spans[0]["trace_id"])
    for assessment in trace["info"].get("assessments") or []:
        yield _assessment(assessment, trace_id)


def _span(one: Json) -> Json:
    status, parent = one.get("status") or {}, one.get("parent_span_id")
    return records.span(
        trace_id=records.trace_id(one["trace_id"]),
        span_id=records.span_id(one["span_id"]),
        parent_id=parent and records.span_id(parent),
        name=one["name"],
        start_ns=one["start_time_unix_nano"],
        end_ns=one.get("end_time_unix_nano"),
        # MLflow's attributes are JSON texts, and so are they in the spans that it sends by OTLP.
        attributes={key: records.json_text(v) for key, v in (one.get("attributes") or {}).items()},
        status=records.status_number(status.get("code")),
        message=status.get("message"),
        events=[
            records.event(event["name"], event["time_unix_nano"], event.get("attributes") or {})
            for event in one.get("events") or []
        ],
    )


def _judged(value: float | str) -> dict[str, float | str]:
    """Return a score, or a word; MLflow's judges say yes and no, which it counts as 1 and 0."""
    if not isinstance(value, str):
        return {"value": float(value)}
    score = RATINGS.get(value.lower())
    return {"label": value} if score is None else {"label": value, "value": score}


def _assessment(one: Json, trace_id: str) -> Exported:
    if not (feedback := one.get("feedback")):
        return LeftOut("an expectation of MLflow, which is no reward")
    if one.get("valid") is False:
        return LeftOut("a feedback of MLflow that a later one replaced")
    value = feedback.get("value")
    if not isinstance(value, bool | int | float | str):
        return LeftOut("a feedback of MLflow without a number or a word")
    span = {"span_id": records.span_id(one["span_id"])} if one.get("span_id") else {}
    item = {
        "id": f"mlflow-{one['assessment_id']}",
        "name": one["assessment_name"],
        **_judged(value),
        "explanation": one.get("rationale"),
        "trace_id": trace_id,
        **span,
    }
    return ExportedJudgement(
        item, records.nanoseconds(one.get("last_update_time") or one["create_time"])
    )
