"""A real OpenAI-compatible server that judges: its answer follows from words in the prompt.

`quality=4` is worth a 4, `quality=5,3,4` a 5, then a 3, then a 4. `judge=nonsense` gets chatter,
`judge=scoreless` a reason without a score, `judge=refused` 400, `judge=busy` 429 once and then an
answer, `judge=page` something that is no JSON.
"""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.chat_endpoint import chat_endpoint

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@dataclass
class JudgeServer:
    """A running server, what it was asked, and how it behaves."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    delay_s: float = 0.0
    breaks_after: int | None = None
    """Answers 500 to every request after this many."""
    most_at_once: int = 0
    _at_once: int = 0
    _asked: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
        prompt = request["messages"][-1]["content"]
        with self._lock:
            self.requests.append(request)
            self.keys.append(key)
            self._asked[prompt] += 1
            times, total = self._asked[prompt], len(self.requests)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        time.sleep(self.delay_s)
        with self._lock:
            self._at_once -= 1
        if self.breaks_after is not None and total > self.breaks_after:
            return 500, {"error": {"message": "on fire"}}
        return _answer(prompt, times, request["model"])


def _answer(prompt: str, times: int, model: str) -> tuple[int, dict[str, Any]]:
    (behaviour,) = re.findall(r"judge=(\w+)", prompt) or ["well"]
    if behaviour == "refused":
        return 400, {"error": {"message": "content filtered"}}
    if behaviour == "page":
        return 200, {}
    if behaviour == "busy" and times == 1:
        return 429, {"error": {"message": "slow down"}}
    scores = re.findall(r"quality=([\d.,]*[\d])", prompt)[-1].split(",")
    score = float(scores[(times - 1) % len(scores)])
    reason = {"reason": "As its quality says."}
    texts = {"nonsense": "What a nice agent!", "scoreless": json.dumps(reason)}
    return 200, _completion(texts.get(behaviour, json.dumps({**reason, "score": score})), model)


def _completion(text: str, model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    form = {"id": "judgement", "object": "chat.completion", "created": 1}
    return {**form, "model": model, "choices": [choice], "usage": USAGE}


@contextmanager
def judge_server() -> Iterator[JudgeServer]:
    """Serve on a free port of loopback."""
    judge = JudgeServer()
    with chat_endpoint(judge.answer) as judge.url:
        yield judge
