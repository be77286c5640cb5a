"""Judgment's spans, which have a type but no input or output under their own prefix."""

from typing import Any

from support.spans import only_call, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall

REQUEST = {
    "model": "m",
    "temperature": 0,
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"type": "function", "function": {"name": "sun", "parameters": {}}}],
}


SAID = {"role": "assistant", "content": "Hello"}
RESPONSE = {
    "id": "r1",
    "model": "m-1",
    "choices": [{"index": 0, "finish_reason": "stop", "message": SAID}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2},
}


def read(completion: Any, **more: Any) -> LlmCall:
    attributes = {
        "judgment.span_kind": "llm",
        "gen_ai.prompt": REQUEST,
        "gen_ai.completion": completion,
    }
    (call,) = derive([span(attributes | more)], []).llm_calls
    return call


def test_whole_requests_and_responses_are_read() -> None:
    call = read(RESPONSE)
    assert (call.request_model, call.response_model, call.response_id) == ("m", "m-1", "r1")
    assert (call.input_tokens, call.output_tokens, call.finish_reason) == (7, 2, "stop")
    assert call.request_params == {"temperature": 0}
    assert [tool["name"] for tool in call.tool_definitions or []] == ["sun"]
    assert call.content == "full"


def test_the_text_of_a_stream_is_an_answer_that_may_lack_tool_calls() -> None:
    call = read("Hello", **{"judgment.usage.metadata": RESPONSE["usage"]})
    assert (call.output_messages or [])[0]["parts"] == [{"type": "text", "content": "Hello"}]
    assert (call.input_tokens, call.output_tokens, call.content) == (7, 2, "truncated")


def test_tools_and_agents_are_read() -> None:
    tool = {"judgment.span_kind": "tool", "judgment.input": {"city": "Rome"}}
    agent = {"judgment.span_kind": "agent", "judgment.input": {"text": "Hi"}}
    derived = derive(
        [
            span(tool | {"judgment.output": "It shines."}, id="t", parent="a", name="sun"),
            span(agent, id="a", name="desk"),
        ],
        [],
    )
    (ran,), (run,) = derived.tool_calls, derived.agent_runs
    assert (ran.name, ran.arguments, ran.result) == ("sun", {"city": "Rome"}, "It shines.")
    assert (run.kind, run.name) == ("agent", "desk")


def test_a_request_under_a_vendors_prefix_is_read_whole() -> None:
    """Judgment for JavaScript has the provider's request, and of a stream the text alone."""
    request = {"model": "m", "input": "Is it sunny in Rome?", "stream": True, "top_p": 0.5}
    given = {
        "judgment.span_kind": "llm",
        "judgment.llm.model": "m-1",
        "judgment.input": request,
        "judgment.output": '{"sun":true}',
        "judgment.usage.metadata": {"input_tokens": 7, "output_tokens": 2},
    }
    call = only_call(span(given))
    assert (call.request_model, call.response_model) == ("m", "m-1")
    assert (call.input_tokens, call.output_tokens) == (7, 2)
    assert call.request_params == {"stream": True, "top_p": 0.5}
    assert call.input_messages == [text_message("user", "Is it sunny in Rome?")]
    assert [one["parts"] for one in call.output_messages or []] == [
        [{"type": "text", "content": '{"sun":true}'}]
    ]
    # A stream's tool calls are not in its text.
    assert call.content == "truncated"
    assert only_call(span({**given, "judgment.llm.model": "m"})).response_model is None
