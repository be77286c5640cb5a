"""The provider's server, and the truth that it writes: one entry for each request."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from support.provider import anthropic, chat, responses
from support.provider.script import REFUSED, Answer, Message, answer, task_of
from support.running import serving

Json = dict[str, Any]
SERVED = "-2026-01-01"
"""Ends the name of the model that answers; the name that was asked for lacks it."""


class Request(NamedTuple):
    """One request as the model understands it, whatever the wire format."""

    messages: list[Message]
    tools: list[Json]


class Wire(NamedTuple):
    """One wire format."""

    api: str
    read: Callable[[Json, dict[str, list[Message]]], tuple[list[Message], list[Json]]]
    """Reads a request's body; the second argument has the conversations held by response id."""
    write: Callable[[Json, Answer], tuple[Json, str, list[str], Json]]
    """Writes the answer: its body, response id, finish reasons, usage."""
    stream: Callable[[Json, Json], bytes]
    """Writes the same body as a stream of events."""
    refuse: Callable[[int, str], Json]


WIRES = {
    "chat/completions": Wire(
        "openai.chat.completions", chat.read, chat.write, chat.stream, chat.refuse
    ),
    "responses": Wire(
        "openai.responses", responses.read, responses.write, responses.stream, chat.refuse
    ),
    "messages": Wire(
        "anthropic.messages", anthropic.read, anthropic.write, anthropic.stream, anthropic.refuse
    ),
}


@dataclass
class Provider:
    """A running provider: where it listens, and what it served."""

    url: str
    calls: list[Json] = field(default_factory=list)
    """The requests, as `llm_calls` of a truth file."""
    held: dict[str, list[Message]] = field(default_factory=dict)
    """The conversation that each response of the Responses API ended."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, path: str, body: Json, retries: int) -> tuple[int, str, bytes]:
        """Answer one request, and log it; give status, content type and body."""
        wire = WIRES[path]
        messages, tools = wire.read(body, self.held)
        scripted = answer(messages, [tool["name"] for tool in tools])
        call: Json = {
            "api": wire.api,
            "stream": bool(body.get("stream")),
            "model_requested": body["model"],
            "task": task_of(messages),
            "input_messages": messages,
            "tools": tools,
            "http_retry": retries,
            "start_unix_ns": time.time_ns(),
        }
        if task_of(messages) == REFUSED:
            self._log(call | _failed(f"no weather in {REFUSED}"))
            error = wire.refuse(400, f"no weather in {REFUSED}")
            return 400, "application/json", json.dumps(error).encode()
        served = f"{body['model']}{SERVED}"
        whole, response_id, reasons, usage = wire.write(body | {"model": served}, scripted)
        message = {"role": "assistant", "content": scripted.text, "tool_calls": scripted.tool_calls}
        with self.lock:
            self.held[response_id] = [*messages, message]
        sent = not (body.get("stream") and wire.api == "openai.chat.completions") or bool(
            (body.get("stream_options") or {}).get("include_usage")
        )
        usage_and_reasons = {"response_id": response_id, "finish_reasons": reasons, "usage": usage}
        self._log(
            call
            | _succeeded(served, message, usage_sent=sent)
            | usage_and_reasons
            | {"end_unix_ns": time.time_ns()}
        )
        if body.get("stream"):
            return 200, "text/event-stream", wire.stream(body, whole)
        return 200, "application/json", json.dumps(whole).encode()

    def _log(self, call: Json) -> None:
        with self.lock:
            self.calls.append({"index": len(self.calls), **call})


def _succeeded(model: str, message: Message, *, usage_sent: bool) -> Json:
    return {
        "model_returned": model,
        "output_messages": [message],
        "usage_sent": usage_sent,
        "error": None,
        "prompt_token_ids": None,
        "completion_token_ids": None,
        "completion_logprobs": None,
    }


def _failed(message: str) -> Json:
    return {
        "model_returned": None,
        "response_id": None,
        "output_messages": [],
        "finish_reasons": [],
        "usage": None,
        "usage_sent": False,
        "error": {"status": 400, "type": "invalid_request_error", "message": message},
        "prompt_token_ids": None,
        "completion_token_ids": None,
        "completion_logprobs": None,
        "end_unix_ns": time.time_ns(),
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keep the tests' output clean."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        retries = int(self.headers.get("x-stainless-retry-count") or 0)
        path = self.path.partition("?")[0].removeprefix("/v1/")
        served = self.server.provider.serve(path, body, retries)  # type: ignore[attr-defined]
        status, content_type, answered = served
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(answered)))
        self.end_headers()
        self.wfile.write(answered)


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Serve on a free port of loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    with serving(server) as url:
        server.provider = Provider(url)  # type: ignore[attr-defined]
        yield server.provider  # type: ignore[attr-defined]
