"""A reward that is not finite, as a sender writes it, is refused by its name."""

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.otlp.json_encoding import parse_json
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.store import open_store
from otel_lightning.instrumentation import attributes as names
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.logged.choices import read_choices
from otel_lightning.learner.policy.logged.window import Window
from otel_lightning.learner.transitions.make import Settings, make_transitions

if TYPE_CHECKING:
    from conftest import Traces

LATER = datetime(2026, 11, 1, minute=2)  # noqa: DTZ001 - the store's UTC has no zone
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
    attributes = {
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
        "attributes": [attribute(key, "stringValue", text) for key, text in attributes.items()],
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


def stored(folder: Path, spans: list[dict[str, Any]]) -> str:
    traces = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    called = parse_json(ExportTraceServiceRequest, json.dumps(traces).encode())
    path = folder / "traces.duckdb"
    with open_store(path) as store:
        load(store, [Request("traces", START, called.SerializeToString())], dead_letters=folder)
        while refresh(store):
            pass
    return str(path)


@pytest.mark.parametrize(
    ("text", "shown"), [("nan", "nan"), ("NAN", "nan"), ("inf", "inf"), ("-Infinity", "-inf")]
)
def test_a_text_of_no_finite_number_is_refused_as_a_number_is(
    tmp_path: Path, text: str, shown: str
) -> None:
    score = attribute(names.EVALUATION_SCORE_VALUE, "stringValue", text)
    solved = [attribute(names.EVALUATION_NAME, "stringValue", "solved"), score]
    events = {"a" * 32: judged(1.0, "a" * 32), "b" * 32: solved}
    spans = [
        call(trace, [{"name": RESULT, "timeUnixNano": str(START), "attributes": said}])
        for trace, said in events.items()
    ]
    with pytest.raises(DataError, match=f"Reward 'solved' of rollout '{'b' * 32}' is {shown}[.]"):
        make_transitions(stored(tmp_path, spans), Settings())


@pytest.mark.parametrize("returned", ["NaN", '"nan"'])
def test_a_reward_of_nan_that_a_function_returned_to_agentops_is_refused_by_name(
    tmp_path: Path, returned: str
) -> None:
    spans = []
    for trace, value in (("a" * 32, "1.0"), ("b" * 32, returned)):
        output = f'{{"type": "reward", "value": {value}}}'
        graded = {
            "traceId": trace,
            "spanId": trace[:15] + "0",
            "name": "grade",
            "startTimeUnixNano": str(START + 2 * 10**9),
            "endTimeUnixNano": str(START + 3 * 10**9),
            "attributes": [attribute("agentops.task.output", "stringValue", output)],
        }
        spans += [call(trace, []), graded]
    with pytest.raises(DataError, match=f"Reward 'primary' of rollout '{'b' * 32}' is nan[.]"):
        make_transitions(stored(tmp_path, spans), Settings())


@pytest.mark.parametrize("several", [False, True])
def test_a_reward_that_is_not_finite_is_replaced_by_a_later_judgement(
    traces: "Traces", *, several: bool
) -> None:
    for i in range(40):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", "xy"[i % 2], 0.5)
        traces.task(f"r{i}", f"t{i}")
        traces.reward(f"r{i}", float("nan") if i == 3 else 1.0)
    traces.reward("r3", 0.0, time=LATER)
    if several:
        traces.reward("r4", 0.5, name="style")
    path = traces.store()
    summary = make_transitions(path, Settings())
    total = 39.5 if several else 39.0
    assert (summary.rewarded, summary.mean_reward) == (40, pytest.approx(total / 40))
    window = Window(key="support-prompt")
    with open_store(traces.path) as store:
        logged = read_choices(store, window, {})
    assert logged.rows["outcome"].sum() == pytest.approx(total)


def test_a_later_judgement_that_is_not_finite_is_refused(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    traces.reward("a", float("nan"), time=LATER)
    with pytest.raises(DataError, match="Reward 'task_success' of rollout 'a' is nan"):
        make_transitions(traces.store(), Settings())
