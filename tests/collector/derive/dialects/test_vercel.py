"""Spans of Vercel's AI SDK, also as other SDKs rewrite them."""

from typing import Any

import pytest
from support.spans import only_call, read_call, span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event

PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}
REQUEST = {"gen_ai.request.model": "m", "gen_ai.input.messages": [PLAIN_QUESTION]}


def test_an_id_that_the_ai_sdk_made_up_is_no_response_id() -> None:
    operation = {"ai.operationId": "ai.generateText.doGenerate"}
    assert read_call(span({**operation, "ai.response.id": "aitxt-1"})).response_id is None
    assert read_call(span({**operation, "ai.response.id": "msg_1"})).response_id == "msg_1"


MOVED = {
    "ai.operationId": "ai.generateText.doGenerate",
    "ai.telemetry.functionId": "weather",
    "ai.usage.cachedInputTokens": 3,
    "ai.usage.reasoningTokens": 2,
    "ai.response.reasoning": "I look outside.",
    "gen_ai.provider.name": "openai",
    "gen_ai.system": "openai.chat",
    "gen_ai.request.model": "m",
    "gen_ai.response.model": "m-1",
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.response.finish_reasons": ["tool-calls"],
    "gen_ai.usage.input_tokens": 34,
    "gen_ai.usage.output_tokens": 12,
    "gen_ai.tool.definitions": [
        {"type": "function", "name": "sun", "inputSchema": {"type": "object"}}
    ],
    "gen_ai.input.messages": [text_message("user", "Is it sunny in Rome?")],
}
"""A call of the AI SDK 6, as Traceloop's SDK 0.27 for JavaScript rewrites it."""


def test_the_content_that_traceloops_sdk_moves_in_spans_of_the_ai_sdk_is_read() -> None:
    answer = {"role": "assistant", "finish_reason": "tool_call"}
    part = {"type": "tool_call", "id": "c1", "name": "sun", "arguments": {"city": "Rome"}}
    given = {**MOVED, "gen_ai.output.messages": [{**answer, "parts": [part]}]}
    ran = {
        "ai.operationId": "ai.toolCall",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"city": "Rome"}',
        "gen_ai.tool.call.result": '"It shines."',
    }
    derived = derive([span(given), span(ran, id="s2", at=2)], [])
    (call,), (tool,) = derived.llm_calls, derived.tool_calls
    assert (call.dialect, call.agent_name, call.provider) == ("vercel", "weather", "openai")
    assert call.input_messages == [text_message("user", "Is it sunny in Rome?")]
    assert [one["type"] for one in (call.output_messages or [])[0]["parts"]] == [
        "reasoning",
        "tool_call",
    ]
    assert (call.finish_reason, call.content) == ("tool_calls", "full")
    assert (call.input_tokens, call.cached_input_tokens, call.reasoning_tokens) == (34, 3, 2)
    assert [one["name"] for one in call.tool_definitions or ()] == ["sun"]
    assert (tool.arguments, tool.result) == ({"city": "Rome"}, "It shines.")


def test_a_streamed_answer_whose_tool_calls_traceloops_sdk_loses_is_truncated() -> None:
    lost = {
        "role": "assistant",
        "finish_reason": "tool_call",
        "parts": [{"type": "text", "content": ""}],
    }
    ran = {
        "ai.operationId": "ai.toolCall",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"city": "Rome"}',
    }
    spans = [
        span({"ai.operationId": "ai.streamText"}, id="outer", ends=9),
        span({**MOVED, "gen_ai.output.messages": [lost]}, id="call", parent="outer", at=1),
        span(ran, id="tool", parent="outer", at=3),
    ]
    (call,) = derive(spans, []).llm_calls
    kinds = [part["type"] for part in (call.output_messages or [])[0]["parts"]]
    assert (kinds, call.content) == (["reasoning", "tool_call"], "truncated")


def test_laminars_copies_of_vercels_spans_are_runs_and_executions() -> None:
    """Laminar names no operation of a tool, and states the error of a call on the run alone."""
    failed = Event("exception", 0, {"exception.type": "AI_APICallError"})
    run = {"ai.operation": "ai.generateText", "ai.functionId": "desk", "lmnr.span.type": "DEFAULT"}
    tool = {
        "lmnr.span.type": "TOOL",
        "ai.toolCall.name": "sun",
        "ai.toolCall.id": "call_1",
        "ai.toolCall.args": {"city": "Rome"},
        "ai.toolCall.result": "It shines.",
        "lmnr.span.input": {"city": "Rome"},
        "lmnr.span.output": "It shines.",
    }
    history = [text_message("user", "Hi"), tool_request("call_1", "sun", {"city": "Rome"})]
    last = {**REQUEST, "gen_ai.input.messages": [*history, tool_response("call_1", "It shines.")]}
    derived = derive(
        [
            span(run, id="run", status="ERROR", events=(failed,)),
            span(tool, id="tool", parent="run", name="ai.tool sun", at=1),
            span({**last, "lmnr.span.type": "LLM"}, id="last", parent="run", at=2),
        ],
        [],
    )
    assert [(one.name, one.tool_call_id) for one in derived.tool_calls] == [("sun", "call_1")]
    assert [one.name for one in derived.agent_runs] == ["desk"]
    (call,) = derived.llm_calls
    assert (call.agent_name, call.error_type) == ("desk", "AI_APICallError")


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ({"type": "text", "value": "It shines."}, "It shines."),
        ({"type": "json", "value": "It shines."}, '"It shines."'),
        ({"type": "json", "value": {"sun": True}}, {"sun": True}),
    ],
    ids=["text", "a text as JSON", "an object"],
)
def test_a_text_that_vercels_sdk_sends_as_json_has_its_quotes(output: Any, told: Any) -> None:
    result = {"type": "tool-result", "toolCallId": "call_1", "output": output}
    prompt = [{"role": "user", "content": "Hi"}, {"role": "tool", "content": [result]}]
    given = {"ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": prompt}
    (_, tool) = only_call(span(given)).input_messages or []
    assert tool["parts"][0]["response"] == told


def test_a_stream_that_broke_off_failed_though_its_span_has_only_the_finish_reason() -> None:
    broken = {
        "ai.operationId": "ai.streamText.doStream",
        "ai.prompt.messages": [PLAIN_QUESTION],
        "ai.response.text": "It",
        "ai.response.finishReason": "error",
        "gen_ai.response.finish_reasons": ["error"],
    }
    moved = {
        **MOVED,
        "ai.response.finishReason": "error",
        "gen_ai.output.messages": [text_message("assistant", "It")],
    }
    for given in (broken, moved):
        (call,) = derive([span(given)], []).llm_calls
        assert (call.error_type, call.finish_reason) == ("_OTHER", "error")
