"""A real OpenAI-compatible server that writes prompts as a script says, and a world to improve in.

The world has five kinds of requests. An agent is right in 25 % of them, in 90 % of a kind whose
rule its prompt states, and in 5 % of a kind for which its prompt states a wrong rule.
"""

import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from support.chat_endpoint import chat_endpoint

KINDS = ["refund", "delivery", "invoice", "password", "upgrade"]
WORDS = ["amber", "basil", "cedar", "delta", "ember"]
RULES = dict(zip(KINDS, WORDS, strict=True))
UNKNOWN, KNOWN, WRONG = 0.25, 0.9, 0.05


class Reply(NamedTuple):
    """An answer of the server."""

    content: str
    finish_reason: str | None = "stop"
    status: int = 200


Script = Callable[[dict[str, Any], int], Reply]
"""From the request and its number, from 0, to the answer."""


@dataclass
class PromptServer:
    """A running server and what it was asked."""

    script: Script
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: dict[str, Any], _: str | None) -> tuple[int, dict[str, Any]]:
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        reply = self.script(request, number)
        if reply.status != 200:
            return reply.status, {"error": {"message": reply.content}}
        message = {"role": "assistant", "content": reply.content}
        choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
        head = {"id": f"chat-{number}", "object": "chat.completion", "created": 1}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return 200, {**head, "model": request["model"], "choices": [choice], "usage": usage}


@contextmanager
def prompt_server(script: Script) -> Iterator[PromptServer]:
    """Serve on a free port of loopback."""
    prompts = PromptServer(script)
    with chat_endpoint(prompts.answer) as prompts.url:
        yield prompts


def proposal(prompt: str, reason: str = "It should help.") -> Reply:
    """The answer that is asked for."""
    return Reply(json.dumps({"reason": reason, "prompt": prompt}))


def records_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The records that a request shows."""
    text = request["messages"][-1]["content"]
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"outcome"')]


def current_prompt(request: dict[str, Any]) -> str:
    """The prompt that a request asks to improve."""
    match = re.search(
        r"<prompt-\w+>\n(.*)\n</prompt-", request["messages"][0]["content"], re.DOTALL
    )
    assert match
    return match[1]


def learns_rules(request: dict[str, Any], _: int) -> Reply:
    """A model that reads each kind's most frequent remedy out of the explanations of failures."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records_of(request):
        kind = next((one for one in KINDS if one in record["input"]), None)
        remedy = next((w for w in WORDS if w in record.get("explanations", "")), None)
        if record["outcome"] == "failed" and kind and remedy:
            votes[kind][remedy] += 1
    rules = [f"{kind}: {votes[kind].most_common(1)[0][0]}." for kind in sorted(votes)]
    return proposal("\n".join([current_prompt(request), *rules]), "States the rules.")


def true_success(prompt: str) -> float:
    """The agent's mean success over all kinds with a prompt."""
    stated = dict(re.findall(r"^(\w+): (\w+)\.$", prompt, re.MULTILINE))
    chances = [
        UNKNOWN if kind not in stated else KNOWN if stated[kind] == word else WRONG
        for kind, word in RULES.items()
    ]
    return sum(chances) / len(chances)
