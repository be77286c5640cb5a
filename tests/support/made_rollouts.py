"""Rollouts made by hand as OTLP requests: with messages, tools, rewards and arms."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.store import Store
from support.spans import text_message, tool_request, tool_response

SECOND = 10**9
NOW = 1_800_000_000 * SECOND
TOOL_SECONDS = 0.5


def make(  # noqa: PLR0913 - what a rollout may have
    name: str = "ticket-77",
    *,
    task: str | None = None,
    agent: str = "support",
    user: str = "Where is my parcel?",
    answers: Sequence[str] = ("I look it up.", "It is due Friday."),
    result: str = "due Friday",
    error: str | None = None,
    at: int = 0,
) -> ExportTraceServiceRequest:
    """Return a rollout in which each answer but the last asks for a tool.

    Args:
        name: Its id, which its trace id and span ids are made from.
        task: Its task id.
        agent: The name of its agent.
        user: What the user says first.
        answers: What the model says, one text per call.
        result: What the tool returns.
        error: Type of an error of the last call.
        at: Seconds after `NOW` at which it starts.
    """
    sent = ExportTraceServiceRequest()
    spans = sent.resource_spans.add().scope_spans.add().spans
    trace = trace_of(name)
    history = [text_message("system", "Be kind."), text_message("user", user)]
    for step, text in enumerate(answers):
        is_last = step == len(answers) - 1
        output = text_message("assistant", text)
        if not is_last:
            output["parts"] += tool_request(f"call-{step}", "search", {"order": 70 + step})["parts"]
        begins = NOW + (at + 2 * step) * SECOND
        values: dict[str, Any] = {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "model-7",
            "gen_ai.agent.name": agent, "lightning.rollout.id": name,
            "gen_ai.response.id": f"response-{name}-{step}",
            "gen_ai.input.messages": json.dumps(history),
            "gen_ai.usage.input_tokens": 100 * (step + 1), "gen_ai.usage.output_tokens": 10,
        }  # fmt: skip
        if task:
            values["lightning.task.id"] = task
        if error and is_last:
            values["error.type"] = error
        else:
            values["gen_ai.output.messages"] = json.dumps([output])
            values["gen_ai.response.finish_reasons"] = ["stop" if is_last else "tool_calls"]
        call = spans.add(name="chat", trace_id=trace, span_id=bytes([step + 1]) * 8)
        call.start_time_unix_nano, call.end_time_unix_nano = begins, begins + SECOND
        if error and is_last:
            call.status.code = Status.STATUS_CODE_ERROR
        _put(call, values)
        if not is_last:
            tool = spans.add(name="tool", trace_id=trace, span_id=bytes([step + 1]) * 7 + b"\xff")
            tool.start_time_unix_nano = begins + SECOND
            tool.end_time_unix_nano = begins + SECOND + int(TOOL_SECONDS * SECOND)
            _put(tool, {
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
                "gen_ai.tool.call.id": f"call-{step}", "lightning.rollout.id": name,
                "gen_ai.tool.call.arguments": json.dumps({"order": 70 + step}),
                "gen_ai.tool.call.result": json.dumps(result),
            })  # fmt: skip
        history += [output, tool_response(f"call-{step}", result)]
    return sent


def trace_of(name: str) -> bytes:
    """Return the trace id of a rollout."""
    return name.encode().ljust(16, b"\0")[:16]


def judged(name: str, value: float, *, step: int | None = None, why: str = "") -> Request:
    """Return a reward of a rollout, or of one of its calls."""
    sent = ExportLogsServiceRequest()
    record = sent.resource_logs.add().scope_logs.add().log_records.add()
    record.event_name, record.time_unix_nano = "gen_ai.evaluation.result", NOW + 3600 * SECOND
    values: dict[str, Any] = {
        "gen_ai.evaluation.name": "solved", "gen_ai.evaluation.score.value": value,
        "gen_ai.evaluation.explanation": why,
    }  # fmt: skip
    if step is None:
        values["lightning.rollout.id"] = name
    else:
        record.trace_id, record.span_id = trace_of(name), bytes([step + 1]) * 8
    _put(record, values)
    return Request("logs", NOW, sent.SerializeToString())


def deliver(store: Store, folder: Path, *sent: ExportTraceServiceRequest | Request) -> None:
    """Store requests and derive everything."""
    requests = [
        one if isinstance(one, Request) else Request("traces", NOW, one.SerializeToString())
        for one in sent
    ]
    load(store, requests, dead_letters=folder)
    while refresh(store):
        pass


def _put(record: Any, values: dict[str, Any]) -> None:
    for key, value in values.items():
        held = record.attributes.add(key=key).value
        if isinstance(value, str):
            held.string_value = value
        elif isinstance(value, list):
            for one in value:
                held.array_value.values.add(string_value=one)
        elif isinstance(value, float):
            held.double_value = value
        else:
            held.int_value = value
