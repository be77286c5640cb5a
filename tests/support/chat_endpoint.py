"""A real server of an OpenAI-compatible chat endpoint, whose answers a test computes."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.running import serving

Answer = Callable[[dict[str, Any], str | None], tuple[int, dict[str, Any]]]
"""From the request and its Authorization header to the status and the answer; an empty answer is
sent as a page of HTML."""


@contextmanager
def chat_endpoint(answer: Answer) -> Iterator[str]:
    """Serve on a free port of loopback; yield the base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answered = answer(request, self.headers["Authorization"])
            body = json.dumps(answered).encode() if answered else b"<html>Welcome!</html>"
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if answered else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("retry-after-ms", "1")
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}/v1"
