"""Anthropic's messages: requests read, answers written."""

import json
import uuid
from typing import Any

from support.provider.chat import text_of
from support.provider.script import Answer, Message

Json = dict[str, Any]


def read(body: Json, _held: dict[str, list[Message]]) -> tuple[list[Message], list[Json]]:
    """Return the messages and the tools of a request."""
    messages: list[Message] = []
    if body.get("system"):
        messages.append({"role": "system", "content": text_of(body["system"])})
    for sent in body["messages"]:
        blocks = sent["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        messages += _results(blocks)
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        calls = [
            {"id": block["id"], "name": block["name"], "arguments": json.dumps(block["input"])}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        if text or calls:
            message: Message = {"role": sent["role"], "content": text or None}
            messages.append(message | ({"tool_calls": calls} if calls else {}))
    tools = [
        {
            "name": tool["name"],
            "description": tool.get("description"),
            "parameters": tool["input_schema"],
        }
        for tool in body.get("tools") or ()
    ]
    return messages, tools


def _results(blocks: list[Json]) -> list[Message]:
    return [
        {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text_of(block["content"])}
        for block in blocks
        if block["type"] == "tool_result"
    ]


def write(body: Json, answer: Answer) -> tuple[Json, str, list[str], Json]:
    """Return the answer's body, its id, its finish reasons and its usage."""
    content: list[Json] = [] if answer.text is None else [{"type": "text", "text": answer.text}]
    content += [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["name"],
            "input": json.loads(call["arguments"]),
        }
        for call in answer.tool_calls
    ]
    reason = "tool_use" if answer.tool_calls else "end_turn"
    name = f"msg_{uuid.uuid4().hex[:24]}"
    whole = {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 31, "output_tokens": 9},
    }
    counted = {"input_tokens": 31, "output_tokens": 9, "total_tokens": 40}
    return whole, name, [reason], counted


def stream(_body: Json, whole: Json) -> bytes:
    """Return the answer as the events of a stream."""
    begun = {**whole, "content": [], "stop_reason": None}
    begun["usage"] = {"input_tokens": 31, "output_tokens": 1}
    events: list[Json] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty, deltas = {"type": "text", "text": ""}, _text_deltas(block["text"])
        else:
            arguments = json.dumps(block["input"])
            empty = {**block, "input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": part}
                for part in (arguments[:6], arguments[6:])
            ]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 9}})
    events.append({"type": "message_stop"})
    return "".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events
    ).encode()


def _text_deltas(text: str) -> list[Json]:
    half = len(text) // 2
    return [{"type": "text_delta", "text": part} for part in (text[:half], text[half:])]


def refuse(status: int, message: str) -> Json:
    """Return the body of an error."""
    kind = {400: "invalid_request_error"}[status]
    return {"type": "error", "error": {"type": kind, "message": message}}
