"""MLflow's dialect."""

import json
from typing import Any

import pytest
from support.spans import read_call, span

from otel_lightning.collector.derive.dialects import read
from otel_lightning.collector.derive.rows import Event, ToolCall


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        (["Hello", "Hi"], ["Hello", "Hi"]),
        (json.dumps("Hello"), ["Hello"]),
        (json.dumps("<openai.Stream object at 0x7f00>"), []),
    ],
)
def test_mlflows_answers_may_be_texts(answer: Any, texts: list[str]) -> None:
    call = read_call(span({"mlflow.spanType": '"LLM"', "mlflow.spanOutputs": answer}))
    assert [one["parts"][0]["content"] for one in call.output_messages or []] == texts


ASKED = {"type": "function_call", "call_id": "c1", "name": "sun", "arguments": "{}"}
SAID = {"role": "user", "blocks": [{"block_type": "text", "text": "Hi"}]}


def test_a_request_that_llama_index_prepares_is_no_call() -> None:
    prepared = {"messages": [SAID], "tools": []}
    keys = {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": {"chat_history": [SAID]}}
    assert read(span({**keys, "mlflow.spanOutputs": prepared})) is None
    assert read(span({**keys, "mlflow.spanOutputs": {"message": SAID, **prepared}})) is not None


def test_llama_indexs_answer_of_a_stream_has_its_message_and_its_last_chunk() -> None:
    asks = {"block_type": "tool_call", "tool_call_id": "c1", "tool_name": "sun", "tool_kwargs": {}}
    message = {"role": "assistant", "blocks": [asks]}
    last = {"id": "r1", "model": "m-1", "choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    keys = {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": {"messages": [SAID]}}
    call = read_call(span({**keys, "mlflow.spanOutputs": {"message": message, "raw": last}}))
    (answer,) = call.output_messages or []
    assert answer["parts"] == [{"type": "tool_call", "id": "c1", "name": "sun", "arguments": {}}]
    assert (call.response_id, call.response_model, call.finish_reason) == (
        "r1",
        "m-1",
        "tool_calls",
    )
    assert call.input_messages == [{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]


def test_objects_among_the_arguments_of_llama_indexs_tools_are_left_out() -> None:
    given = {"kwargs": {"city": "Rome", "ctx": "<workflows.Context object at 0x7f>"}}
    keys = {"mlflow.spanType": '"TOOL"', "name": '"sun"', "description": '"Tell."'}
    tool = read(span({**keys, "mlflow.spanInputs": given}, name="FunctionTool.acall"))
    assert isinstance(tool, ToolCall)
    assert (tool.name, tool.arguments) == ("sun", {"city": "Rome"})


def test_what_came_of_a_response_that_broke_off_is_in_mlflows_chunks() -> None:
    events = [
        {
            "type": "response.created",
            "response": {"object": "response", "id": "r1", "model": "m-1"},
        },
        {"type": "response.output_item.done", "output_index": 0, "item": ASKED},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "I wai"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "t fo"},
    ]
    chunks = tuple(
        Event(f"mlflow.chunk.item.{number}", number, {"mlflow.chunk.value": json.dumps(event)})
        for number, event in enumerate(events)
    )
    given = {"model": "m", "input": "Hi", "tools": []}
    keys = {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": given}
    call = read_call(span(keys, events=chunks, status="ERROR"))
    assert (call.request_model, call.response_model, call.response_id) == ("m", "m-1", "r1")
    (answer,) = call.output_messages or []
    assert [part["type"] for part in answer["parts"]] == ["tool_call", "text"]
    assert answer["parts"][1]["content"] == "I wait fo"
    assert (call.finish_reason, call.content) == ("error", "truncated")
