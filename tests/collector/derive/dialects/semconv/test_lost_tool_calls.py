"""Traceloop's package for LangChain in JavaScript, which leaves out tool calls."""

from collections import defaultdict

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.spans import chat, only_call, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Message, ToolCall

SCOPE = "@traceloop/instrumentation-langchain"
QUESTION = text_message("user", "Sun in Rome?")


@pytest.mark.parametrize("scenario", ["anthropic", "chat", "responses"])
def test_calls_of_one_run_are_one_rollout_and_none_is_whole(scenario: str) -> None:
    capture = load(DATA / "js_traceloop_langchain" / f"{scenario}.truth.json")
    derived = derive(capture.spans, capture.logs)
    runs: dict[str | None, set[str]] = defaultdict(set)
    for call in derived.llm_calls:
        assert call.content == "truncated"
        runs[call.rollout_id].add(str((call.input_messages or [])[1]["parts"]))
    assert [len(questions) for questions in runs.values()] == [1] * len(
        {call["task"] for call in capture.truth["llm_calls"]}
    )


def test_executions_of_anthropics_agents_are_one_row_in_the_rollout_of_their_calls() -> None:
    capture = load(DATA / "js_traceloop_langchain" / "anthropic.truth.json")
    derived = derive(capture.spans, capture.logs)
    calls = {call.span_id: call for call in derived.llm_calls}
    assert len(derived.tool_calls) == len(capture.truth["tool_executions"])
    for tool in derived.tool_calls:
        asker = calls[tool.llm_span_id or ""]
        assert tool.rollout_id == asker.rollout_id
        assert tool.tool_call_id in ids(asker.output_messages)


def ids(messages: list[Message] | None) -> list[str | None]:
    parts = [part for message in messages or () for part in message["parts"]]
    return [part["id"] for part in parts if part["type"] == "tool_call"]


@pytest.mark.parametrize(
    ("reason", "content"), [(None, "truncated"), ("tool_call", "truncated"), ("stop", "full")]
)
def test_only_a_finish_reason_tells_that_an_answer_lacks_no_tool_calls(
    reason: str | None, content: str
) -> None:
    more = {"gen_ai.response.finish_reasons": [reason]} if reason else {}
    given = chat([QUESTION], text_message("assistant", "Yes."), more)
    assert only_call(span(given, scope=SCOPE)).content == content


def failed_tool() -> list[ToolCall]:
    given = {
        "gen_ai.operation.name": "execute_tool",
        "traceloop.entity.name": "DynamicStructuredTool",
        "traceloop.entity.input": '{"args":["{\\"city\\":\\"Rome\\"}"]}',
    }
    return derive([span(given, scope=SCOPE, status="STATUS_CODE_ERROR")], []).tool_calls


def test_a_failed_tool_without_a_name_is_no_row() -> None:
    assert failed_tool() == []


def test_an_answer_without_content_and_reason_lacks_something() -> None:
    given = chat([QUESTION], text_message("assistant", ""))
    assert only_call(span(given)).content == "truncated"
