"""Turning our instrumentation on and off, in processes of their own: it is a singleton."""

import subprocess
import sys

SET_UP = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from otel_lightning.instrumentation.instrumentor import LightningInstrumentor

provider, exporter = TracerProvider(), InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(exporter))
instrumentor = LightningInstrumentor()

def attributes():
    exporter.clear()
    provider.get_tracer("agent").start_span("any").end()
    return dict(exporter.get_finished_spans()[0].attributes)
"""


def python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={"LIGHTNING_ROLLOUT_ID": "rollout-1", "LIGHTNING_INSTRUMENT": "false"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_uninstrument_undoes_what_instrument_did() -> None:
    process = python(
        SET_UP
        + """
from openfeature import api
instrumentor.instrument(tracer_provider=provider)
assert attributes() == {"lightning.rollout.id": "rollout-1"}
assert len(api.get_hooks()) == 1
instrumentor.uninstrument()
assert attributes() == {}
assert api.get_hooks() == []
instrumentor.instrument(tracer_provider=provider)
assert attributes() == {"lightning.rollout.id": "rollout-1"}
assert len(api.get_hooks()) == 1
"""
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_hooks_of_the_agent_survive_uninstrument() -> None:
    process = python(
        SET_UP
        + """
from openfeature import api
from openfeature.hook import Hook
own = Hook()
api.add_hooks([own])
instrumentor.instrument(tracer_provider=provider)
instrumentor.uninstrument()
assert api.get_hooks() == [own]
"""
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_an_agent_without_openfeature_or_openai_is_stamped_all_the_same() -> None:
    process = python(
        """
import sys
sys.modules["openfeature"] = None
sys.modules["openai"] = None
"""
        + SET_UP
        + """
instrumentor.instrument(tracer_provider=provider)
assert attributes() == {"lightning.rollout.id": "rollout-1"}
"""
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_without_an_sdk_we_say_so_and_step_aside() -> None:
    process = python(
        """
from otel_lightning.instrumentation.instrumentor import LightningInstrumentor
LightningInstrumentor().instrument()
print("the agent goes on")
"""
    )
    assert process.stdout == "the agent goes on\n"
    assert "No OpenTelemetry SDK is set up in this process" in process.stderr
    assert "opentelemetry-instrument" in process.stderr
