"""A model server's answers on chat completions, completions and Responses, for tests.

With tools in the request it asks for each of them once, then answers in words.
"""

import json
import uuid
from collections.abc import Callable
from typing import Any

PROMPT_TOKEN_IDS = [151644, 872, 198]
WORDS = [("Hel", 9707, -0.25), ("lo", 385, -1.5), ("", 151645, -0.0625)]
KNOWN_FIELDS = {"model", "messages", "stream", "logprobs", "stream_options", "n"}

Request = dict[str, Any]


def _chat(request: Request, kind: str) -> bytes:
    if request.get("stream"):
        return _events([json.dumps(chunk) for chunk in _chat_chunks(request, kind)])
    whole = _chat_head(request, "chat.completion", kind)
    whole["choices"] = [_choice(request, kind, index) for index in range(request.get("n") or 1)]
    whole["usage"] = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    return json.dumps(whole).encode()


def _chat_head(request: Request, name: str, kind: str, *, first: bool = True) -> Request:
    head = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": name,
        "created": 1,
        "model": request["model"],
        "choices": [],
    }
    if request.get("return_token_ids") and first:
        head["prompt_token_ids"] = PROMPT_TOKEN_IDS
    elif kind == "nulls":
        head["prompt_token_ids"] = None
    if kind == "nulls":
        head["system_fingerprint"] = None
    if kind == "same":
        head["id"] = "chatcmpl-1"
    return head


def _choice(request: Request, kind: str, index: int = 0) -> Request:
    message: Request = {"role": "assistant", "content": "Hello"}
    choice: Request = {"index": index, "finish_reason": "stop", "message": message}
    if _wants_tools(request):
        message["content"] = None
        message["tool_calls"] = _tool_calls(request, kind)
        choice["finish_reason"] = "tool_calls"
    return choice | _tokens(request, kind, WORDS, index)


def _tokens(request: Request, kind: str, words: Any, index: int = 0) -> Request:
    tokens: Request = {}
    if kind == "nulls":
        tokens = {"logprobs": None, "token_ids": None, "stop_reason": None}
    if request.get("return_token_ids"):
        tokens["token_ids"] = [token_id + index for _, token_id, _ in words]
    if request.get("logprobs"):
        tokens["logprobs"] = {
            "content": [
                {"token": word, "logprob": logprob - index, "bytes": None, "top_logprobs": []}
                for word, _, logprob in words
            ]
        }
    return tokens


def _chat_chunks(request: Request, kind: str) -> list[Request]:
    deltas: list[Request] = [{"content": word} for word, _, _ in WORDS]
    reason = "stop"
    if _wants_tools(request):
        deltas, reason = list(_tool_deltas(request, kind)), "tool_calls"
    chunks = []
    name = f"chatcmpl-{uuid.uuid4().hex}"
    for number, delta in enumerate(deltas):
        chunk = _chat_head(request, "chat.completion.chunk", kind, first=number == 0)
        words = WORDS[number : number + 1]
        end = reason if number == len(deltas) - 1 else None
        # The choices of a stream are sent by turns, each in chunks of its own, as vLLM does.
        for index in range(request.get("n") or 1):
            choice = {"index": index, "finish_reason": end, "delta": {"role": "assistant", **delta}}
            chunk["choices"] = [choice | _tokens(request, kind, words, index)]
            chunks.append(chunk | {"id": "chatcmpl-1" if kind == "same" else name})
    if (request.get("stream_options") or {}).get("include_usage"):
        usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
        chunks.append(chunks[-1] | {"choices": [], "usage": usage})
    return chunks


def _wants_tools(request: Request) -> bool:
    return bool(request.get("tools")) and request["messages"][-1]["role"] != "tool"


def _arguments(text: str) -> str:
    return json.dumps({"city": text})


def _tool_calls(request: Request, kind: str) -> list[Request]:
    question = str(request["messages"][-1]["content"])
    return [
        {
            "id": f"call_{number}" if kind == "fixed" else f"call_{uuid.uuid4().hex}",
            "type": "function",
            "function": {"name": tool["function"]["name"], "arguments": _arguments(question)},
        }
        for number, tool in enumerate(request["tools"])
    ]


