"""Responses: requests read, answers written. The server holds each conversation by response id."""

import json
import uuid
from typing import Any

from support.provider.chat import text_of
from support.provider.script import Answer, Message

Json = dict[str, Any]


def read(body: Json, held: dict[str, list[Message]]) -> tuple[list[Message], list[Json]]:
    """Return the messages and the tools of a request; earlier turns from what is held."""
    messages = list(held.get(body.get("previous_response_id") or "", ()))
    if body.get("instructions"):
        messages = [one for one in messages if one["role"] != "system"]
        messages.insert(0, {"role": "system", "content": body["instructions"]})
    sent = body["input"]
    for item in [{"role": "user", "content": sent}] if isinstance(sent, str) else sent:
        _take(item, messages)
    tools = [
        {name: tool[name] for name in ("name", "description", "parameters") if tool.get(name)}
        for tool in body.get("tools") or ()
        if tool["type"] == "function"
    ]
    return messages, tools


def _take(item: Json, messages: list[Message]) -> None:
    if item.get("type") == "function_call":
        call = {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
        if not (messages and messages[-1].get("tool_calls")):
            messages.append({"role": "assistant", "content": None, "tool_calls": []})
        messages[-1]["tool_calls"].append(call)
    elif item.get("type") == "function_call_output":
        result = {"content": text_of(item["output"]), "tool_call_id": item["call_id"]}
        messages.append({"role": "tool", **result})
    elif "role" in item:
        messages.append({"role": item["role"], "content": text_of(item["content"])})


def write(body: Json, answer: Answer) -> tuple[Json, str, list[str], Json]:
    """Return the answer's body, its id, its finish reasons and its usage."""
    name = f"resp_{uuid.uuid4().hex[:24]}"
    usage = {"input_tokens": 31, "output_tokens": 9, "total_tokens": 40}
    details = {"cached_tokens": 0, "cache_write_tokens": 0}
    whole = {
        "id": name,
        "object": "response",
        "created_at": 1767225600,
        "model": body["model"],
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "previous_response_id": body.get("previous_response_id"),
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": 1.0,
        "top_p": 1.0,
        "output": _items(answer),
        "usage": {
            **usage,
            "input_tokens_details": details,
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    return whole, name, ["completed"], usage


def _items(answer: Answer) -> list[Json]:
    items: list[Json] = [
        {
            "type": "function_call",
            "id": f"fc_{uuid.uuid4().hex[:24]}",
            "call_id": call["id"],
            "name": call["name"],
            "arguments": call["arguments"],
            "status": "completed",
        }
        for call in answer.tool_calls
    ]
    if answer.text is not None:
        text = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{uuid.uuid4().hex[:24]}", "role": "assistant"}
        items.append({**message, "status": "completed", "content": [text]})
    return items


def stream(_body: Json, whole: Json) -> bytes:
    """Return the answer as the events of a stream."""
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(whole["output"]):
        events += _item_events(item, index)
    events.append({"type": "response.completed", "response": whole})
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return "".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in numbered
    ).encode()


def _item_events(item: Json, index: int) -> list[Json]:
    identity = {"output_index": index, "item_id": item["id"]}
    empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
    added = {**item, **empty, "status": "in_progress"}
    events: list[Json] = [
        {"type": "response.output_item.added", "output_index": index, "item": added}
    ]
    for content in item.get("content", ()):
        part = {**identity, "content_index": 0}
        blank = {**content, "text": ""}
        text = content["text"]
        events += [
            {"type": "response.content_part.added", **part, "part": blank},
            {"type": "response.output_text.delta", **part, "delta": text, "logprobs": []},
            {"type": "response.output_text.done", **part, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **part, "part": content},
        ]
    if item["type"] == "function_call":
        arguments = item["arguments"]
        kind = "response.function_call_arguments"
        events += [
            {"type": f"{kind}.delta", **identity, "delta": arguments},
            {"type": f"{kind}.done", **identity, "arguments": arguments, "name": item["name"]},
        ]
    return [*events, {"type": "response.output_item.done", "output_index": index, "item": item}]
