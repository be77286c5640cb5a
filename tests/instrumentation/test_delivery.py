"""The end of a process: what is still delivered, and what is said of what is not."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.certificates import Authority
from support.examples import first_quick
from support.running import LIMIT_S, background, serving, start

STEP = """
from opentelemetry import trace
trace.get_tracer("agent").start_span("step").end()
"""
"""One span, without the CPU-second that it takes to import OpenAI's client."""
BUSY = STEP + "print('answered')"
CALL = """
import openai
client = openai.OpenAI()
client.chat.completions.create(model="small", messages=[{"role": "user", "content": "Hi"}])
"""


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def _receiver(statuses: list[int]) -> Iterator[str]:
    """Start a receiver that answers with these statuses, and then never again."""
    left = list(statuses)
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if not left:
                closing.wait(LIMIT_S)
                return
            self.send_response(left.pop(0))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"
        closing.set()


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("protocol", first_quick(["grpc", "http/protobuf"]))
def test_a_collector_that_is_down_is_named_in_one_line(
    agent: Any, closed_port: int, protocol: str
) -> None:
    process = agent.finish(
        BUSY,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{closed_port}",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        LIGHTNING_EXIT_TIMEOUT="0.5",
    )
    assert (process.returncode, process.stdout) == (0, "answered\n")
    (line,) = process.stderr.splitlines()
    assert line.startswith("Lost 1 span: not delivered within the 0.5 s")
    address = f"{closed_port}/v1/traces" if protocol == "http/protobuf" else str(closed_port)
    assert re.search(rf"\. Does a collector listen at \S*127\.0\.0\.1:{address}\?", line)


def test_an_agent_in_a_container_hears_that_localhost_is_the_container(
    agent: Any, closed_port: int
) -> None:
    said = "In a container localhost is the container itself"
    for endpoint, is_told in (("127.0.0.1", True), ("127.0.0.2", False)):
        done = agent.finish(
            BUSY,
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{endpoint}:{closed_port}",
            LIGHTNING_EXIT_TIMEOUT="0.5",
            KUBERNETES_SERVICE_HOST="10.0.0.1",  # Kubernetes sets it in each container
        )
        (line,) = done.stderr.splitlines()
        assert (said in line) == is_told


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_certificate_that_is_not_trusted_is_named_with_the_remedy(
    agent: Any, protocol: str, tmp_path: Path
) -> None:
    ingester = start(tmp_path / "t.duckdb", *Authority(tmp_path).options("first"))
    try:
        done = agent.finish(
            BUSY,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_EXPORTER_OTLP_ENDPOINT=f"https://{getattr(ingester, protocol[:4])}",
        )
    finally:
        ingester.stop()
    assert done.stdout == "answered\n"
    assert "set OTEL_EXPORTER_OTLP_CERTIFICATE to the file of its authority" in done.stderr
    assert "Does a collector listen" not in done.stderr


@pytest.mark.parametrize(
    ("protocol", "told"),
    [
        ("http/protobuf", "That port speaks gRPC: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc"),
        ("grpc", "StatusCode.UNIMPLEMENTED"),
    ],
)
def test_a_server_that_answers_with_an_error_is_reported_and_not_missed(
    agent: Any, protocol: str, told: str
) -> None:
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        process = agent.finish(
            BUSY,
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            LIGHTNING_EXIT_TIMEOUT="2",
        )
        server.stop(None).wait(LIMIT_S)
    (line,) = process.stderr.splitlines()
    assert told in line
    assert "Does a collector listen" not in line


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"path": "/v1/traces"}, "leave it out there"),
        ({"headers": "authorization=Bearer%20wrong"}, "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_a_refusal_over_http_is_told_with_its_remedy(
    agent: Any, tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    ingester = start(tmp_path / "t.duckdb", "--token", "right")
    try:
        process = agent.finish(
            BUSY,
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{ingester.http}{settings.get('path', '')}",
            OTEL_EXPORTER_OTLP_HEADERS=settings.get("headers", "authorization=Bearer%20right"),
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        )
    finally:
        ingester.stop()
    (line,) = process.stderr.splitlines()
    assert line.startswith("Lost 1 span")
    assert told in line
    assert "Does a collector listen" not in line


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (503, "its log says why"),
        pytest.param(429, "raise its limit", marks=pytest.mark.slow),
        pytest.param(413, "MAX_EXPORT_BATCH", marks=pytest.mark.slow),
    ],
)
def test_a_receiver_that_refuses_for_now_is_not_missed(agent: Any, status: int, told: str) -> None:
    with _receiver([status] * 100) as endpoint:
        done = agent.finish(BUSY, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, LIGHTNING_EXIT_TIMEOUT="1")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Lost 1 span")
    assert told in line
    assert "Does a collector listen" not in line


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": ""}, "to NO_PROXY"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4318"}, "Write http://"),
    ],
)
def test_an_address_that_reaches_no_collector_is_told_with_its_remedy(
    agent: Any, settings: dict[str, str], told: str
) -> None:
    done = agent.finish(STEP, LIGHTNING_EXIT_TIMEOUT="1", **settings)
    (line,) = done.stderr.splitlines()
    assert line.startswith("Lost 1 span")
    assert told in line
    assert "Does a collector listen" not in line


