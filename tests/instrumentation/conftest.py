"""A model server and an OTLP sink, both real and on loopback, for agents that are real too."""

import json
import os
import site
import subprocess
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support import fake_model
from support.running import LIMIT_S, finish, serving

from otel_lightning.instrumentation.instrumentor import LightningInstrumentor


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keep the tests' output clean."""

    def body(self) -> bytes:
        if self.headers["Transfer-Encoding"] == "chunked":  # exporters in JavaScript
            return b"".join(iter(self._chunk, b""))
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _chunk(self) -> bytes:
        length = int(self.rfile.readline(), 16)
        return self.rfile.read(length + 2)[:length]

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@dataclass
class ModelServer:
    """Speaks three wire formats of OpenAI's; the first part of the path says how.

    `/vllm` gives token ids to whoever asks with `return_token_ids`, `/nulls` writes fields without
    a value as null, `/fixed` numbers tool calls anew in each answer, `/strict` answers 422 to
    fields it does not know, `/broken` answers 400 to everything, and `/quoting` quotes the request
    in an error, which ends a stream after its first part.
    """

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)

    def base_url(self, kind: str) -> str:
        return f"{self.url}/{kind}/v1"


class _ModelHandler(_Quiet):
    def do_POST(self) -> None:
        request = json.loads(self.body())
        self.server.requests.append(request)  # type: ignore[attr-defined]
        _, kind, _, *rest = self.path.partition("?")[0].split("/")
        unknown = sorted(set(request) - fake_model.KNOWN_FIELDS)
        if kind == "broken":
            self.refuse(400, "context too long")
        elif kind == "strict" and unknown:
            self.refuse(422, f"unknown fields {unknown}")
        elif kind == "quoting" and not request.get("stream"):
            self.refuse(400, f"invalid: {request}")
        else:
            endpoint = "/".join(rest).removeprefix("deployments/small/")  # Azure's
            answer = fake_model.ENDPOINTS[endpoint](request, kind)
            if kind == "quoting":
                error = json.dumps({"error": {"message": f"invalid: {request}"}})
                answer = answer.partition(b"\n\n")[0] + f"\n\ndata: {error}\n\n".encode()
            content_type = "text/event-stream" if request.get("stream") else "application/json"
            self.answer(200, content_type, answer)

    def refuse(self, status: int, message: str) -> None:
        error = {"error": {"message": message}}
        self.answer(status, "application/json", json.dumps(error).encode())


def _serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with serving(server):
        yield server


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    for server in _serve(_ModelHandler):
        model = ModelServer(f"http://127.0.0.1:{server.server_port}")
        server.requests = model.requests  # type: ignore[attr-defined]
        yield model


@dataclass(frozen=True)
class Item:
    """A span, an event on it, or a log record, as it arrived."""

    name: str
    attributes: dict[str, Any]
    scope: str = ""
    trace_id: str = ""
    span_id: str = ""
    events: tuple["Item", ...] = ()


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(element) for element in value.array_value.values]
    return getattr(value, kind) if kind else None


