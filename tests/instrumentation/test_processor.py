"""Rollout and task ids on spans."""

from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_lightning.instrumentation.processor import LightningSpanProcessor
from otel_lightning.instrumentation.tools import InferredTools


def stamped(parent: Context | None = None, **attributes: str) -> dict[str, Any]:
    """Give the attributes of a span that our processor alone has seen."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(LightningSpanProcessor(InferredTools(provider.get_tracer("test"))))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("agent").start_span("any", context=parent, attributes=attributes).end()
    return dict(exporter.get_finished_spans()[0].attributes or {})


def test_a_span_without_rollout_carries_nothing_of_ours() -> None:
    assert stamped() == {}


def test_ids_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTNING_ROLLOUT_ID", "rollout-1")
    monkeypatch.setenv("LIGHTNING_TASK_ID", "task-1")
    assert stamped() == {"lightning.rollout.id": "rollout-1", "lightning.task.id": "task-1"}


def test_baggage_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTNING_ROLLOUT_ID", "of the process")
    token = context.attach(baggage.set_baggage("lightning.rollout.id", "of the request"))
    try:
        assert stamped() == {"lightning.rollout.id": "of the request"}
    finally:
        context.detach(token)
    assert stamped() == {"lightning.rollout.id": "of the process"}


def test_baggage_is_read_from_the_context_that_the_span_is_started_in() -> None:
    parent = baggage.set_baggage("lightning.task.id", "task-2")
    assert stamped(parent) == {"lightning.task.id": "task-2"}


def test_an_id_that_the_agent_gives_itself_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTNING_ROLLOUT_ID", "of the process")
    own = {"lightning.rollout.id": "the agent's"}
    assert stamped(**own) == own
