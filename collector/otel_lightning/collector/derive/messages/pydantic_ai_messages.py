"""Pydantic AI's own messages, as MLflow keeps them: as a request and a response of a chat.

A message has a `kind` (request or response) and parts, each with a `part_kind`.
"""

from typing import Any

from otel_lightning.collector.derive.text.json_text import as_object

PARTS, KIND, PART_KIND = "parts", "kind", "part_kind"
AGAIN = "\n\nFix the errors and try again."
"""The text that Pydantic AI adds to an error that it sends to the model."""
Json = dict[str, Any]


def request(sent: Any) -> Json | None:
    """Return the request of Pydantic AI's messages; None for anything else."""
    listed = as_object(sent).get("messages")
    if not isinstance(listed, list) or not listed or not all(map(_is_own, listed)):
        return None
    messages = [one for message in listed for one in _messages(message)]
    asked = [message for message in listed if message[KIND] == "request"]
    instructions = asked[-1].get("instructions") if asked else None
    if isinstance(instructions, str) and instructions:
        messages.insert(0, {"role": "system", "content": instructions})
    offered = as_object(as_object(sent).get("model_request_parameters"))
    return {"messages": messages, "tools": offered.get("function_tools") or []}


def response(answer: Any) -> Json | None:
    """Return the chat completion that Pydantic AI made of an answer; None for anything else."""
    if not _is_own(answer) or answer[KIND] != "response":
        return None
    (message,) = _messages(answer)
    counts = as_object(answer.get("usage"))
    reasoned = as_object(counts.get("details")).get("reasoning_tokens")
    usage = {
        "prompt_tokens": counts.get("input_tokens"),
        "completion_tokens": counts.get("output_tokens"),
        "prompt_tokens_details": {"cached_tokens": counts.get("cache_read_tokens")},
        "completion_tokens_details": {"reasoning_tokens": reasoned},
    }
    choice = {"index": 0, "message": message, "finish_reason": answer.get("finish_reason")}
    return {
        "id": answer.get("provider_response_id"),
        "model": answer.get("model_name"),
        "choices": [choice],
        "usage": usage,
    }


def _is_own(message: Any) -> bool:
    """Return whether a value is one of Pydantic AI's messages."""
    if not isinstance(message, dict) or message.get(KIND) not in {"request", "response"}:
        return False
    parts = message.get(PARTS)
    return isinstance(parts, list) and all(PART_KIND in as_object(part) for part in parts)


def _messages(message: Json) -> list[Json]:
    """Return one of Pydantic AI's messages as messages of a chat."""
    if message[KIND] == "request":
        return [_request_message(part) for part in message[PARTS]]
    texts = {kind: "".join(_texts(message, kind)) for kind in ("text", "thinking")}
    answer: Json = {"role": "assistant", "content": texts["text"] or None}
    if texts["thinking"]:
        answer["reasoning"] = texts["thinking"]
    calls = [_call(part) for part in message[PARTS] if part[PART_KIND] == "tool-call"]
    return [{**answer, "tool_calls": calls} if calls else answer]


def _texts(message: Json, kind: str) -> list[str]:
    known = (part.get("content") for part in message[PARTS] if part[PART_KIND] == kind)
    return [text for text in known if isinstance(text, str)]


def _request_message(part: Json) -> Json:
    kind, content = part[PART_KIND], part.get("content")
    if kind == "retry-prompt":
        # The details of a failed validation are spelled in another way for the model.
        content = f"{content}{AGAIN}" if isinstance(content, str) else None
    answers = kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name"))
    if answers:
        return {"role": "tool", "tool_call_id": part.get("tool_call_id"), "content": content}
    return {"role": "system" if kind == "system-prompt" else "user", "content": content}


def _call(part: Json) -> Json:
    function = {"name": part.get("tool_name"), "arguments": part.get("args")}
    return {"id": part.get("tool_call_id"), "type": "function", "function": function}
