"""What the deriving benches send: the same agent's traces, as several dialects write them.

A trace has 12 spans: an agent, five model calls of 2 KB, four tools, a retrieval, a reward. It uses
only the standard library and OTLP, because `derive_once.py` runs it beside older versions.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

sys.path.append(str(Path(__file__).parent))

from agentlightning_traces import SPANS_A_TRACE, otlp, trace

START_NS, STEP_NS = 1_800_000_000_000_000_000, 1_000_000
AGENTS = "agents, traces of 12 spans"
INDEXED = "agents, indexed layout"
OPENINFERENCE = "agents, OpenInference"
MIXED = "agents, mixed dialects"
GROWING = "growing conversations"
WORDS = [f"word{number}" for number in range(5_000)]
RANDOM = random.Random(1)  # noqa: S311 - text, not a secret


def words(size: int) -> str:
    return " ".join(RANDOM.choices(WORDS, k=size // 8))


def message(role: str, size: int) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": words(size)}]}


def plain_span(number: int, trace: int, parent: int | None, attributes: dict[str, Any]) -> Span:
    made = Span(
        trace_id=trace.to_bytes(16, "big"),
        span_id=(number + 1).to_bytes(8, "big"),
        parent_span_id=b"" if parent is None else (parent + 1).to_bytes(8, "big"),
        name="work",
        start_time_unix_nano=START_NS + number * STEP_NS,
        end_time_unix_nano=START_NS + number * STEP_NS + STEP_NS // 2,
    )
    for key, value in attributes.items():
        text = value if isinstance(value, str) else json.dumps(value)
        made.attributes.add(key=key).value.string_value = text
    return made


def span(number: int, trace: int, parent: int | None, **attributes: Any) -> Span:
    named = {
        "gen_ai.operation.name" if key == "operation" else f"gen_ai.{key}".replace("__", "."): value
        for key, value in attributes.items()
    }
    made = plain_span(number, trace, parent, named)
    made.name = attributes.get("operation", "work")
    return made


def chat(number: int, trace: int, parent: int | None, history: Any, answer: Any) -> Span:
    facts = {
        "operation": "chat",
        "provider__name": "openai",
        "request__model": "m",
        "response__model": "m-1",
        "response__id": f"r{number}",
        "request__temperature": 0.7,
        "response__finish_reasons": ["stop"],
        "usage__input_tokens": 380,
        "usage__output_tokens": 110,
    }
    said = {"input__messages": history, "output__messages": [answer]}
    return span(number, trace, parent, **facts, **said)


def tool(number: int, trace: int, parent: int | None) -> Span:
    facts = {"tool__name": "search", "tool__call__id": f"c{number}"}
    given = {"tool__call__arguments": {"q": words(60)}, "tool__call__result": words(220)}
    return span(number, trace, parent, operation="execute_tool", **facts, **given)


def reward(number: int, trace: int, parent: int) -> Span:
    judged = span(number, trace, parent)
    event = judged.events.add(name="gen_ai.evaluation.result", time_unix_nano=START_NS)
    event.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = 0.5
    return judged


def agents(spans: int, conversations: int = sys.maxsize) -> Iterator[Span]:
    """Yield the agent's traces as OpenTelemetry's conventions write them."""
    for first in range(0, spans, SPANS_A_TRACE):
        trace = first // SPANS_A_TRACE + 1
        talk = f"talk-{trace % conversations}"
        yield span(first, trace, None, operation="invoke_agent", conversation__id=talk)
        for one in range(5):
            asked, answer = [message("user", 1500)], message("assistant", 450)
            yield chat(first + 1 + one, trace, first, asked, answer)
        for one in range(4):
            yield tool(first + 6 + one, trace, first)
        yield span(first + 10, trace, first, operation="retrieval")
        yield reward(first + 11, trace, first)


def lasting(spans: int) -> Iterator[Span]:
    """Yield the same agents in 128 conversations that go on as long as they do."""
    return agents(spans, conversations=128)


def indexed(spans: int) -> Iterator[Span]:
    """Yield the traces of `make bench-transitions`: agentlightning's tracer wrote such."""
    for number in range(spans // SPANS_A_TRACE):
        yield from otlp(trace(number))


def openinference(spans: int) -> Iterator[Span]:
    """Yield the agent's traces as OpenInference's instrumentation of the OpenAI SDK writes them."""
    for first in range(0, spans, SPANS_A_TRACE):
        trace = first // SPANS_A_TRACE + 1
        agent = {"openinference.span.kind": "AGENT", "agent.name": "support"}
        yield plain_span(first, trace, None, agent | {"session.id": f"talk-{trace}"})
        for one in range(5):
            yield _openinference_call(first + 1 + one, trace, first)
        for one in range(4):
            ran = {"openinference.span.kind": "TOOL", "tool.name": "search"}
            given = {"input.value": {"q": words(60)}, "output.value": words(220)}
            yield plain_span(first + 6 + one, trace, first, ran | given)
        found = {"openinference.span.kind": "RETRIEVER", "output.value": words(220)}
        yield plain_span(first + 10, trace, first, found)
        yield reward(first + 11, trace, first)


def _openinference_call(number: int, trace: int, parent: int) -> Span:
    asked = [("system", words(250)), ("user", words(1250))]
    answer = words(450)
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
    request = {
        "messages": [{"role": role, "content": text} for role, text in asked],
        "model": "m",
        "temperature": 0.7,
        "tools": tools,
    }
    choice = {"index": 0, "finish_reason": "stop"}
    response = {
        "id": f"r{number}",
        "choices": [{**choice, "message": {"role": "assistant", "content": answer}}],
        "model": "m-1",
        "usage": {"prompt_tokens": 380, "completion_tokens": 110, "total_tokens": 490},
    }
    facts = {
        "openinference.span.kind": "LLM",
        "llm.provider": "openai",
        "llm.system": "openai",
        "llm.model_name": "m-1",
        "llm.invocation_parameters": {"model": "m", "temperature": 0.7},
        "input.value": request,
        "input.mime_type": "application/json",
        "output.value": response,
        "output.mime_type": "application/json",
        "llm.token_count.prompt": 380,
        "llm.token_count.completion": 110,
        "llm.token_count.total": 490,
        "llm.tools.0.tool.json_schema": tools[0],
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
    }
    for place, (role, text) in enumerate(asked):
        facts[f"llm.input_messages.{place}.message.role"] = role
        facts[f"llm.input_messages.{place}.message.content"] = text
    return plain_span(number, trace, parent, facts)


def mixed(spans: int) -> Iterator[Span]:
    """Yield traces of the three dialects by turns, each with ids of its own."""
    sources = [agents(spans // 3), indexed(spans // 3), openinference(spans // 3)]
    while some := [list(islice(source, SPANS_A_TRACE)) for source in sources]:
        if not any(some):
            return
        for dialect, made in enumerate(some):
            for one in made:
                one.trace_id = bytes([dialect + 1]) + one.trace_id[1:]
                yield one


def growing(spans: int, turns: int = 24) -> Iterator[Span]:
    """Yield conversations by turns; every call repeats all that was said before it.

    A turn is a trace of its own, of an agent and a call, and all conversations go on at one time.
    """
    talks: list[list[dict[str, Any]]] = [[] for _ in range(max(spans // (2 * turns), 1))]
    for turn in range(turns):
        for talk, history in enumerate(talks):
            trace = turn * len(talks) + talk + 1
            named = {"operation": "invoke_agent", "conversation__id": f"talk-{talk}"}
            yield span(2 * trace, trace, None, **named)
            history.append(message("user", 150))
            answer = message("assistant", 250)
            yield chat(2 * trace + 1, trace, 2 * trace, history, answer)
            history.append(answer)


def flat(spans: int) -> Iterator[Span]:
    """Yield one trace: a root, and below it calls and tools."""
    yield span(0, 1, None, operation="invoke_agent")
    for number in range(1, spans):
        asked, answer = [message("user", 80)], message("assistant", 80)
        yield chat(number, 1, 0, asked, answer) if number % 2 else tool(number, 1, 0)


def deep(levels: int) -> Iterator[Span]:
    """Yield one trace, each span below the one before; every tenth is a call."""
    for number in range(levels):
        parent = number - 1 if number else None
        asked, answer = [message("user", 80)], message("assistant", 80)
        call = chat(number, 1, parent, asked, answer)
        yield span(number, 1, parent) if number % 10 else call


def conversation(calls: int) -> Iterator[Span]:
    """Yield calls in a trace each, every one repeating all that was said before."""
    history: list[dict[str, Any]] = []
    for number in range(calls):
        history.append(message("user", 150))
        answer = message("assistant", 250)
        yield chat(number, number + 1, None, history, answer)
        history.append(answer)


DIALECTS: dict[str, Callable[[int], Iterator[Span]]] = {
    AGENTS: agents,
    INDEXED: indexed,
    OPENINFERENCE: openinference,
    MIXED: mixed,
}
"""Derived all at once; `GROWING` is derived in the steps in which it arrived."""


def arrivals(case: str, spans: int, at_once: int = 5_000) -> Iterator[list[Span]]:
    """Yield the spans of a case in requests; `GROWING` in eight, between which it is derived."""
    source = growing(spans) if case == GROWING else DIALECTS[case](spans)
    size = max(spans // 8, 1) if case == GROWING else at_once
    while some := list(islice(source, size)):
        yield some
