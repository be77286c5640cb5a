"""Blocks of an answer that a package wrote into a text."""

import json

from otel_lightning.collector.derive.text.messages import read_message
from otel_lightning.collector.derive.text.written_blocks import written_out

SUMMARY = [{"text": "It is day.", "type": "summary_text"}]
ITEM = {"id": "rs_1", "summary": SUMMARY, "type": "reasoning"}


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