def test_a_collector_that_answered_before_is_slow_and_not_missed(agent: Any) -> None:
    script = f"{STEP}trace.get_tracer_provider().force_flush()\n{STEP}"
    with _receiver([200]) as endpoint:  # it answers the first request only
        done = agent.finish(
            script, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, LIGHTNING_EXIT_TIMEOUT="0.5"
        )
    (line,) = done.stderr.splitlines()
    assert line.startswith("Lost 1 span")
    assert f"{endpoint}/v1/traces answered before" in line
    assert "Does a collector listen" not in line


@pytest.mark.parametrize("has_tls", [True, False])
def test_tls_on_one_side_only_is_told_with_the_right_scheme(
    agent: Any, tmp_path: Path, *, has_tls: bool
) -> None:
    authority = Authority(tmp_path)
    ingester = start(tmp_path / "t.duckdb", *(authority.options("first") if has_tls else ()))
    wrong, right = ("http", "https") if has_tls else ("https", "http")
    try:
        done = agent.finish(
            BUSY,
            OTEL_EXPORTER_OTLP_ENDPOINT=f"{wrong}://{ingester.http}",
            OTEL_EXPORTER_OTLP_CERTIFICATE=str(tmp_path / "ca.pem"),
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            LIGHTNING_EXIT_TIMEOUT="2",
        )
    finally:
        ingester.stop()
    (line,) = done.stderr.splitlines()
    assert f"write {right}:// instead of {wrong}://" in line
    assert "Does a collector listen" not in line


def test_a_collector_that_never_answers_holds_the_exit_up_no_longer_than_allowed(
    agent: Any, silent_port: int
) -> None:
    # Unbounded, this would last until the runner's own limit and fail there.
    process = agent.finish(
        BUSY,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{silent_port}",
        OTEL_EXPORTER_OTLP_TIMEOUT="600",
        LIGHTNING_EXIT_TIMEOUT="0.5",
    )
    assert (process.returncode, process.stdout) == (0, "answered\n")
    assert len(process.stderr.splitlines()) == 1
    assert process.stderr.startswith("Lost 1 span")


def test_spans_that_a_full_queue_dropped_are_counted(agent: Any, silent_port: int) -> None:
    script = """
from opentelemetry import trace
tracer = trace.get_tracer("agent")
for _ in range(20):
    tracer.start_span("step").end()
"""
    process = agent.finish(
        script,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{silent_port}",
        OTEL_BSP_MAX_QUEUE_SIZE="4",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="4",
        LIGHTNING_EXIT_TIMEOUT="0.2",
    )
    assert process.returncode == 0
    assert process.stderr.startswith("Lost 20 spans"), process.stderr


def test_a_batch_that_no_receiver_would_accept_is_divided(agent: Any) -> None:
    script = """
from opentelemetry import trace
for _ in range(8):
    span = trace.get_tracer("agent").start_span("step")
    span.set_attribute("text", "x" * 9_000_000)
    span.end()
"""
    process = agent.finish(script, OTEL_BSP_SCHEDULE_DELAY="60000", LIGHTNING_EXIT_TIMEOUT="300")
    assert (process.returncode, process.stderr) == (0, "")
    assert len(agent.sink.spans) == 8
    assert max(map(len, agent.sink.bodies)) < 2**26


def test_a_delivered_process_says_nothing(agent: Any) -> None:
    process = agent.finish(CALL)
    assert (process.returncode, process.stderr) == (0, "")
    assert len(agent.sink.llm_spans()) == 1


