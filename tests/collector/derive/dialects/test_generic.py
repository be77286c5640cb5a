"""Spans of vendors without a reader of their own: a type, an input and an output."""

from typing import Any

import pytest
from support.spans import QUESTION, span

from otel_lightning.collector.derive.assemble import derive


@pytest.mark.parametrize(
    ("kind", "content"),
    [("langwatch.span.type", "langwatch."), ("new.span.kind", "new.span."), ("span.type", "")],
)
def test_a_vendors_own_spans_are_read_by_type_input_and_output(kind: str, content: str) -> None:
    def typed(value: Any) -> dict[str, Any]:
        return {"type": "json", "value": value}

    asks = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "add"}}]}
    call = {kind: "LLM", f"{content}input": typed([{"role": "user", "content": "Hi"}])}
    tool = {kind: "tool", f"{content}input": typed({"a": 2}), f"{content}output": "5"}
    spans = [
        span({kind: "agent", f"{content}input": "Hi"}, id="agent", name="helper"),
        span({**call, f"{content}output": typed([asks])}, id="call", parent="agent"),
        span(tool, id="tool", parent="agent", name="add", at=2),
    ]
    derived = derive(spans, [])
    assert [run.name for run in derived.agent_runs] == ["helper"]
    assert [one.input_messages for one in derived.llm_calls] == [[QUESTION]]
    assert [(one.tool_call_id, one.arguments, one.result) for one in derived.tool_calls] == [
        ("c1", {"a": 2}, 5)
    ]


def test_the_parameters_of_an_action_of_browser_use_are_its_arguments() -> None:
    given = {"action": "wait", "params": {"seconds": 1}}
    said_ = {"lmnr.span.type": "TOOL", "lmnr.span.input": given, "lmnr.span.output": "waited"}
    (waited,) = derive([span(said_, name="wait")], []).tool_calls
    (other,) = derive([span(said_, name="act")], []).tool_calls
    assert (waited.arguments, other.arguments) == ({"seconds": 1}, given)
