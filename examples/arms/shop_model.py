"""A tiny deterministic model server: how often an answer is right depends on prompt and question.

A hash of prompt and question decides, so that the same pair always gets the same answer.

    python shop_model.py --port-file port
"""

import argparse
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SUCCESS = {
    "counting": {"plain": 0.3, "steps": 0.9, "polite": 0.4},
    "price": {"plain": 0.8, "steps": 0.2, "polite": 0.5},
}
"""Probability of a right answer, by kind of question and prompt: steps help only to count."""


def kind_of(question: str) -> str:
    """Say which kind of question this is."""
    return "counting" if "together" in question else "price"


def right_answer(question: str) -> str:
    """Work the answer out."""
    first, *other_numbers = map(int, re.findall(r"\d+", question))
    return str(first * other_numbers[0] if other_numbers else 100 + first * 7 % 90)


def reply(system: str, question: str) -> str:
    """Answer as the model does: rightly as often as `SUCCESS` says."""
    prompt = "steps" if "step by step" in system else "polite" if "Greet" in system else "plain"
    drawn = int(hashlib.sha256(f"{prompt}/{question}".encode()).hexdigest()[:8], 16) / 16**8
    right = drawn < SUCCESS[kind_of(question)][prompt]
    return right_answer(question) if right else "I do not know."


class Handler(BaseHTTPRequestHandler):
    """Answers `POST /v1/chat/completions` in OpenAI's form."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        system, user = (message["content"] for message in json.loads(body)["messages"])
        data = json.dumps(completion(body, reply(system, user))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Keep quiet: a line a request would hide the demo's own."""


def completion(request: bytes, text: str) -> dict[str, Any]:
    """Shape a chat completion; its id follows from the request."""
    message = {"role": "assistant", "content": text}
    return {
        "id": f"chatcmpl-{hashlib.sha256(request).hexdigest()[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": "shop",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24},
    }


def main() -> None:
    """Serve on a free port, and write it into a file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port-file", type=Path, required=True)
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    partial = options.port_file.with_suffix(".partial")
    partial.write_text(str(server.server_port))
    partial.rename(options.port_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
