"""Answers that lack their tool calls, and the spans that show what was asked for."""

from typing import Any

import pytest
from support.spans import span, text_message, tool_request

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.passes.answers import requests_in_spans
from otel_lightning.collector.derive.rows import Derived, LlmCall, Span, ToolCall
from otel_lightning.instrumentation import attributes as names

QUESTION = text_message("user", "Is it sunny in Rome?")
OUTLINE = {"role": "user", "parts": [{"type": "text"}]}
CITY = {"city": "Rome"}
BELOW, BESIDE = "call", "root"
"""The parents of an execution below its call, and beside it."""


def ran(parent: str, id: str = "call_1", at: float = 2) -> Span:  # noqa: A002
    given = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.id": id,
        "gen_ai.tool.call.arguments": CITY,
        "gen_ai.tool.call.result": "It shines.",
    }
    return span(given, id=id, parent=parent, at=at)


def derived(parent: str, **told: Any) -> Derived:
    """Return the rows of a call that ended with tool calls, and of an execution after it."""
    given = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        **{f"gen_ai.{key}.messages": value for key, value in told.items()},
    }
    call = span(given, id="call", parent="root")
    return derive([span({}, id="root", ends=9), call, ran(parent)], [])


@pytest.mark.parametrize("parent", [BELOW, BESIDE])
def test_an_execution_shows_what_a_recorded_call_asked_for(parent: str) -> None:
    (call,) = derived(
        parent, input=[QUESTION], output=[text_message("assistant", "I look.")]
    ).llm_calls
    (answer,) = call.output_messages or []
    assert answer["parts"] == [
        *text_message("assistant", "I look.")["parts"],
        *tool_request("call_1", "sun", CITY)["parts"],
    ]
    # A tool call that nobody executed is unknown, so this is not what the model said.
    assert (call.content, call.has_completion) == ("truncated", False)


@pytest.mark.parametrize("parent", [BELOW, BESIDE])
@pytest.mark.parametrize(("sent", "content"), [({}, "absent"), ({"input": [OUTLINE]}, "redacted")])
def test_a_call_without_content_gets_no_answer_from_executions(
    parent: str, sent: dict[str, Any], content: str
) -> None:
    rows = derived(parent, **sent)
    (call,) = rows.llm_calls
    assert (call.content, call.output_messages, call.has_completion) == (content, None, False)
    assert [tool.arguments for tool in rows.tool_calls] == [CITY]


def test_an_answer_with_tool_calls_gets_no_more_from_executions() -> None:
    whole = tool_request("call_0", "sun", CITY)
    (call,) = derived(BELOW, input=[QUESTION], output=[whole]).llm_calls
    assert (call.content, (call.output_messages or [{}])[0]["parts"]) == ("full", whole["parts"])


@pytest.mark.parametrize(
    ("content", "then"), [("full", "full"), ("absent", "truncated"), ("redacted", "redacted")]
)
def test_a_request_that_was_recorded_as_a_span_is_a_part_of_the_answer(
    content: str, then: str
) -> None:
    """AgentOps writes `tool_call.sun` for each tool call of an answer: nothing ran in it."""
    call = LlmCall("t", "call", None, 0, 1, "indexed", content=content, finish_reason="stop")
    request = ToolCall("sun", "t", "s", None, "call", "call_1", CITY, source="request")
    (changed,) = requests_in_spans.add([call], [request, request], [], {})
    assert [part["id"] for part in (changed.output_messages or [{}])[0]["parts"]] == ["call_1"]
    assert (changed.content, changed.has_completion) == (then, True)


UNKNOWN = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.input.messages": [QUESTION],
    "gen_ai.output.messages": [{"role": "assistant", "parts": []}],
}
"""A call whose answer is empty, as Google's ADK writes a streamed answer that asks for tools."""


def test_executions_below_a_call_show_an_answer_of_which_nothing_was_recorded() -> None:
    call = span(UNKNOWN, id="call", parent="root")
    rows = derive([span({}, id="root", ends=9), call, ran(BELOW), ran(BELOW, "call_2", at=3)], [])
    (asked,) = rows.llm_calls
    parts = (asked.output_messages or [{}])[0]["parts"]
    assert [part["id"] for part in parts] == ["call_1", "call_2"]
    assert (asked.finish_reason, asked.content, asked.has_completion) == (
        "tool_calls",
        "truncated",
        False,
    )
    assert [tool.llm_span_id for tool in rows.tool_calls] == ["call", "call"]


def test_an_execution_beside_a_call_does_not_show_an_unknown_answer() -> None:
    call = span(UNKNOWN, id="call", parent="root")
    (asked,) = derive([span({}, id="root", ends=9), call, ran(BESIDE)], []).llm_calls
    assert (asked.finish_reason, asked.from_executions) == (None, False)


def test_an_execution_below_an_empty_answer_that_ended_is_not_its_request() -> None:
    ended = UNKNOWN | {"gen_ai.response.finish_reasons": ["end_turn"], names.TRUNCATED: "input"}
    call = span(ended, id="call", parent="root")
    (asked,) = derive([span({}, id="root", ends=9), call, ran(BELOW)], []).llm_calls
    assert (asked.finish_reason, asked.from_executions) == ("stop", False)
