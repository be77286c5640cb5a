"""What tracing costs an agent: `make bench-instrumentation`.

Each tracer has a process of its own, and they work by turns beside one model server and sink. The
CPU time is that of all threads, the export included.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "frameworks"
CHUNKS = 200
ARGUMENTS = json.dumps({"city": "Oslo"})
FLAGS = {
    "flags": {
        "desk": {
            "variants": {"a": {"temperature": 0.5}, "b": {"temperature": 1.0}},
            "defaultVariant": "a",
            "targeting": {"fractional": [["a", 50], ["b", 50]]},
        }
    }
}
PACKAGES = {
    "openinference": (
        "openinference",
        [
            "openai",
            "openinference-instrumentation-openai",
            "opentelemetry-exporter-otlp-proto-http",
        ],
    ),
    "agentlightning": ("agentlightning", ["openai", "agentlightning==0.3.0"]),
}
"""Tracers with an environment of their own: its folder and packages."""


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.path.endswith("/chat/completions"):
            self.answer("application/x-protobuf", b"")
            return
        request = json.loads(body)
        if request.get("stream"):
            self.answer("text/event-stream", STREAM)
        else:
            self.answer("application/json", answer(request))

    def answer(self, content_type: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


HEAD = {"id": "c", "created": 1, "model": "m", "prompt_token_ids": list(range(200))}
USAGE = {"prompt_tokens": 200, "completion_tokens": 30, "total_tokens": 230}


def answer(request: dict[str, Any]) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": "It is sunny in Oslo. " * 5}
    if request["messages"][-1]["role"] == "user":
        function = {"name": "sun", "arguments": ARGUMENTS}
        message = {"role": "assistant", "content": None}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    if request.get("return_token_ids"):
        choice["token_ids"] = list(range(30))
        token = {"token": "x", "logprob": -0.5, "bytes": None, "top_logprobs": []}
        choice["logprobs"] = {"content": [token] * 30}
    whole = {**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE}
    return json.dumps(whole).encode()


def _stream() -> bytes:
    lines = []
    for number in range(CHUNKS):
        delta = {"role": "assistant", "content": "word "}
        choice = {"index": 0, "finish_reason": None, "delta": delta, "token_ids": [number]}
        chunk = {**HEAD, "object": "chat.completion.chunk", "choices": [choice]}
        chunk |= {"prompt_token_ids": None}
        lines.append(f"data: {json.dumps(chunk)}\n\n")
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


STREAM = _stream()


def environment(url: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "OPENAI_BASE_URL": f"{url}/v1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "none",
        "LIGHTNING_INSTRUMENT": "false",  # the worker starts what it measures
    }


def variants(url: str, flags: Path) -> dict[str, tuple[str, str, dict[str, str]]]:
    """Give the interpreter, the tracer and the variables of each row."""
    base = environment(url)
    ours = base | {"LIGHTNING_ROLLOUT_ID": "r"}
    every = ours | {
        "LIGHTNING_REQUEST_TOKEN_IDS": "true",
        "LIGHTNING_REQUEST_USAGE": "true",
        "LIGHTNING_POLICY": str(flags),
        "LIGHTNING_REDACT": "all",
    }
    alone = base | {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "otel_lightning"}
    rows = {
        "bare client": (sys.executable, "none", base),
        "Traceloop": (sys.executable, "traceloop", alone),
        "Traceloop, the agent asks for token ids": (
            sys.executable,
            "traceloop",
            alone | {"ASK": "1"},
        ),
        "Traceloop + ours, all on, nothing saved": (sys.executable, "ours-unsaved", every),
        "Traceloop + ours, nothing saved": (sys.executable, "ours-unsaved", ours),
        "Traceloop + ours, all on": (sys.executable, "ours", every),
        "Traceloop + ours": (sys.executable, "ours", ours),
    }
    for name, (folder, _) in PACKAGES.items():
        python = CACHE / folder / "bin" / "python"
        if python.exists():
            rows[name] = (str(python), name, base)
    return rows


def install() -> None:
    """Make the environments of the other tracers, once; say so where that cannot be had."""
    for folder, packages in PACKAGES.values():
        venv = CACHE / folder
        if (venv / "ok").exists():
            continue
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages]
        if subprocess.run(pip, check=False).returncode:
            sys.stderr.write(f"{folder}: not installable here; its row is left out\n")
            (venv / "bin" / "python").unlink()
        else:
            (venv / "ok").touch()


class Worker:
    """A process with one tracer."""

    def __init__(self, python: str, tracer: str, variables: dict[str, str]) -> None:
        self.numbers: dict[str, list[float]] = {"task": [], "stream": []}
        self._process = subprocess.Popen(
            [python, str(HERE / "instrumentation_worker.py"), tracer],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if tracer == "agentlightning" else None,  # it says much
            text=True,
        )
        self.start_s = self._answer()
        self.memory_mib = 0.0

    def _answer(self) -> float:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("= "):
                return float(line[2:])
        raise RuntimeError("the worker ended early")

    def turn(self, work: str, times: int) -> None:
        """Do some work, and keep what one piece of it cost."""
        assert self._process.stdin
        self._process.stdin.write(f"{work} {times}\n")
        self._process.stdin.flush()
        self.numbers[work].append(self._answer())

    def end(self) -> None:
        """Take the memory, and let the process end."""
        assert self._process.stdin
        self._process.stdin.close()
        self.memory_mib = self._answer()
        assert self._process.stdout
        self._process.stdout.read()
        self._process.wait()

    def cost(self, work: str) -> float:
        """Give the lower quartile over the turns: other work on the machine only adds."""
        return statistics.quantiles(self.numbers[work], n=4)[0]


def measure(turns: int, times: int, url: str, flags: Path) -> dict[str, Worker]:
    """Start a process per row, and let them work by turns."""
    workers = {}
    for name, (python, tracer, variables) in variants(url, flags).items():
        try:
            workers[name] = Worker(python, tracer, variables)
        except RuntimeError as error:
            sys.stderr.write(f"{name}: no row, {error}\n")
    for _ in range(turns):
        for worker in workers.values():
            worker.turn("task", times)
            worker.turn("stream", max(times // 5, 1))
    for worker in workers.values():
        worker.end()
    return workers


def table(workers: dict[str, Worker]) -> str:
    bare, traceloop = workers["bare client"], workers["Traceloop"]
    lines = [
        "| agent | start, CPU-s | µs of CPU a call | added | to Traceloop | added a chunk | MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, worker in workers.items():
        call = worker.cost("task") / 2
        more = call - traceloop.cost("task") / 2
        chunk = (worker.cost("stream") - bare.cost("stream")) / CHUNKS
        lines.append(
            f"| {name} | {worker.start_s:.2f} | {call:.0f} | {call - bare.cost('task') / 2:.0f} |"
            f" {more:+.0f} | {chunk:.1f} | {worker.memory_mib:.0f} |"
        )
    return "\n".join(lines)


def start_up_file() -> str:
    """Time the line that Python runs at each start, where no variable asks for tracing."""
    (line,) = (ROOT / "instrumentation" / "zz_otel_lightning.pth").read_text().splitlines()
    script = (
        "import os, time\n"
        f"begin = time.perf_counter(); exec({line!r}); print(time.perf_counter() - begin)"
    )
    least = []
    for variables in ({}, {"LIGHTNING_STORE": "traces.duckdb"}):
        command = [sys.executable, "-S", "-c", script]
        paths = {"PYTHONPATH": str(ROOT / "instrumentation"), **variables}
        runs = [
            float(subprocess.run(command, env=paths, capture_output=True, check=True).stdout)
            for _ in range(9)
        ]
        least.append(min(runs) * 1000)
    return (
        f"Start-up file: {least[0]:.3f} ms without a variable of ours or OpenTelemetry's,"
        f" {least[1]:.3f} ms with one that does not ask for tracing."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--times", type=int, default=20)
    given = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    install()
    flags = CACHE / "bench-flags.json"
    flags.write_text(json.dumps(FLAGS))
    with ThreadingHTTPServer(("127.0.0.1", 0), _Model) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        sys.stdout.write(table(measure(given.turns, given.times, url, flags)) + "\n")
        sys.stdout.write(start_up_file() + "\n")
        server.shutdown()


if __name__ == "__main__":
    main()
