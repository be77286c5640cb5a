"""Instrumentations that nobody recorded: whatever speaks the conventions is read all the same."""

from typing import Any

import pytest
from spans import asked, chat, log, said, span

from otel_lightning.collector.derive import derive
from otel_lightning.collector.records import Event, LlmCall, Log, Span

QUESTION, ANSWER = said("user", "Hi"), said("assistant", "Hello")
BARE = {"gen_ai.operation.name": "chat"}


def only_call(given: Span, *logs: Log) -> LlmCall:
    (call,) = derive([given], logs).llm_calls
    return call


def assert_read(call: LlmCall) -> None:
    assert call.input_messages == [QUESTION]
    (answer,) = call.output_messages or []
    assert answer["parts"] == ANSWER["parts"]
    assert call.content == "full"


@pytest.mark.parametrize(
    ("history", "output"),
    [
        ([{"role": "user", "content": "Hi"}], [{"role": "assistant", "content": "Hello"}]),
        (QUESTION, ANSWER),
        ("Hi", "Hello"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            [{"role": "model", "parts": [{"text": "Hello"}]}],
        ),
    ],
    ids=["a provider's own form", "one message alone", "bare text", "blocks"],
)
def test_messages_are_read_in_any_form_under_the_conventions_keys(
    history: Any, output: Any
) -> None:
    given = {**BARE, "gen_ai.input.messages": history, "gen_ai.output.messages": output}
    assert_read(only_call(span(given)))


def test_the_early_conventions_content_events_are_read() -> None:
    prompt = {"gen_ai.prompt": '[{"role": "user", "content": "Hi"}]'}
    completion = {"gen_ai.completion": '[{"role": "assistant", "content": "Hello"}]'}
    events = (
        Event("gen_ai.content.prompt", 0, prompt),
        Event("gen_ai.content.completion", 1, completion),
    )
    assert_read(only_call(span({**BARE, "gen_ai.system": "newcomer"}, events=events)))


@pytest.mark.parametrize("where", ["body", "text", "attributes"])
def test_content_that_only_logs_have_is_read_from_body_or_attributes(where: str) -> None:
    def record(name: str, text: str, at: float) -> Log:
        fields = {"content": text}
        body = {"body": fields, "text": text, "attributes": None}[where]
        attributes = fields if where == "attributes" else {}
        return log(name, attributes, trace="t1", span_id="s1", body=body, at=at)

    answer = record("gen_ai.choice", "Hello", 1)
    question = record("gen_ai.user.message", "Hi", 0)
    assert_read(only_call(span(BARE), answer, question))


def test_records_of_one_instant_are_put_in_order_by_role_and_number() -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        for n in range(2)
    ]
    records = [
        log(name, trace="t1", span_id="s1", body=body)
        for name, body in (
            ("gen_ai.choice", {"index": 0, "message": {"content": "Five"}}),
            ("gen_ai.tool.message", {"id": "c1", "content": "b"}),
            ("gen_ai.tool.message", {"id": "c0", "content": "a"}),
            ("gen_ai.assistant.message", {"tool_calls": calls}),
            ("gen_ai.user.message", {"content": "Hi"}),
            ("gen_ai.system.message", {"content": "Help."}),
        )
    ]
    history = only_call(span(BARE), *records).input_messages or []
    assert [message["role"] for message in history] == [
        "system", "user", "assistant", "tool", "tool",
    ]  # fmt: skip
    assert [message["parts"][0]["id"] for message in history[-2:]] == ["c0", "c1"]


def test_a_stream_left_before_its_end_is_truncated() -> None:
    begun = {**ANSWER, "finish_reason": ""}
    call = only_call(span(chat([QUESTION], begun, {"gen_ai.is_streaming": True})))
    assert (call.content, call.finish_reason) == ("truncated", None)


def test_a_call_is_offered_the_tools_that_only_its_agent_names() -> None:
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.tool.definitions": tools}
    spans = [
        span(agent, id="agent"),
        span(chat([QUESTION], asked("c1", "add", {})), id="call", parent="agent"),
        span({**BARE, "gen_ai.operation.name": "embeddings"}, id="embed", parent="agent"),
    ]
    offered = {call.span_id: call.tool_definitions for call in derive(spans, []).llm_calls}
    assert offered == {"call": tools, "embed": None}


def test_a_deep_trace_is_read_without_recursion_to_the_nearest_agent() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    levels = [span({}, id=f"s{n}", parent=f"s{n - 1}", at=n) for n in range(1, 5_000)]
    call = span(chat([QUESTION], ANSWER), id="call", parent="s4999", at=6_000)
    derived = derive([call, *reversed(levels), span(agent, id="s0")], [])
    assert [one.agent_name for one in derived.llm_calls] == ["planner"]
