"""One agent under one tracer: prints what it cost as JSON. Run by `instrumentation.py`."""

import asyncio
import contextlib
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# agentlightning's tracer fails on a tool without a description.
SUN = {"name": "sun", "description": "Hours of sun today.", "parameters": {}}
TOOLS = [{"type": "function", "function": SUN}]
WARM_UP = 20


def start(tracer: str) -> contextlib.AbstractContextManager[Any]:
    """Set a tracer up as its documentation says; the rest is told by variables."""
    if tracer == "openinference":
        from openinference.instrumentation.openai import OpenAIInstrumentor
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        OpenAIInstrumentor().instrument(tracer_provider=provider)
    elif tracer == "agentlightning":
        return _agentlightning()
    elif tracer in ("traceloop", "ours"):
        from opentelemetry.instrumentation.auto_instrumentation import initialize

        initialize()
    return contextlib.nullcontext()


@contextlib.contextmanager
def _agentlightning() -> Iterator[None]:
    from agentlightning import AgentOpsTracer

    tracer = AgentOpsTracer()
    tracer.init()
    tracer.init_worker(0)
    context = tracer.trace_context("bench")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(context.__aenter__())
    yield
    loop.run_until_complete(context.__aexit__(None, None, None))


def task(client: Any) -> None:
    """Work on one task: two model calls, one tool."""
    messages: list[Any] = [{"role": "user", "content": "Oslo"}]
    answer = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    call = answer.choices[0].message.tool_calls[0]
    asked = {"id": call.id, "type": "function", "function": call.function.model_dump()}
    messages.append({"role": "assistant", "tool_calls": [asked]})
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "sun in Oslo"})
    client.chat.completions.create(model="m", messages=messages, tools=TOOLS)


def stream(client: Any) -> None:
    """Read one streamed answer to its end."""
    messages = [{"role": "user", "content": "Tell."}]
    for _ in client.chat.completions.create(model="m", messages=messages, stream=True):
        pass


def cpu_of(work: Callable[[Any], None], client: Any, times: int) -> float:
    """Return CPU microseconds of this process, all threads, for one piece of work."""
    for _ in range(WARM_UP):
        work(client)
    _flush()
    begin = time.process_time()
    for _ in range(times):
        work(client)
    _flush()
    return (time.process_time() - begin) / times * 1e6


def _flush() -> None:
    with contextlib.suppress(ImportError):
        from opentelemetry import trace

        flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if flush:
            flush()


def main() -> None:
    """Measure one tracer."""
    tracer, times = sys.argv[1], int(sys.argv[2])
    with start(tracer):
        import openai

        client = openai.OpenAI(api_key="none", max_retries=0)
        task(client)
        ready = time.process_time()
        call = cpu_of(task, client, times) / 2
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        streamed = cpu_of(stream, client, max(times // 8, 1))
        cost = {"start_s": ready, "call_us": call, "stream_us": streamed, "memory_mib": memory}
        sys.stdout.write(json.dumps(cost) + "\n")


if __name__ == "__main__":
    main()
