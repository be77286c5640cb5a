"""Traceloop's package for LangChain in JavaScript, which leaves out tool calls."""

from collections import defaultdict

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.spans import chat, only_call, span, text_message, trace_keys

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Message, Span

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


def executed(result: object = None, *, status: str = "UNSET") -> Span:
    given = {
        "gen_ai.operation.name": "execute_tool",
        "traceloop.entity.name": "DynamicStructuredTool",
        "traceloop.entity.input": '{"args":["{\\"city\\":\\"Rome\\"}"]}',
    }
    told = {"traceloop.entity.output": result} if result else {}
    return span({**given, **told}, trace="tool", scope=SCOPE, status=status)


def test_a_failed_tool_without_a_name_is_no_row() -> None:
    assert derive([executed(status="STATUS_CODE_ERROR")], []).tool_calls == []


MESSAGE = {"content": "Sunny.", "tool_call_id": "call_1", "name": "task"}


def test_the_command_of_a_tool_holds_its_message() -> None:
    sent = [{"lc": 1, "id": ["langchain_core", "messages", "ToolMessage"], "kwargs": MESSAGE}]
    command = {"lg_name": "Command", "update": {"files": {}, "messages": sent}, "goto": []}
    (tool,) = derive([executed(command)], []).tool_calls
    assert (tool.name, tool.tool_call_id, tool.result) == ("task", "call_1", "Sunny.")


def test_an_execution_is_derived_together_with_the_call_that_repeats_its_request() -> None:
    blocks = '[{"type":"tool_use","id":"call_1","name":"task","input":{"city":"Rome"}}]'
    sent = [QUESTION, text_message("assistant", blocks), text_message("tool", "Sunny.")]
    later = span(chat(sent, text_message("assistant", "Yes.")), trace="call", at=2, scope=SCOPE)
    tool = executed({"lc": 1, "kwargs": MESSAGE})
    assert trace_keys([later], []) & trace_keys([tool], [])
    (row,) = derive([tool, later], []).tool_calls
    assert (row.rollout_id, row.source) == ("call", "both")


def test_a_turn_whose_blocks_were_all_left_out_says_nothing() -> None:
    sent = [QUESTION, text_message("assistant", "[]"), text_message("tool", "Sunny.")]
    call = only_call(span(chat(sent, text_message("assistant", "Yes.")), scope=SCOPE))
    assert [message["parts"] for message in call.input_messages or ()][1] == []


def test_an_answer_without_content_and_reason_lacks_something() -> None:
    given = chat([QUESTION], text_message("assistant", ""))
    assert only_call(span(given)).content == "truncated"
