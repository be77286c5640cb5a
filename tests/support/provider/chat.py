"""Chat completions: requests read, answers written."""

import json
import uuid
from typing import Any

from support.provider.script import Answer, Message

Json = dict[str, Any]
USAGE = {"prompt_tokens": 31, "completion_tokens": 9, "total_tokens": 40}
COUNTED = {"input_tokens": 31, "output_tokens": 9, "total_tokens": 40}


def text_of(content: Any) -> str | None:
    """Return the text of a content: a string, or a list of parts."""
    if content is None or isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def read(body: Json, _held: dict[str, list[Message]]) -> tuple[list[Message], list[Json]]:
    """Return the messages and the tools of a request."""
    messages = []
    for sent in body["messages"]:
        message: Message = {"role": sent["role"], "content": text_of(sent.get("content"))}
        if sent.get("tool_calls"):
            message["tool_calls"] = [
                {"id": call["id"], **_picked(call["function"], "name", "arguments")}
                for call in sent["tool_calls"]
            ]
        if sent.get("tool_call_id"):
            message["tool_call_id"] = sent["tool_call_id"]
        messages.append(message)
    tools = [
        _picked(tool["function"], "name", "description", "parameters")
        for tool in body.get("tools") or ()
    ]
    return messages, tools


def _picked(values: Json, *names: str) -> Json:
    return {name: values[name] for name in names if values.get(name) is not None}


def write(body: Json, answer: Answer) -> tuple[Json, str, list[str], Json]:
    """Return the answer's body, its id, its finish reasons and its usage."""
    message: Json = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": _picked(call, "name", "arguments")}
            for call in answer.tool_calls
        ]
    reason = "tool_calls" if answer.tool_calls else "stop"
    choice = {"index": 0, "finish_reason": reason, "message": message, "logprobs": None}
    name = f"chatcmpl-{uuid.uuid4().hex[:24]}"
    head = {"id": name, "object": "chat.completion", "created": 1767225600, "model": body["model"]}
    return {**head, "choices": [choice], "usage": USAGE}, name, [reason], COUNTED


def stream(body: Json, whole: Json) -> bytes:
    """Return the answer as events: one chunk a word, or a part of a tool call's arguments."""
    (choice,) = whole["choices"]
    head = {**whole, "object": "chat.completion.chunk"}
    del head["usage"]
    deltas: list[Json] = [{"role": "assistant", "content": None}]
    deltas += [{"content": f"{word} "} for word in (choice["message"]["content"] or "").split()]
    if "content" in deltas[-1] and deltas[-1]["content"]:
        deltas[-1]["content"] = deltas[-1]["content"].rstrip()
    for index, call in enumerate(choice["message"].get("tool_calls") or ()):
        arguments = call["function"]["arguments"]
        begun = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        for part in (arguments[:6], arguments[6:]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    ended = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    chunks.append({**head, "choices": [ended]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": USAGE})
    lines = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def refuse(status: int, message: str) -> Json:
    """Return the body of an error."""
    kind = {400: "invalid_request_error"}[status]
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}
