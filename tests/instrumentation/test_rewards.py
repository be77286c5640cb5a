"""Rewards as OpenTelemetry's evaluation event, seen through the SDK's own log exporter."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry import _logs, baggage, context, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from otel_lightning.instrumentation import evaluation_result, logs


@pytest.fixture(scope="module")
def _exporter() -> InMemoryLogRecordExporter:
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    _logs.set_logger_provider(provider)
    return exporter


@pytest.fixture
def emitted(_exporter: InMemoryLogRecordExporter) -> Callable[[], Any]:
    _exporter.clear()
    return lambda: [item.log_record for item in _exporter.get_finished_logs()]


def test_a_reward_is_the_standard_event_with_all_that_is_given(emitted: Any) -> None:
    evaluation_result(
        "solved",
        1,
        label="pass",
        explanation="The tests pass.",
        response_id="chatcmpl-1",
        rollout_id="rollout-1",
        task_id="task-1",
    )
    (record,) = emitted()
    assert record.event_name == "gen_ai.evaluation.result"
    assert dict(record.attributes) == {
        "gen_ai.evaluation.name": "solved",
        "gen_ai.evaluation.score.value": 1.0,
        "gen_ai.evaluation.score.label": "pass",
        "gen_ai.evaluation.explanation": "The tests pass.",
        "gen_ai.response.id": "chatcmpl-1",
        "lightning.rollout.id": "rollout-1",
        "lightning.task.id": "task-1",
    }
    assert isinstance(record.attributes["gen_ai.evaluation.score.value"], float)


def test_what_is_not_given_is_left_out(emitted: Any) -> None:
    evaluation_result("relevance", -0.5)
    (record,) = emitted()
    assert dict(record.attributes) == {
        "gen_ai.evaluation.name": "relevance",
        "gen_ai.evaluation.score.value": -0.5,
    }


def test_a_reward_names_the_current_span(emitted: Any, traced: Any) -> None:
    evaluation_result("outside", 0.0)
    with traced.provider.get_tracer("agent").start_as_current_span("run") as span:
        evaluation_result("inside", 1.0)
    outside, inside = emitted()
    assert (outside.trace_id, outside.span_id) == (trace.INVALID_TRACE_ID, trace.INVALID_SPAN_ID)
    current = span.get_span_context()
    assert (inside.trace_id, inside.span_id) == (current.trace_id, current.span_id)


def test_a_reward_belongs_to_the_rollout_in_force_unless_it_names_another(emitted: Any) -> None:
    token = context.attach(baggage.set_baggage("lightning.rollout.id", "in force"))
    try:
        evaluation_result("solved", 1.0)
        evaluation_result("solved", 1.0, rollout_id="another")
        evaluation_result("solved", 1.0, response_id="chatcmpl-1")
    finally:
        context.detach(token)
    assert [record.attributes.get("lightning.rollout.id") for record in emitted()] == [
        "in force",
        "another",
        None,
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, "1.0", None, Decimal(1)])
def test_a_value_that_is_no_number_is_refused(emitted: Any, value: Any) -> None:
    with pytest.raises(ValueError, match=r"'solved' has the value .* not a finite number"):
        evaluation_result("solved", value)
    assert emitted() == []


def test_every_text_of_a_reward_is_redacted_where_that_is_asked_for(
    emitted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTNING_REDACT", "emails")
    evaluation_result("solved", 0, explanation="Sent to ada@example.com.", rollout_id="a@b.org")
    (record,) = emitted()
    assert dict(record.attributes) == {
        "gen_ai.evaluation.name": "solved",
        "gen_ai.evaluation.score.value": 0.0,
        "gen_ai.evaluation.explanation": "Sent to [redacted:emails].",
        "lightning.rollout.id": "[redacted:emails]",
    }


def test_a_log_record_is_redacted_before_any_exporter_sees_it(
    emitted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTNING_REDACT", "emails")
    body = {"content": ["To ada@example.com", 7]}
    with ExitStack() as undo:
        logs.redact_logs(undo)
        _logs.get_logger("agent").emit(body=body, attributes={"to": "ada@example.com", "n": 1})
    (record,) = emitted()
    assert record.body == {"content": ["To [redacted:emails]", 7]}
    assert dict(record.attributes) == {"to": "[redacted:emails]", "n": 1}
    assert body["content"][0] == "To ada@example.com"
