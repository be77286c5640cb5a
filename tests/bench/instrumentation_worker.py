"""One agent under one tracer, told on its input what to do; see `instrumentation.py`.

Each line of input is the work (`task` or `stream`) and how often to do it. Each line of output is
the CPU time of one piece of work in microseconds. The first line of output is the CPU time of the
start in seconds; the last, at the end of the input, is the memory in MiB.
"""

import asyncio
import contextlib
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# agentlightning's tracer fails on a tool without a description.
SUN = {"name": "sun", "description": "Hours of sun today.", "parameters": {}}
# An agent that asks for token ids itself: what the same answers cost without us.
ASKING: dict[str, Any] = (
    {"logprobs": True, "extra_body": {"return_token_ids": True}} if os.environ.get("ASK") else {}
)
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
    elif tracer in ("traceloop", "ours", "ours-unsaved"):
        if tracer == "ours-unsaved":
            _save_nothing()
        from opentelemetry.instrumentation.auto_instrumentation import initialize

        initialize()
    return contextlib.nullcontext()


def _save_nothing() -> None:
    """Leave the bundled instrumentation as slow as it is, to see what our own work costs."""
    from otel_lightning.instrumentation import overhead

    overhead.save = lambda _undo: None
    overhead.without_unread_metrics = contextlib.nullcontext


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
    create = client.chat.completions.create
    answer = create(model="m", messages=messages, tools=TOOLS, **ASKING)
    call = answer.choices[0].message.tool_calls[0]
    asked = {"id": call.id, "type": "function", "function": call.function.model_dump()}
    messages.append({"role": "assistant", "tool_calls": [asked]})
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "sun in Oslo"})
    create(model="m", messages=messages, tools=TOOLS, **ASKING)


def stream(client: Any) -> None:
    """Read one streamed answer to its end."""
    messages = [{"role": "user", "content": "Tell."}]
    create = client.chat.completions.create
    for _ in create(model="m", messages=messages, stream=True, **ASKING):
        pass


def cpu_of(work: Callable[[Any], None], client: Any, times: int) -> float:
    """Return CPU microseconds of this process, all threads, for one piece of work."""
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
    """Run one tracer until the input ends."""
    with start(sys.argv[1]):
        import openai

        client = openai.OpenAI(api_key="none", max_retries=0)
        task(client)
        say(time.process_time())
        for work in (task, stream):
            cpu_of(work, client, WARM_UP)
        for line in sys.stdin:
            name, times = line.split()
            say(cpu_of({"task": task, "stream": stream}[name], client, int(times)))
        say(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def say(number: float) -> None:
    """Answer with one number, marked: some tracers print lines of their own."""
    sys.stdout.write(f"\n= {number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
