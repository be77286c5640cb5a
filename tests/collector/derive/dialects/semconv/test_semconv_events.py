"""Messages of the GenAI conventions in events and log records."""

import json
from typing import Any

import pytest
from support.spans import assert_read, chat, log, only_call, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, Log

DETAILS = "gen_ai.client.inference.operation.details"
BARE = {"gen_ai.operation.name": "chat"}
SPAN_IDS = {"trace": "t1", "span_id": "s1"}


@pytest.mark.parametrize("carrier", ["event", "log"])
def test_content_in_a_details_event_is_read_whichever_way_it_came(carrier: str) -> None:
    content = chat([text_message("user", "Hi")], text_message("assistant", "Hello"))
    if carrier == "event":
        texts = {key: json.dumps(value) for key, value in content.items()}
        given = span({"gen_ai.operation.name": "chat"}, events=(Event(DETAILS, 0, texts),))
        derived = derive([given], [])
    else:
        record = log(DETAILS, content, trace="t1", span_id="s1")
        derived = derive([span({"gen_ai.operation.name": "chat"})], [record])
    (call,) = derived.llm_calls
    assert call.input_messages == [text_message("user", "Hi")]
    assert call.output_messages == [text_message("assistant", "Hello")]


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
    assert_read(only_call(span(BARE), logs=[answer, question]))


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
    history = only_call(span(BARE), logs=records).input_messages or []
    assert [message["role"] for message in history] == [
        "system", "user", "assistant", "tool", "tool",
    ]  # fmt: skip
    assert [message["parts"][0]["id"] for message in history[-2:]] == ["c0", "c1"]


def test_events_that_hold_a_whole_message_in_one_attribute_are_read() -> None:
    def event(name: str, message: dict[str, Any], at: int) -> Event:
        return Event(name, at, {"gen_ai.event.content": json.dumps(message)})

    events = (
        event("gen_ai.user.message", {"role": "user", "content": "Hi"}, 0),
        event("gen_ai.choice", {"message": {"content": "Hello"}, "finish_reason": "stop"}, 1),
    )
    assert_read(only_call(span(BARE, events=events)))


def test_events_and_tools_that_one_attribute_lists_are_read() -> None:
    messages = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": "Hi"},
        {"event.name": "gen_ai.choice", "index": 0, "message": {"content": "Hello"}},
    ]
    offered = {"function_tools": [{"name": "add", "parameters_json_schema": {}}]}
    call = only_call(span({**BARE, "events": messages, "model_request_parameters": offered}))
    assert_read(call)
    assert call.tool_definitions == [{"type": "function", "name": "add"}]
    ran = {"gen_ai.tool.name": "add", "gen_ai.tool.call.id": "c1", "tool_response": "5"}
    (tool,) = derive([span({**ran, "tool_arguments": {"a": 2}})], []).tool_calls
    assert (tool.name, tool.tool_call_id, tool.arguments, tool.result) == ("add", "c1", {"a": 2}, 5)


@pytest.mark.parametrize(("second", "count"), [("c1", 1), ("c2", 2)])
def test_a_result_that_two_neighbouring_events_repeat_is_read_once(second: str, count: int) -> None:
    told = [{"text": "It shines."}]
    block = {"toolResult": {"toolUseId": second, "content": told}}
    logs = [
        log("gen_ai.user.message", body={"content": "Sun and rain?"}, at=0.1, **SPAN_IDS),
        log("gen_ai.tool.message", body={"id": "c1", "content": told}, at=0.2, **SPAN_IDS),
        log("gen_ai.user.message", body={"content": [block]}, at=0.3, **SPAN_IDS),
    ]
    (call,) = derive([span({"gen_ai.operation.name": "chat"})], logs).llm_calls
    results = [said for said in call.input_messages or () if said["role"] == "tool"]
    assert len(results) == count
