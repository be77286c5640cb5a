"""Langfuse: observations, traces and scores, from its API, its page, or its export to blob storage.

The API and the page write names as `traceId`, the other export as `trace_id`. In CSV all values are
texts, and older versions quote them as in JSON. An observation becomes the span that
Langfuse's SDK would have sent, so that the dialect `langfuse` reads it, whatever had recorded it.

Source:
    `fern/apis/server/definition` and `worker/src/features/database-read-stream` of
    langfuse/langfuse; "Blob storage export field reference".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from otel_lightning.collector.trace_files import records
from otel_lightning.collector.trace_files.records import (
    Exported,
    ExportedJudgement,
    ExportedSpan,
    Json,
    LeftOut,
)

NAME = "Langfuse"
CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
OBSERVATION = frozenset({"id", "trace_id", "type", "start_time"})
SCORE = frozenset({"id", "name", "data_type", "source"})
TRACE = frozenset({"id", "timestamp", "session_id", "user_id"})
PREFIX = "langfuse.observation."
NUMBERS, WORDS = ("NUMERIC", "BOOLEAN"), ("CATEGORICAL",)
"""The types of scores that can be a reward."""
TOOL_NAMES = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name")
"""Attributes with a tool's name, as other instrumentations had sent them to Langfuse."""
KEPT = ("lightning.", "session.id", "gen_ai.conversation.id")
"""Prefixes of attributes that tell the rollout or the conversation of a span."""


def matches(row: Json) -> bool:
    """Return whether this is an observation, a trace or a score of Langfuse."""
    names = _snake(row).keys()
    return names >= OBSERVATION or names >= SCORE or names >= TRACE


def read(row: Json) -> Iterator[Exported]:
    """Yield the spans of an observation or of a whole trace, or the judgement of a score."""
    fields = _snake(row)
    if fields.keys() >= OBSERVATION:
        yield _observation(fields)
    elif fields.keys() >= SCORE:
        yield _score(fields)
    else:
        yield from _trace(fields)


def _snake(row: Json) -> Json:
    return {CAPITAL.sub("_", name).lower(): _unquoted(value) for name, value in row.items()}


def _unquoted(value: Any) -> Any:
    """Return a text without the quotes of JSON around it."""
    if not isinstance(value, str) or value[:1] != '"':
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _trace(trace: Json) -> Iterator[Exported]:
    observations = trace.get("observations") or []
    if not any(isinstance(one, Mapping) for one in observations):
        yield LeftOut("a trace of Langfuse without its observations; load those")
        return
    inherited = {name: trace[name] for name in ("session_id", "user_id") if trace.get(name)}
    for one in observations:
        yield _observation({**inherited, **_snake(one)})
    for score in trace.get("scores") or []:
        yield _score({"trace_id": trace["id"], **_snake(score)})


def _observation(one: Json) -> ExportedSpan:
    metadata = _object(one.get("metadata"))
    sent, scope = _object(metadata.get("attributes")), _object(metadata.get("scope"))
    start_ns = records.nanoseconds(one["start_time"])
    parent = one.get("parent_observation_id")
    failed = one.get("level") == "ERROR"
    span = records.span(
        trace_id=records.trace_id(one["trace_id"]),
        span_id=records.span_id(one["id"]),
        parent_id=parent and records.span_id(parent),
        name=_name(one, sent),
        start_ns=start_ns,
        end_ns=records.nanoseconds(one["end_time"]) if one.get("end_time") else None,
        attributes={
            **{key: value for key, value in sent.items() if key.startswith(KEPT)},
            **_content(one),
            **{f"{PREFIX}metadata.{key}": records.json_text(v) for key, v in metadata.items()},
        },
        status=records.ERROR if failed else 0,
        message=one.get("status_message") if failed else None,
    )
    resource = _object(metadata.get("resourceAttributes"))
    return ExportedSpan(span, resource, str(scope.get("name") or ""))


def _object(value: Any) -> Json:
    """Return an object that may be written as JSON text, an empty one if it is none."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return {}  # the API can cut metadata
    return value if isinstance(value, Mapping) else {}


def _name(one: Json, sent: Json) -> str:
    """Return the observation's name, or the name of the tool that it ran."""
    tool = next((sent[key] for key in TOOL_NAMES if key in sent), None)
    return str((tool if one["type"].upper() == "TOOL" else None) or one.get("name") or "")


def _content(one: Json) -> Json:
    """Return the attributes that Langfuse's SDK writes for the fields of an observation."""
    return {
        f"{PREFIX}type": one["type"].lower(),
        **{f"{PREFIX}{side}": records.json_text(one.get(side)) for side in ("input", "output")},
        f"{PREFIX}model.name": one.get("provided_model_name") or one.get("model"),
        f"{PREFIX}model.parameters": records.json_text(one.get("model_parameters") or None),
        f"{PREFIX}usage_details": records.json_text(one.get("usage_details") or None),
        f"{PREFIX}level": one.get("level"),
        f"{PREFIX}status_message": one.get("status_message"),
        f"{PREFIX}completion_start_time": one.get("completion_start_time"),
        "langfuse.session.id": one.get("session_id") or None,
        "user.id": one.get("user_id") or None,
    }


def _score(score: Json) -> Exported:
    judged = _judged(score)
    kind = score["data_type"].upper()
    if judged is None:
        return LeftOut("a score of Langfuse of a session or a data set, which judges no trace")
    if kind not in NUMBERS + WORDS:
        return LeftOut(f"a score of Langfuse of the type {kind}, which is no reward")
    word = score.get("string_value") or score.get("value")
    outcome = {"value": float(score["value"])} if kind in NUMBERS else {"label": word}
    item = {
        "id": f"langfuse-{score['id']}",
        "name": score["name"],
        **outcome,
        "explanation": score.get("comment"),
        **judged,
    }
    changed = score.get("updated_at") or score.get("timestamp") or score["created_at"]
    return ExportedJudgement(item, records.nanoseconds(changed))


def _judged(score: Json) -> Json | None:
    """Return the trace, and the span if there is one, that a score judges."""
    subject = score.get("subject") or {}
    trace = score.get("trace_id") or subject.get("traceId")
    observation = score.get("observation_id")
    if subject.get("kind") == "trace":
        trace = subject["id"]
    elif subject.get("kind") == "observation":
        observation = subject["id"]
    if not trace:
        return None
    span = {"span_id": records.span_id(observation)} if observation else {}
    return {"trace_id": records.trace_id(trace), **span}
