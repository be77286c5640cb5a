"""A real OpenAI-compatible server whose answers are a script: the messages of a model, in order."""

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.running import serving

Message = dict[str, Any]


def text_message(text: str) -> Message:
    """A message of words."""
    return {"role": "assistant", "content": text}


def calls(name: str, **arguments: Any) -> Message:
    """A message that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keep the tests' output clean."""

    def do_POST(self) -> None:
        requests: list[Message] = self.server.requests  # type: ignore[attr-defined]
        script: Sequence[Message] = self.server.script  # type: ignore[attr-defined]
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = script[min(len(requests), len(script) - 1)]
        requests.append(request)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        body = {
            "id": f"chatcmpl-{len(requests)}",
            "object": "chat.completion",
            "created": 1,
            "model": request["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        answer = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@contextmanager
def scripted_model(*script: Message) -> Iterator[tuple[str, list[Message]]]:
    """Serve on a free port of loopback; give the base URL and the list of what was asked."""
    requests: list[Message] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.requests = requests  # type: ignore[attr-defined]
    server.script = script  # type: ignore[attr-defined]
    with serving(server) as url:
        yield f"{url}/v1", requests
