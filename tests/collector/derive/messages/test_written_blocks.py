"""Blocks of an answer that a package wrote into a text."""

import json
from typing import Any

import pytest
from support.spans import QUESTION, chat, only_call, span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.messages.one_message import read_message
from otel_lightning.collector.derive.messages.written_blocks import written_out

SUMMARY = [{"text": "It is day.", "type": "summary_text"}]
ITEM = {"id": "rs_1", "summary": SUMMARY, "type": "reasoning"}
PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}


def test_an_item_with_reasoning_is_reasoning() -> None:
    written = {"type": "text", "content": json.dumps(ITEM)}
    assert written_out(written) == [{"type": "reasoning", "content": "It is day."}]
    call = {"type": "tool_call", "id": "c1", "name": "sun", "arguments": {}}
    (message,) = read_message({"role": "assistant", "parts": [written, call]})
    assert [part["type"] for part in message["parts"]] == ["reasoning", "tool_call"]


def test_an_item_without_reasoning_is_left_out() -> None:
    assert written_out({"type": "text", "content": json.dumps(ITEM | {"summary": []})}) == []


def test_json_that_a_model_wrote_itself_stays_a_text() -> None:
    said = {"type": "text", "content": json.dumps({"type": "reasoning", "text": "I think."})}
    assert written_out(said) == [said]


CALL_ITEM = {
    "type": "function_call",
    "call_id": "c1",
    "name": "sun",
    "arguments": '{"city": "Rome"}',
}


@pytest.mark.parametrize("spell", [str, json.dumps])
def test_tool_calls_that_a_package_wrote_into_the_text_of_an_answer_are_read(spell: Any) -> None:
    """LangChain's content for the Responses API is a list of items."""
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    answer = text_message("assistant", spell([thought, CALL_ITEM])) | {"finish_reason": "stop"}
    call = only_call(span(chat([QUESTION], answer)))
    (answer,) = call.output_messages or []
    assert [part["type"] for part in answer["parts"]] == ["reasoning", "tool_call"]
    assert (answer["parts"][1]["id"], call.finish_reason) == ("c1", "tool_calls")


def test_anthropics_blocks_that_were_written_as_python_spells_them_are_read() -> None:
    """Logfire writes so the blocks of an answer that the agent sends back as it got them."""
    spelled = [
        "ThinkingBlock(signature='c2ln', thinking='I look.', type='thinking')",
        "TextBlock(citations=None, text='A moment.', type='text')",
        "ToolUseBlock(id='c1', caller=None, input={'city': 'Oslo'}, name='sun', type='tool_use')",
    ]
    turn = {"role": "assistant", "parts": [{"type": "text", "content": one} for one in spelled]}
    call = only_call(
        span(
            chat(
                [PLAIN_QUESTION, turn, tool_response("c1", "It shines.")],
                text_message("assistant", "Yes"),
            )
        )
    )
    (request,) = tool_request("c1", "sun", {"city": "Oslo"})["parts"]
    assert (call.input_messages or [])[1]["parts"] == [
        {"type": "reasoning", "content": "I look."},
        {"type": "text", "content": "A moment."},
        request,
    ]


def test_anthropics_blocks_that_were_written_as_json_are_read_once() -> None:
    """Traceloop writes so the blocks of LangChain's messages, beside the tool calls in them."""
    request = tool_request("c1", "sun", {"city": "Oslo"})
    blocks = [
        {"signature": "c2ln", "thinking": "I look.", "type": "thinking"},
        {"id": "c1", "input": {}, "name": "sun", "type": "tool_use"},
    ]
    texts = [{"type": "text", "content": json.dumps(block)} for block in blocks]
    turn = {"role": "assistant", "parts": [*texts, *request["parts"]]}
    call = only_call(span(chat([PLAIN_QUESTION], turn)))
    thought = {"type": "reasoning", "content": "I look."}
    assert (call.output_messages or [])[0]["parts"] == [thought, *request["parts"]]


@pytest.mark.parametrize("text", ['{"type": "tool_use"}', '{"type": "thought", "thinking": 1}'])
def test_an_answer_in_json_is_no_block(text: str) -> None:
    call = only_call(span(chat([PLAIN_QUESTION], text_message("assistant", text))))
    assert (call.output_messages or [])[0]["parts"] == [{"type": "text", "content": text}]


@pytest.mark.parametrize("text", ["TextBlock(", "TextBlock(text=hello())", "ToolUseBlock()"])
def test_a_text_that_only_begins_like_a_block_is_a_text(text: str) -> None:
    call = only_call(span(chat([PLAIN_QUESTION], text_message("assistant", text))))
    assert (call.output_messages or [])[0]["parts"] == [{"type": "text", "content": text}]
