"""LangSmith: runs and feedback, as its SDK and its API write them in JSON.

The bulk export writes the same fields in Parquet, where objects are JSON texts.

A run becomes the span that LangSmith's own OpenTelemetry exporter would have sent, so that the
dialect `langsmith` reads it.

Source:
    `langsmith.schemas` and `langsmith._internal.otel._otel_exporter` of langchain-ai/langsmith-sdk.
"""

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
from otel_lightning.collector.trace_files.written_values import structure

NAME = "LangSmith"
RUN = frozenset({"id", "run_type", "start_time", "trace_id"})
FEEDBACK = frozenset({"id", "key", "score", "run_id"})
OPERATIONS = {"llm": "chat", "tool": "execute_tool", "retriever": "embeddings", "prompt": "chat"}
"""The operation of OpenTelemetry by the type of run; `embeddings` is what LangSmith sends."""
OBJECTS = ("inputs", "outputs", "extra", "metadata")
METADATA = "langsmith.metadata."
COUNTS = {"prompt_tokens": "input", "completion_tokens": "output", "total_tokens": "total"}


def matches(row: Json) -> bool:
    """Return whether this is a run or a feedback of LangSmith."""
    return row.keys() >= RUN or row.keys() >= FEEDBACK


def read(row: Json) -> Iterator[Exported]:
    """Yield the span of a run, or the judgement of a feedback."""
    yield _feedback(row) if row.keys() >= FEEDBACK else _run(_with_objects(row))


def _with_objects(run: Json) -> Json:
    return {**run, **{name: structure(run[name]) for name in OBJECTS if name in run}}


def _run(run: Json) -> ExportedSpan:
    start_ns = records.nanoseconds(run["start_time"])
    end_ns = records.nanoseconds(run["end_time"]) if run.get("end_time") else None
    parent, error = _parent(run), run.get("error")
    failed = {"exception.type": "Exception", "exception.message": error}
    return ExportedSpan(
        records.span(
            trace_id=records.trace_id(run["trace_id"]),
            span_id=records.span_id(run["id"]),
            parent_id=parent and records.span_id(parent),
            name=run.get("name") or "",
            start_ns=start_ns,
            end_ns=end_ns,
            attributes=_attributes(run),
            status=records.ERROR if error else records.OK,
            message=error,
            events=[records.event("exception", end_ns or start_ns, failed)] if error else (),
        ),
        {},
        "langsmith",
    )


def _parent(run: Json) -> str | None:
    """Return the id of the parent. Newer records have it only in `dotted_order`.

    That has a part for each run from the root to this one: a time that ends with Z, and the id.
    """
    path = (run.get("dotted_order") or "").split(".")[:-1]
    return run.get("parent_run_id") or (path[-1].partition("Z")[2] if path else None)


def _attributes(run: Json) -> Json:
    extra, kind = run.get("extra") or {}, run["run_type"].lower()
    metadata = {
        "thread_id": run.get("thread_id"),
        **(run.get("metadata") or {}),
        **(extra.get("metadata") or {}),
    }
    sent = extra.get("invocation_params") or {}
    asked, answered = run.get("inputs") or {}, run.get("outputs") or {}
    model = asked.get("model") if isinstance(asked.get("messages"), list) else None
    return {
        "langsmith.span.kind": kind,
        "langsmith.trace.name": run.get("name"),
        "gen_ai.operation.name": OPERATIONS.get(kind, kind),
        "gen_ai.system": metadata.get("ls_provider"),
        "gen_ai.request.model": model or metadata.get("ls_model_name"),
        "gen_ai.tool.definitions": records.json_text(sent.get("tools") or None),
        "gen_ai.prompt": records.json_text(asked),
        "gen_ai.completion": records.json_text(answered or None),
        "gen_ai.response.id": _text(answered.get("id")),
        "gen_ai.response.model": _text(answered.get("model")),
        **{f"gen_ai.usage.{side}_tokens": run.get(name) for name, side in COUNTS.items()},
        **{f"{METADATA}{key}": _plain(value) for key, value in metadata.items()},
    }


def _plain(value: Any) -> Any:
    """Return a value that an attribute can have: JSON in place of an object."""
    return records.json_text(value) if isinstance(value, dict | list) else value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _feedback(feedback: Json) -> Exported:
    if not feedback.get("trace_id"):
        return LeftOut("a feedback of LangSmith that names no trace")
    score, word = feedback["score"], feedback.get("value")
    if score is None and not isinstance(word, str):
        return LeftOut("a feedback of LangSmith with neither a score nor a word")
    label = {"label": word} if isinstance(word, str) else {}
    outcome = label if score is None else {"value": float(score), **label}
    item = {
        "id": f"langsmith-{feedback['id']}",
        "name": feedback["key"],
        **outcome,
        "explanation": feedback.get("comment"),
        "trace_id": records.trace_id(feedback["trace_id"]),
        **({"span_id": records.span_id(feedback["run_id"])} if feedback["run_id"] else {}),
    }
    changed = feedback.get("modified_at") or feedback["created_at"]
    return ExportedJudgement(item, records.nanoseconds(changed))
