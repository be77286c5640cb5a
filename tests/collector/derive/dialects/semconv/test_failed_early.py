"""Spans of calls and tools that failed before their attributes were set."""

import pytest
from support.spans import only_call, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event

OPENLIT, ADK = "openlit.instrumentation.anthropic", "gcp.vertex.agent"


@pytest.mark.parametrize(
    ("name", "scope", "model"), [("chat m", OPENLIT, "m"), ("call_llm", ADK, None)]
)
def test_a_call_that_failed_before_its_keys_were_set_is_a_failed_call(
    name: str, scope: str, model: str | None
) -> None:
    raised = Event("exception", 7, {"exception.type": "anthropic.BadRequestError"})
    call = only_call(span({}, name=name, scope=scope, status="ERROR", events=(raised,)))
    assert (call.operation, call.request_model, call.error_type) == (
        "chat",
        model,
        "BadRequestError",
    )


def test_a_tool_that_failed_before_its_keys_were_set_is_a_failed_execution() -> None:
    failed = span({}, name="execute_tool sun", scope=ADK, status="ERROR")
    (tool,) = derive([failed], []).tool_calls
    assert (tool.name, tool.error_type) == ("sun", "_OTHER")


@pytest.mark.parametrize(
    ("name", "scope", "status"),
    [
        ("chat m", "my.service", "ERROR"),
        ("chat m", OPENLIT, "UNSET"),
        ("POST", OPENLIT, "ERROR"),
        ("chat", OPENLIT, "ERROR"),
    ],
)
def test_other_spans_without_keys_are_no_calls(name: str, scope: str, status: str) -> None:
    assert derive([span({}, name=name, scope=scope, status=status)], []).llm_calls == []