def _attributes(pairs: list[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


@dataclass
class Sink:
    """Takes in what OTLP exporters send."""

    url: str
    spans: list[Item] = field(default_factory=list)
    logs: list[Item] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    log_bodies: list[bytes] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            self.bodies.append(body)
            self._take_spans(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/logs":
            self.log_bodies.append(body)
            self._take_logs(ExportLogsServiceRequest.FromString(body))

    def _take_spans(self, request: ExportTraceServiceRequest) -> None:
        for scope_spans in (s for r in request.resource_spans for s in r.scope_spans):
            for span in scope_spans.spans:
                events = tuple(Item(e.name, _attributes(e.attributes)) for e in span.events)
                ids = (span.trace_id.hex(), span.span_id.hex())
                found = _attributes(span.attributes)
                self.spans.append(Item(span.name, found, scope_spans.scope.name, *ids, events))
        self.arrived.set()

    def _take_logs(self, request: ExportLogsServiceRequest) -> None:
        for scope_logs in (s for r in request.resource_logs for s in r.scope_logs):
            for log in scope_logs.log_records:
                ids = (log.trace_id.hex(), log.span_id.hex())
                found = _attributes(log.attributes)
                self.logs.append(Item(log.event_name, found, scope_logs.scope.name, *ids))

    def llm_spans(self) -> list[Item]:
        return [span for span in self.spans if span.name == "openai.chat"]


class _SinkHandler(_Quiet):
    def do_POST(self) -> None:
        self.server.sink.take(self.path, self.body())  # type: ignore[attr-defined]
        self.answer(200, "application/x-protobuf", b"")


@pytest.fixture
def sink() -> Iterator[Sink]:
    for server in _serve(_SinkHandler):
        server.sink = Sink(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
        yield server.sink  # type: ignore[attr-defined]


@dataclass(frozen=True)
class AgentRunner:
    """Runs a script as a user would: under opentelemetry-instrument, told by variables alone."""

    folder: Path
    sink: Sink
    model_server: ModelServer

    def run(self, script: str, **options: Any) -> str:
        """Give what the script printed; options as for `finish`."""
        process = self.finish(script, **options)
        assert process.returncode == 0, process.stderr
        assert "Traceback" not in process.stderr, process.stderr
        return process.stdout

    def finish(
        self,
        script: str,
        *,
        under: tuple[str, ...] = ("opentelemetry-instrument",),
        bin_folder: Path = Path(sys.executable).parent,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run the script to its end, whatever that is."""
        agent = self.folder / "agent.py"
        agent.write_text(script)
        return subprocess.run(
            [*(str(bin_folder / name) for name in (*under, "python")), str(agent)],
            env=self.environment(bin_folder) | variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def environment(self, bin_folder: Path = Path(sys.executable).parent) -> dict[str, str]:
        """Give the variables that an agent runs with."""
        return {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.sink.url,
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_BSP_SCHEDULE_DELAY": "1000",
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": self.model_server.base_url("vllm"),
        }


START_UP_FILE = Path(__file__).parent.parent.parent / "instrumentation/zz_otel_lightning.pth"


@pytest.fixture(scope="session")
def plain_bin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with our start-up file, however this one was installed."""
    venv = tmp_path_factory.mktemp("plain") / "venv"
    finish(sys.executable, "-m", "venv", "--without-pip", venv, check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    ours = [str(START_UP_FILE.parent)]
    folders = [path for path in sys.path if "-packages" in path]
    (packages / "base.pth").write_text("\n".join([*ours, *site.getsitepackages(), *folders]))
    (packages / START_UP_FILE.name).write_text(START_UP_FILE.read_text())
    return venv / "bin"


@pytest.fixture
def agent(tmp_path: Path, sink: Sink, model_server: ModelServer) -> AgentRunner:
    return AgentRunner(tmp_path, sink, model_server)


@dataclass(frozen=True)
class Traced:
    """This process, instrumented as an agent's would be, with its spans in memory."""

    provider: TracerProvider
    exporter: InMemorySpanExporter

    def spans(self) -> dict[str, dict[str, Any]]:
        """Give the attributes of the finished spans by name."""
        return {
            span.name: dict(span.attributes or {}) for span in self.exporter.get_finished_spans()
        }

    def events(self, name: str) -> list[dict[str, Any]]:
        """Give the attributes of the flag evaluations on the span of that name."""
        return [
            dict(event.attributes or {})
            for span in self.exporter.get_finished_spans()
            if span.name == name
            for event in span.events
            if event.name == "feature_flag.evaluation"
        ]


@pytest.fixture(scope="session")
def _instrumented() -> Iterator[Traced]:
    # It imports openai, which is slow and not needed to collect tests.
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    provider = TracerProvider()
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    LightningInstrumentor().instrument(tracer_provider=provider)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of theirs, on import
        OpenAIInstrumentor().instrument(tracer_provider=provider)
    yield Traced(provider, exporter)
    OpenAIInstrumentor().uninstrument()
    LightningInstrumentor().uninstrument()


@pytest.fixture(scope="session")
def _hooks(_instrumented: Traced) -> list[Any]:
    from openfeature import api

    return [*api.get_hooks()]


@pytest.fixture
def traced(_instrumented: Traced, _hooks: list[Any]) -> Iterator[Traced]:
    from openfeature import api

    # Only for this test: those of other folders evaluate flags in the same process, which would put
    # arms in force, and shut OpenFeature down, which removes all hooks.
    api.clear_hooks()
    api.add_hooks(_hooks)
    _instrumented.exporter.clear()
    yield _instrumented
    api.clear_hooks()
