"""Spans of vendors without a reader of their own: a type, an input and an output."""

from typing import Any

import pytest
from support.spans import ANSWER, QUESTION, span

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


@pytest.mark.parametrize(
    ("said", "row"),
    [
        ({"extracted_content": "The sun shines."}, ("The sun shines.", None)),
        ({"error": "No such page"}, ("No such page", "tool_error")),
    ],
)
def test_the_result_of_an_action_of_browser_use_is_what_the_model_is_told(
    said: dict[str, str], row: tuple[str, str | None]
) -> None:
    """Its version 0.13 writes the whole object, and its span ends without an error."""
    whole = {"is_done": False, "success": None, "error": None, "extracted_content": None, **said}
    action = {"lmnr.span.type": "TOOL", "lmnr.span.input": {}, "lmnr.span.output": whole}
    (tool,) = derive([span(action, name="navigate")], []).tool_calls
    assert (tool.result, tool.error_type) == row


def test_models_counts_names_and_threads_under_a_vendors_prefix_are_read() -> None:
    """DeepEval documents these for spans that its users write."""
    about = "confident.span."
    thread = {"confident.trace.thread_id": "t-7"}
    call = {
        f"{about}type": "llm",
        f"{about}input": ['{"role": "user", "content": "Hi"}'],
        f"{about}output": '{"role": "assistant", "content": "Hello"}',
        "confident.llm.model": "m",
        "confident.llm.input_token_count": 7,
        "confident.llm.output_token_count": 2,
    }
    tool = {f"{about}type": "tool", f"{about}input": {"a": 2}, f"{about}output": "5"}
    agent = {f"{about}type": "agent", f"{about}input": "Hi", "confident.agent.name": "helper"}
    spans = [
        span({**agent, **thread}, id="agent", name="support-chat"),
        span({**call, **thread}, id="call", parent="agent"),
        span({**tool, "confident.tool.name": "add"}, id="tool", parent="agent", name="add-span"),
    ]
    derived = derive(spans, [])
    (asked,) = derived.llm_calls
    assert (asked.input_messages, asked.output_messages) == ([QUESTION], [ANSWER])
    assert (asked.request_model, asked.input_tokens, asked.output_tokens) == ("m", 7, 2)
    assert (asked.rollout_id, asked.content) == ("t-7", "full")
    assert [run.name for run in derived.agent_runs] == ["helper"]
    assert [one.name for one in derived.tool_calls] == ["add"]


def test_texts_in_a_list_of_messages_stay_texts() -> None:
    given = {"v.span.type": "llm", "v.input": ["7", "{x"], "v.output": "Hello"}
    (call,) = derive([span(given)], []).llm_calls
    texts = [part["content"] for one in call.input_messages or [] for part in one["parts"]]
    assert texts == ["7", "{x"]
