"""Run an unchanged agent on many tasks in one process: its framework is imported only once.

    lightning-learn run --serve 'python worker.py agent.py' …
    python worker.py agent.py --port-file FILE      and then: lightning-learn run --url …

The agent is a Python file with a function `answer(task)`, plain or async. As a worker it reads a
task as a JSON line and writes a JSON line, one rollout at a time. As a server it answers POSTs,
many at once; the header `baggage` names the rollout.
"""

import argparse
import asyncio
import importlib.util
import inspect
import json
import signal
import sys
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from otel_lightning.instrumentation import rollout

Answer = Callable[[Mapping[str, Any]], Any]
FAILED = 422


def load(path: Path) -> Answer:
    """Import an agent's file and return its function `answer`."""
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location("agent", path)
    if spec is None or spec.loader is None:
        sys.exit(f"worker.py: '{path}' is no Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer: Answer = module.answer
    if not inspect.iscoroutinefunction(answer):
        return answer
    return lambda task: asyncio.run(answer(task))


def attempt(answer: Answer, task: Mapping[str, Any], rollout_id: str) -> dict[str, str]:
    """Run one rollout; an exception of the agent is its outcome."""
    with rollout(task_id=task["id"], rollout_id=rollout_id):
        try:
            return {"output": str(answer(task))}
        except Exception as error:  # noqa: BLE001 - an agent may raise anything
            return {"error": f"{type(error).__name__}: {error}"}


def work(answer: Answer) -> None:
    """Answer the lines of standard input."""
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps(attempt(answer, task, task["rollout_id"])), flush=True)


def serve(answer: Answer, port_file: Path) -> None:
    """Answer POSTs on a free port, which is written to a file."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            carried = dict(pair.split("=") for pair in self.headers["baggage"].split(","))
            outcome = attempt(answer, task, unquote(carried["lightning.rollout.id"]))
            self.send_response(FAILED if "error" in outcome else 200)
            self.end_headers()
            self.wfile.write(next(iter(outcome.values())).encode())

        def log_message(self, *_: object) -> None:
            """Write nothing for each request."""

    # A signal alone would end the process without sending its last spans.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    partial = port_file.with_suffix(".partial")
    partial.write_text(str(server.server_port))
    partial.replace(port_file)
    server.serve_forever()


def main() -> None:
    """Work or serve."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("agent", type=Path)
    parser.add_argument("--port-file", type=Path)
    options = parser.parse_args()
    answer = load(options.agent)
    if options.port_file is None:
        work(answer)
    else:
        serve(answer, options.port_file)


if __name__ == "__main__":
    main()
