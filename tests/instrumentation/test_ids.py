"""Ids that an agent's seed does not repeat."""

from typing import Any

SEEDED = """
import random
random.seed(42)
from opentelemetry import trace
trace.get_tracer("agent").start_span("step").end()
print(random.random())
"""
OWN = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from otel_lightning.instrumentation.instrumentor import LightningInstrumentor

class Counting(IdGenerator):
    count = 0
    def generate_span_id(self):
        self.count += 1
        return self.count
    generate_trace_id = generate_span_id

provider = TracerProvider(id_generator=Counting())
LightningInstrumentor().instrument(tracer_provider=provider)
context = provider.get_tracer("agent").start_span("any").get_span_context()
print(context.trace_id, context.span_id)
"""


def test_two_processes_with_one_seed_send_different_ids(agent: Any) -> None:
    first = agent.run(SEEDED)
    assert agent.run(SEEDED) == first, "the agent's own draws are as they were"
    spans = agent.sink.spans
    assert len(spans) == 2
    assert len({span.trace_id for span in spans}) == 2
    assert len({span.span_id for span in spans}) == 2


def test_a_generator_of_the_agents_own_is_kept(agent: Any) -> None:
    assert agent.run(OWN, under=(), LIGHTNING_INSTRUMENT="false") == "1 2\n"
