"""A stand-in for the language model that writes prompts: an OpenAI-compatible server.

It reads what any such model would read, the failed and the succeeded records, and looks for the
saying that comes with a failure more often than without it. From that it writes one more line. It
knows neither the tasks nor the lines that help: with shuffled rewards it writes wrong lines.

    python writer.py --port 0 --port-file writer.port
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

PROMPT = re.compile(r"<prompt-\w+>\n(.*)\n</prompt-", re.DOTALL)
TRIED = re.compile(r'^- (".*")$', re.MULTILINE)
IGNORED = re.compile(r"ignored: (\w+)")
LINE = "Ask for {need} if somebody {saying}."
LEAST = 3
"""Smallest number of failures that a line must explain."""


class Record(NamedTuple):
    """What one record says: the sayings of its request, and the need that was ignored."""

    sayings: frozenset[str]
    ignored: str | None


def records(text: str) -> list[Record]:
    """Read the records of a request."""
    all_records = []
    for line in text.splitlines():
        if not line.startswith('{"outcome"'):
            continue
        record = json.loads(line)
        clauses = str(record.get("input", "")).rstrip(".").split("; ")[1:]
        sayings = frozenset(clause.partition(" ")[2] for clause in clauses)
        ignored = IGNORED.search(record.get("explanations", ""))
        all_records.append(Record(sayings, ignored[1] if ignored else None))
    return all_records


def better(
    prompt: str, all_records: Sequence[Record], tried: Collection[str] = ()
) -> tuple[str, str]:
    """Add the line that explains most of the failures; return the prompt and the reason.

    Args:
        prompt: The current prompt.
        all_records: The records.
        tried: Prompts that did not help.
    """
    failures = [one for one in all_records if one.ignored]
    together = Counter((one.ignored, saying) for one in failures for saying in one.sayings)
    needs = Counter(one.ignored for one in failures)
    sayings = Counter(saying for one in all_records for saying in one.sayings)
    best: tuple[float, str, str] | None = None
    for (need, saying), count in sorted(together.items()):
        line = LINE.format(need=need, saying=saying)
        is_tried = line in prompt or f"{prompt}\n{line}" in tried
        if need is None or is_tried or count < LEAST:
            continue
        without_need = max(len(all_records) - needs[need], 1)
        excess = count / needs[need] - (sayings[saying] - count) / without_need
        best = max(best or (excess, line, need), (excess, line, need))
    if best is None:
        return f"{prompt}\nBe polite.", "The failures have nothing in common."
    return f"{prompt}\n{best[1]}", f"The agent ignores {best[2]}."


class Handler(BaseHTTPRequestHandler):
    """Answers chat completions."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Write a better prompt, as the JSON object that is asked for."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        system, user = (message["content"] for message in request["messages"])
        current = PROMPT.search(system)
        tried = [json.loads(text) for text in TRIED.findall(system)]
        prompt, reason = better(current[1] if current else "", records(user), tried)
        content = json.dumps({"reason": reason, "prompt": prompt})
        message = {"role": "assistant", "content": content}
        body: dict[str, Any] = {
            "id": "written",
            "object": "chat.completion",
            "created": 1,
            "model": request["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Write nothing for each request."""


def main() -> None:
    """Serve until the end."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-file", type=Path, required=True)
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    partial = options.port_file.with_suffix(".partial")
    partial.write_text(str(server.server_port))
    partial.replace(options.port_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
