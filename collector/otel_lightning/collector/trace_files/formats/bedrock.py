"""Amazon Bedrock: the log of model invocations, as it is delivered to S3 and CloudWatch.

A record holds the whole request and response of one call. It becomes the span that OpenInference
would have sent, with both in it. Bedrock records no traces, so each call is a trace of its own, and
calls are joined to rollouts by their messages.

Source:
    "Monitor model invocation using CloudWatch Logs and Amazon S3" in AWS's documentation.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from otel_lightning.collector.trace_files import records
from otel_lightning.collector.trace_files.records import Exported, ExportedSpan, Json
from otel_lightning.collector.trace_files.written_values import structure

NAME = "Amazon Bedrock"
KIND = "ModelInvocationLog"
MILLISECOND = 1_000_000  # nanoseconds
EMBED = "embed"
"""Part of the names of models that compute embeddings."""
COUNTS = {
    "input": {
        "inputTokenCount": "llm.token_count.prompt",
        "cacheReadInputTokenCount": "llm.token_count.prompt_details.cache_read",
        "cacheWriteInputTokenCount": "llm.token_count.prompt_details.cache_write",
    },
    "output": {"outputTokenCount": "llm.token_count.completion"},
}
METRICS = "amazon-bedrock-invocationMetrics"
"""The key that Bedrock adds to the last part of a streamed answer."""


def matches(row: Json) -> bool:
    """Return whether this is a record of the log."""
    return row.get("schemaType") == KIND


def read(row: Json) -> Iterator[Exported]:
    """Yield the span of a call."""
    call, model = row["requestId"], _model(row["modelId"])
    start_ns = records.nanoseconds(row["timestamp"])
    asked, answered = row.get("input") or {}, row.get("output") or {}
    response = _response(answered.get("outputBodyJson"))
    error = row.get("errorCode")
    span = records.span(
        trace_id=records.trace_id(call),
        span_id=records.span_id(call),
        name=row.get("operation") or "InvokeModel",
        start_ns=start_ns,
        end_ns=start_ns + _milliseconds(response) * MILLISECOND,
        attributes={
            **_metadata(row),
            "openinference.span.kind": "EMBEDDING" if EMBED in model else "LLM",
            "llm.provider": "aws",
            "llm.model_name": model,
            "input.value": _text(_request(model, asked.get("inputBodyJson"))),
            "output.value": _text({"id": call, **response} if response else None),
            **_counts(row),
        },
        status=records.ERROR if error else records.OK,
        message=error,
        events=[_failure(error, start_ns)] if error else (),
        kind=records.kind_number("CLIENT"),
    )
    yield ExportedSpan(span, {"cloud.region": row.get("region")}, "bedrock")


def _model(name: str) -> str:
    """Return the name of a model without the resource path of a profile or a region."""
    return name.rpartition("/")[2]


def _metadata(row: Json) -> dict[str, Any]:
    """Return what the caller gave as `requestMetadata`: it may name the rollout or session."""
    given = row.get("requestMetadata")
    return {str(key): value for key, value in given.items()} if isinstance(given, Mapping) else {}


def _request(model: str, body: Any) -> dict[str, Any] | None:
    """Return a request with its model, and its parameters beside the messages."""
    body = structure(body)
    if not isinstance(body, Mapping):
        return None
    rest = {key: value for key, value in body.items() if key != "inferenceConfig"}
    return {"modelId": model, **(body.get("inferenceConfig") or {}), **rest}


def _response(body: Any) -> dict[str, Any]:
    """Return a response; one that was streamed by InvokeModel is put together from its parts."""
    body = structure(body)
    if isinstance(body, list):
        return _joined(one for one in body if isinstance(one, Mapping))
    return dict(body) if isinstance(body, Mapping) else {}


def _joined(parts: Iterable[Json]) -> dict[str, Any]:
    """Put together the parts of a streamed answer of Anthropic's models.

    Answers of other models have no content: each family has parts of its own.
    """
    whole: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for part in parts:
        kind = part.get("type")
        if kind == "message_start":
            whole |= part["message"]
        elif kind == "content_block_start":
            blocks[part["index"]] = {**part["content_block"]}
        elif kind == "content_block_delta":
            _add(blocks[part["index"]], part["delta"])
        elif kind == "message_delta":
            counts = {**(whole.get("usage") or {}), **(part.get("usage") or {})}
            whole |= {**part["delta"], "usage": counts}
        if METRICS in part:
            whole[METRICS] = part[METRICS]
    if blocks:
        whole["content"] = [_block(blocks[at]) for at in sorted(blocks)]
    return whole


def _add(block: dict[str, Any], delta: Json) -> None:
    """Add what one part says of a block: text, reasoning, or the arguments of a tool call."""
    for name in ("text", "thinking", "signature", "partial_json"):
        if name in delta:
            block[name] = (block.get(name) or "") + delta[name]


def _block(block: dict[str, Any]) -> dict[str, Any]:
    written = block.pop("partial_json", None)
    return {**block, "input": orjson.loads(written)} if written else block


def _counts(row: Json) -> Json:
    """Return the token counts of the log; Bedrock leaves cached tokens out of the input."""
    counts = {
        key: (row.get(side) or {}).get(name)
        for side, names in COUNTS.items()
        for name, key in names.items()
    }
    given = [counts[key] for key in COUNTS["input"].values() if counts[key] is not None]
    return {**counts, "llm.token_count.prompt": sum(given) if given else None}


def _milliseconds(response: Json) -> int:
    """Return how long a call took; 0 if it is unknown."""
    metrics = response.get("metrics") or {}
    streamed = response.get(METRICS) or {}
    return int(metrics.get("latencyMs") or streamed.get("invocationLatency") or 0)


def _failure(error: str, time_ns: int) -> Json:
    return records.event("exception", time_ns, {"exception.type": error})


def _text(value: Json | None) -> str | None:
    return None if value is None else records.json_text(value)