@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param("raise KeyboardInterrupt", -signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("raise SystemExit(3)", 3, marks=pytest.mark.slow),
        ("raise RuntimeError('the agent is broken')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        pytest.param(
            "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
            -signal.SIGINT,
            marks=pytest.mark.slow,
        ),
        # The terminal of the agent was closed.
        ("import os, signal; os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP),
    ],
)
def test_an_agent_that_ends_early_delivers_what_it_did(agent: Any, end: str, code: int) -> None:
    process = agent.finish(STEP + end)
    assert process.returncode == code, process.stderr
    assert [span.name for span in agent.sink.spans] == ["step"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "end"),
    [
        ("chat.completions", ""),
        ("chat.completions.with_raw_response", "os.kill(os.getpid(), signal.SIGTERM)"),
    ],
)
def test_a_stream_that_is_open_at_the_end_is_delivered(agent: Any, api: str, end: str) -> None:
    script = f"""
import os, signal
import openai
messages = [{{"role": "user", "content": "Hi"}}]
stream = openai.OpenAI().{api}.create(model="small", messages=messages, stream=True)
stream = stream.parse() if hasattr(stream, "parse") else stream
next(stream)
{end}
"""
    process = agent.finish(script)
    assert process.stderr == ""
    (span,) = agent.sink.llm_spans()
    assert "Hel" in span.attributes["gen_ai.output.messages"]


@pytest.mark.parametrize("api", first_quick(["responses", "responses.with_raw_response"]))
def test_a_stream_of_responses_that_is_open_at_the_end_has_its_messages(
    agent: Any, api: str
) -> None:
    script = f"""
import openai
client = openai.OpenAI()
stream = client.{api}.create(model="small", input="Hi", instructions="Be kind.", stream=True)
stream = stream.parse() if hasattr(stream, "parse") else stream
next(iter(stream))
"""
    process = agent.finish(script)
    assert process.stderr == ""
    (span,) = agent.sink.spans
    texts = [
        message["parts"][0]["content"]
        for message in json.loads(span.attributes["gen_ai.input.messages"])
    ]
    assert texts == ["Be kind.", "Hi"]
    assert span.attributes["gen_ai.operation.name"] == "chat"


def test_a_thread_that_still_works_at_the_end_leads_to_no_warning(agent: Any) -> None:
    script = """
import threading, time
import openai
from opentelemetry import trace
client = openai.OpenAI()
def work():
    stream = client.chat.completions.create(model="small", messages=[], stream=True)
    next(iter(stream))
    started.set()
    span = trace.get_tracer("agent").start_span("step")
    ended.wait()
    list(stream)
started, ended = threading.Event(), threading.Event()
threading.Thread(target=work, daemon=True).start()
started.wait()
import atexit, otel_lightning.instrumentation.delivery as delivery
finish = delivery.finish
atexit.unregister(finish)
atexit.register(lambda: (finish(), ended.set(), time.sleep(0.3)))
"""
    assert agent.finish(script).stderr == ""


def test_a_sigterm_handler_of_the_agents_own_is_kept(agent: Any) -> None:
    script = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: print("the agent's own"))
os.kill(os.getpid(), signal.SIGTERM)
"""
    assert agent.run(STEP + script) == "the agent's own\n"


def test_what_was_sent_before_os_exit_is_there(agent: Any) -> None:
    wait = """
import os, sys
print("called", flush=True)
sys.stdin.readline()
os._exit(0)
"""
    path = agent.folder / "agent.py"
    path.write_text(STEP + wait)
    launcher = Path(sys.executable).parent / "opentelemetry-instrument"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with background(launcher, sys.executable, path, env=agent.environment(), **pipes) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "called\n"
        assert agent.sink.arrived.wait(LIMIT_S), "a span is sent within the schedule delay"
        process.communicate("\n", timeout=LIMIT_S)
    assert process.returncode == 0
    assert [span.name for span in agent.sink.spans] == ["step"]


def test_openais_markers_for_arguments_left_out_are_no_warnings(agent: Any) -> None:
    script = """
import openai
openai.OpenAI().chat.completions.create(
    model="small",
    messages=[{"role": "user", "content": "Hi"}],
    temperature=openai.omit,
    top_p=openai.NOT_GIVEN,
    max_tokens=openai.omit,
)
"""
    process = agent.finish(script)
    assert (process.returncode, process.stderr) == (0, "")


def test_other_warnings_about_attributes_are_still_said(agent: Any) -> None:
    script = """
from opentelemetry import trace
trace.get_tracer("agent").start_span("step").set_attribute("of", object)
"""
    assert "Invalid type" in agent.finish(script).stderr


def test_a_forked_child_delivers_its_own_spans_once(agent: Any) -> None:
    script = (
        CALL
        + """
import os, sys
child = os.fork()
if child == 0:
    client.chat.completions.create(model="small", messages=[{"role": "user", "content": "fork"}])
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert agent.run(script) == "0\n"
    spans = agent.sink.llm_spans()
    asked = sorted("fork" in span.attributes["gen_ai.input.messages"] for span in spans)
    assert asked == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool_that_is_terminated_deliver_their_spans_once(
    agent: Any, method: str
) -> None:
    script = f"""
import multiprocessing
import openai

def call(task):
    messages = [{{"role": "user", "content": task}}]
    openai.OpenAI().chat.completions.create(model="small", messages=messages)

if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(1) as pool:  # the end of the block terminates
        pool.map(call, ["Oslo", "Rome"])
"""
    agent.run(script, OTEL_BSP_SCHEDULE_DELAY="600000")
    asked = sorted(span.attributes["gen_ai.input.messages"] for span in agent.sink.llm_spans())
    assert len(asked) == 2
    assert "Oslo" in asked[0]
    assert "Rome" in asked[1]


