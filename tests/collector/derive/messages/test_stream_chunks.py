"""Responses that are put together from the chunks of a stream, which MLflow keeps as events."""

import json
from typing import Any

from support.spans import span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.messages import stream_chunks
from otel_lightning.collector.derive.rows import Event, LlmCall

HEAD = {"id": "chatcmpl-1", "model": "m-2026", "object": stream_chunks.CHUNK}
OWN = {
    "id": "chatcmpl-1",
    "model": "m-2026",
    "object": "chat.completion",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "own"}}],
}


def chunk(delta: dict[str, Any], *, index: int = 0, **more: Any) -> dict[str, Any]:
    """Return a chunk as OpenAI's client writes it, with null for what it does not say."""
    said = {"index": index, "finish_reason": None, "logprobs": None, **more}
    return {**HEAD, "choices": [{**said, "delta": {"content": None, "tool_calls": None, **delta}}]}


def part_of_call(at: int, arguments: str, **more: str | None) -> dict[str, Any]:
    name = more.pop("name", None)
    return {"index": at, "id": None, **more, "function": {"name": name, "arguments": arguments}}


def read(*chunks: dict[str, Any], since: int = 0) -> LlmCall:
    """Return the call that MLflow recorded with these chunks, the first of which has a number."""
    attributes = {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.spanInputs": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
        "mlflow.spanOutputs": OWN,
    }
    events = tuple(
        Event(f"mlflow.chunk.item.{number}", 0, {"mlflow.chunk.value": json.dumps(one)})
        for number, one in enumerate(chunks, since)
    )
    (call,) = derive([span(attributes, events=events)], []).llm_calls
    return call


def text_of(call: LlmCall) -> list[str]:
    return [part["content"] for said in call.output_messages or () for part in said["parts"]]


ASKING = (
    chunk({"reasoning_content": "I "}),
    chunk({"reasoning_content": "look."}),
    chunk({"tool_calls": [part_of_call(0, "", id="c1", name="sun")]}),
    chunk({"tool_calls": [part_of_call(0, '{"city":')]}),
    chunk(
        {"tool_calls": [part_of_call(0, '"Rome"}'), part_of_call(1, "{}", id="c2", name="rain")]}
    ),
    chunk({}, finish_reason="tool_calls"),
    {**HEAD, "choices": [], "usage": {"prompt_tokens": 31, "completion_tokens": 9}},
)


def test_tool_calls_reasoning_usage_and_reason_are_put_together() -> None:
    call = read(*ASKING)
    thought, sun, rain = (call.output_messages or [])[0]["parts"]
    assert thought == {"type": "reasoning", "content": "I look."}
    assert (sun["id"], sun["name"], sun["arguments"]) == ("c1", "sun", {"city": "Rome"})
    assert (rain["id"], rain["name"], rain["arguments"]) == ("c2", "rain", {})
    assert (call.finish_reason, call.content) == ("tool_calls", "full")
    assert (call.response_id, call.input_tokens, call.output_tokens) == ("chatcmpl-1", 31, 9)


def test_each_choice_and_its_tokens_are_put_together() -> None:
    def token(text: str, number: int, index: int) -> dict[str, Any]:
        logprobs = {"content": [{"token": text, "logprob": -number}]}
        return chunk({"content": text}, index=index, token_ids=[number], logprobs=logprobs)

    ends = [chunk({}, index=index, finish_reason="stop") for index in (0, 1)]
    call = read(token("Y", 1, 0), token("N", 2, 1), token("es", 3, 0), token("o", 4, 1), *ends)
    assert text_of(call) == ["Yes", "No"]
    assert (call.completion_token_ids, call.completion_logprobs) == ([1, 3], [-1.0, -3.0])


def test_a_stream_without_an_end_is_truncated() -> None:
    call = read(chunk({"content": "Ye"}))
    assert (text_of(call), call.finish_reason, call.content) == (["Ye"], None, "truncated")


def test_without_the_first_chunks_the_recorded_response_is_read() -> None:
    """OpenTelemetry keeps the last 128 events of a span."""
    assert text_of(read(*ASKING[2:], since=2)) == ["own"]


def test_chunks_of_another_kind_are_not_put_together() -> None:
    assert text_of(read({"type": "response.created", "response": {}})) == ["own"]
