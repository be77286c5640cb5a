"""Lines of OpenAI's fine-tuning files: a chat in which only the last answer is trained on.

Source:
    OpenAI, Supervised fine-tuning: `messages` with a `weight` on the assistant's, `tools`.
"""

import json
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any

from otel_lightning.collector.show.conversation import text_or_json
from otel_lightning.learner.export.formats.rows import (
    MESSAGES,
    Format,
    LeftOutError,
    Row,
    ended_answer_of,
    functions_of,
    prompt_of,
)


def row(source: Row) -> dict[str, Any]:
    """Return the chat; weight 0 excludes earlier messages of the assistant from training."""
    prompt = prompt_of(source, text_arguments=True)
    completion = ended_answer_of(source, text_arguments=True)
    before = [m | {"weight": 0} if m["role"] == "assistant" else m for m in prompt]
    messages = [_message(m) for m in (*before, *completion)]
    _match_results(messages)
    line: dict[str, Any] = {"messages": messages}
    if tools := functions_of(source):
        line["tools"] = tools
    return line


def without(source: Row) -> Sequence[str]:
    """Report the reasoning of the answer as dropped: OpenAI's files have no field for it."""
    parts = json.loads(source["completion"] or "[]")[:1]
    kinds = {part.get("type") for message in parts for part in message.get("parts") or []}
    return ["the reasoning of the answer"] if "reasoning" in kinds else []


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Convert a message to the form of the API: arguments as text, no reasoning."""
    spelled = {key: value for key, value in message.items() if key != "reasoning_content"}
    if "tool_calls" in spelled:
        spelled["tool_calls"] = [_call(call) for call in spelled["tool_calls"]]
    return spelled


def _match_results(messages: Sequence[dict[str, Any]]) -> None:
    """Give calls and results without an id one, in place: OpenAI matches them by it.

    Some providers, such as Gemini, send none. Their results are in the order of the calls.

    Raises:
        LeftOutError: If a result answers no call, which OpenAI refuses.
    """
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    used_ids = {call["id"] for call in calls}
    free = (name for n in count(1) if (name := f"call_{n}") not in used_ids)
    open_calls: list[str] = []
    unnamed: deque[str] = deque()
    for message in messages:
        for call in message.get("tool_calls") or ():
            if not call["id"]:
                call["id"] = next(free)
                unnamed.append(call["id"])
            open_calls.append(call["id"])
        if message["role"] == "tool":
            if not message["tool_call_id"] and unnamed:
                message["tool_call_id"] = unnamed.popleft()
            if message["tool_call_id"] not in open_calls:
                raise LeftOutError("a tool result that answers no tool call")


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return call | {"function": function | {"arguments": text_or_json(function["arguments"])}}


FORMAT = Format(
    summary="chats of what earned a reward, for OpenAI's fine-tuning",
    statement="transitions",
    row=row,
    columns={"messages": MESSAGES, "tools": MESSAGES},
    above_threshold=True,
    without=without,
)