def test_a_provider_that_the_agent_sets_up_in_code_gets_the_spans_too(agent: Any) -> None:
    script = """
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import openai

exporter = InMemorySpanExporter()
provider = TracerProvider(resource=Resource.create({"service.name": "own"}))
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
with trace.get_tracer("agent").start_as_current_span("task"):
    openai.OpenAI().chat.completions.create(
        model="small", messages=[{"role": "user", "content": "Hi"}]
    )
for span in exporter.get_finished_spans():
    print(span.name, span.resource.attributes["service.name"],
          span.attributes["lightning.rollout.id"])
"""
    process = agent.finish(script, LIGHTNING_ROLLOUT_ID="r1")
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == "openai.chat own r1\ntask own r1\n"
    assert sorted(span.name for span in agent.sink.spans) == ["openai.chat", "task"]


def test_spans_are_delivered_at_exit_where_no_thread_can_be_started(agent: Any) -> None:
    # So does Python from 3.12 on; here the last handler that is registered, which runs first.
    script = """
import atexit
import threading

def refuse():
    def start_new_thread(*_):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    threading._start_new_thread = start_new_thread

atexit.register(refuse)
"""
    process = agent.finish(STEP + script, OTEL_BSP_SCHEDULE_DELAY="600000")
    assert (process.returncode, process.stderr) == (0, "")
    assert [span.name for span in agent.sink.spans] == ["step"]


def test_without_new_threads_the_exit_takes_no_longer_than_allowed(
    agent: Any, silent_port: int
) -> None:
    script = """
import threading
def refuse(*_):
    raise RuntimeError("can't start new thread")
threading._start_new_thread = refuse
"""
    process = agent.finish(
        STEP + script,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{silent_port}",
        OTEL_EXPORTER_OTLP_TIMEOUT="600",
        LIGHTNING_EXIT_TIMEOUT="0.5",
    )
    assert process.returncode == 0
    assert process.stderr.startswith("Lost 1 span"), process.stderr


def test_an_exporter_whose_methods_cannot_be_replaced_delivers(agent: Any) -> None:
    script = """
from opentelemetry import trace
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

class Exporter:
    __slots__ = ()
    def export(self, spans):
        print(*(span.name for span in spans))
        return SpanExportResult.SUCCESS
    def shutdown(self):
        pass

trace.get_tracer_provider().add_span_processor(BatchSpanProcessor(Exporter()))
"""
    process = agent.finish(script + STEP, OTEL_BSP_SCHEDULE_DELAY="600000")
    assert (process.returncode, process.stdout) == (0, "step\n")
    assert [span.name for span in agent.sink.spans] == ["step"]


def test_a_time_limit_without_end_is_no_error(agent: Any) -> None:
    process = agent.finish(STEP, LIGHTNING_EXIT_TIMEOUT="inf", OTEL_BSP_SCHEDULE_DELAY="600000")
    assert (process.returncode, process.stderr) == (0, "")
    assert [span.name for span in agent.sink.spans] == ["step"]


OPEN_STREAM = """
import os, signal, sys
import openai
messages = [{"role": "user", "content": "Hi"}]
stream = openai.OpenAI().chat.completions.create(model="small", messages=messages, stream=True)
next(stream)
"""


def test_sigterm_ends_a_process_that_holds_the_lock_of_a_span(agent: Any) -> None:
    script = """
from opentelemetry import trace
from otel_lightning.instrumentation import model_call
(span,) = model_call._unended_spans
with span._lock:
    os.kill(os.getpid(), signal.SIGTERM)
"""
    process = agent.finish(OPEN_STREAM + script, LIGHTNING_EXIT_TIMEOUT="0.5")
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("api", ["chat.completions", "chat.completions.with_raw_response"])
def test_a_stream_that_is_open_in_a_fork_is_sent_by_the_parent_only(agent: Any, api: str) -> None:
    script = """
stream = stream.parse() if hasattr(stream, "parse") else stream
next(stream)
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(len(list(stream)) > 0)
"""
    opened = OPEN_STREAM.replace("chat.completions", api).replace("next(stream)\n", "")
    assert agent.run(opened + script) == "True\n"
    (span,) = agent.sink.llm_spans()
    assert "Hello" in span.attributes["gen_ai.output.messages"]