def _tool_deltas(request: Request, kind: str) -> list[Request]:
    deltas: list[Request] = []
    for index, call in enumerate(_tool_calls(request, kind)):
        text = call["function"]["arguments"]
        first = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        rest = [{"index": index, "function": {"arguments": part}} for part in (text[:5], text[5:])]
        deltas += [{"tool_calls": [one]} for one in (first, *rest)]
    return deltas


def _completions(request: Request, kind: str) -> bytes:
    del kind
    words = [[word] for word in WORDS] if request.get("stream") else [WORDS]
    parts = []
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": request["model"]}
    choices = range(request.get("n") or 1)
    for number, some in enumerate(words):
        end = "stop" if number == len(words) - 1 else None
        text_choices = [_text_choice(request, some, index) for index in choices]
        for choice in text_choices:
            choice["finish_reason"] = end
            if request.get("return_token_ids") and number == 0:
                choice["prompt_token_ids"] = PROMPT_TOKEN_IDS
        if request.get("stream"):
            parts += [{**head, "choices": [choice]} for choice in text_choices]
        else:
            parts.append({**head, "choices": text_choices})
    if (request.get("stream_options") or {}).get("include_usage"):
        usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
        parts.append({**head, "choices": [], "usage": usage})
    return _sent(request, parts)


def _text_choice(request: Request, words: Any, index: int) -> Request:
    choice: Request = {"index": index, "text": "".join(w for w, _, _ in words), "logprobs": None}
    if request.get("return_token_ids"):
        choice["token_ids"] = [token_id + index for _, token_id, _ in words]
    if request.get("logprobs"):
        choice["logprobs"] = {
            "tokens": [word for word, _, _ in words],
            "token_logprobs": [logprob - index for _, _, logprob in words],
            "top_logprobs": None,
            "text_offset": [0 for _ in words],
        }
    return choice


def _responses(request: Request, kind: str) -> bytes:
    del kind
    response: Request = {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": 1,
        "model": request["model"],
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": 1.0,
        "top_p": 1.0,
        "output": _items(request),
        "usage": {
            "input_tokens": 3,
            "output_tokens": 3,
            "total_tokens": 6,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    if request.get("max_output_tokens") == 1:
        response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    if request.get("return_token_ids"):
        response["prompt_token_ids"] = PROMPT_TOKEN_IDS
        response["token_ids"] = [token_id for _, token_id, _ in WORDS]
    if not request.get("stream"):
        return json.dumps(response).encode()
    return _response_events(response)


def _items(request: Request) -> list[Request]:
    sent = request["input"]
    last = sent[-1] if isinstance(sent, list) else {"content": sent}
    if request.get("tools") and last.get("type") != "function_call_output":
        return [
            {
                "type": "function_call",
                "id": f"fc_{uuid.uuid4().hex}",
                "call_id": f"call_{uuid.uuid4().hex}",
                "name": tool["name"],
                "arguments": _arguments(str(last["content"])),
                "status": "completed",
            }
            for tool in request["tools"]
        ]
    content: Request = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    if "message.output_text.logprobs" in (request.get("include") or ()):
        content["logprobs"] = [
            {"token": word, "logprob": logprob, "bytes": [], "top_logprobs": []}
            for word, _, logprob in WORDS
        ]
    message = {"type": "message", "id": f"msg_{uuid.uuid4().hex}", "role": "assistant"}
    return [{**message, "status": "completed", "content": [content]}]


def _response_events(response: Request) -> bytes:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[Request] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        for content in item.get("content", ()):
            text = {"type": "response.output_text.delta", "content_index": 0, "delta": "Hello"}
            events.append({**place, **text, "logprobs": content["logprobs"]})
        if item["type"] == "function_call":
            delta = {"type": "response.function_call_arguments.delta", "delta": item["arguments"]}
            events.append({**place, **delta})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{response['status']}", "response": response})
    for number, event in enumerate(events):
        event["sequence_number"] = number
    return "".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events
    ).encode()


def _sent(request: Request, parts: list[Request]) -> bytes:
    if request.get("stream"):
        return _events([json.dumps(part) for part in parts])
    return json.dumps(parts[0]).encode()


def _events(lines: list[str]) -> bytes:
    return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()


ENDPOINTS: dict[str, Callable[[Request, str], bytes]] = {
    "chat/completions": _chat,
    "completions": _completions,
    "responses": _responses,
}
