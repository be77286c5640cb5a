"""What deriving costs: CPU and peak memory, beside ten times less and ten times more spans.

Run it with `make bench-derive`. CPU seconds are the measure that survives a shared machine. Each
case is stored by one process and derived by another, whose memory is then the deriving's own. The
aim is 25 ms per 1,000 spans for the agents; a second table shows what `--spans-at-once` bounds, a
third what a conversation costs whose turns are stored and derived one by one, and a last one what
deriving a hundred new traces costs in a store that holds ever more.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import md5
from itertools import islice
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.refresh.backoff import Pace
from otel_lightning.collector.refresh.refresh import SPANS_AT_ONCE, refresh
from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.allocator import share_memory
from otel_lightning.collector.store.seen_ids import Known

START_NS, STEP_NS = 1_800_000_000_000_000_000, 1_000_000
LONG = "calls that repeat the history"
AGENTS = "agents, traces of 12 spans"
AIM = 25.0
"""So many CPU milliseconds should 1,000 spans of the agents cost at most."""
WORDS = [f"word{number}" for number in range(5_000)]
RANDOM = random.Random(1)  # noqa: S311 - text, not a secret


def words(size: int) -> str:
    return " ".join(RANDOM.choices(WORDS, k=size // 8))


def message(role: str, size: int) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": words(size)}]}


def span(number: int, trace: int, parent: int | None, **attributes: Any) -> Span:
    made = Span(
        trace_id=trace.to_bytes(16, "big"),
        span_id=(number + 1).to_bytes(8, "big"),
        parent_span_id=b"" if parent is None else (parent + 1).to_bytes(8, "big"),
        name=attributes.get("operation", "work"),
        start_time_unix_nano=START_NS + number * STEP_NS,
        end_time_unix_nano=START_NS + number * STEP_NS + STEP_NS // 2,
    )
    for key, value in attributes.items():
        name = "gen_ai.operation.name" if key == "operation" else f"gen_ai.{key}"
        text = value if isinstance(value, str) else json.dumps(value)
        made.attributes.add(key=name.replace("__", ".")).value.string_value = text
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


def agents(spans: int, conversations: int = sys.maxsize) -> Iterator[Span]:
    """Traces of 12: an agent, five calls of 2 KB, four tools, a retrieval, a reward."""
    for first in range(0, spans, 12):
        trace = first // 12 + 1
        talk = f"talk-{trace % conversations}"
        yield span(first, trace, None, operation="invoke_agent", conversation__id=talk)
        for one in range(5):
            asked, answer = [message("user", 1500)], message("assistant", 450)
            yield chat(first + 1 + one, trace, first, asked, answer)
        for one in range(4):
            yield tool(first + 6 + one, trace, first)
        yield span(first + 10, trace, first, operation="retrieval")
        judged = span(first + 11, trace, first)
        event = judged.events.add(name="gen_ai.evaluation.result", time_unix_nano=START_NS)
        event.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = 0.5
        yield judged


def lasting(spans: int) -> Iterator[Span]:
    """Return the same agents in 128 conversations that go on as long as they do."""
    return agents(spans, conversations=128)


def flat(spans: int) -> Iterator[Span]:
    """One trace: a root, and below it calls and tools."""
    yield span(0, 1, None, operation="invoke_agent")
    for number in range(1, spans):
        asked, answer = [message("user", 80)], message("assistant", 80)
        yield chat(number, 1, 0, asked, answer) if number % 2 else tool(number, 1, 0)


def deep(levels: int) -> Iterator[Span]:
    """One trace, each span below the one before; every tenth is a call."""
    for number in range(levels):
        parent = number - 1 if number else None
        asked, answer = [message("user", 80)], message("assistant", 80)
        call = chat(number, 1, parent, asked, answer)
        yield span(number, 1, parent) if number % 10 else call


def conversation(calls: int) -> Iterator[Span]:
    """Calls in a trace each, every one repeating all that was said before."""
    history: list[dict[str, Any]] = []
    for number in range(calls):
        history.append(message("user", 150))
        answer = message("assistant", 250)
        yield chat(number, number + 1, None, history, answer)
        history.append(answer)


CASES: dict[str, tuple[Callable[[int], Iterator[Span]], tuple[int, ...]]] = {
    AGENTS: (agents, (1_200, 12_000, 120_000)),
    "agents, 128 long conversations": (lasting, (1_200, 12_000, 120_000)),
    "one trace, flat": (flat, (10_000, 100_000, 1_000_000)),
    "one trace, one span a level": (deep, (1_000, 10_000, 100_000)),
    # Each has ten times the text of the one before: the history grows with the square.
    LONG: (conversation, (50, 158, 500, 1_580)),
}


def fill(case: str, size: int, path: Path) -> None:
    spans = CASES[case][0](size)
    with open_store(path) as store:
        while some := list(islice(spans, 5_000 if case != LONG else 10)):
            request = ExportTraceServiceRequest()
            request.resource_spans.add().scope_spans.add().spans.extend(some)
            body = request.SerializeToString()
            load(store, [Request("traces", START_NS, body)], dead_letters=path.parent)
            store.execute("CHECKPOINT")


def grow(turns: int, path: Path) -> None:
    """Store a conversation's turns one by one, each an agent's trace, and derive after each."""
    spans, pace, seconds, times = agents(12 * turns, conversations=1), Pace(), 0.0, 0
    with open_store(path) as store:
        store.threads = 1
        for _ in range(turns):
            request = ExportTraceServiceRequest()
            request.resource_spans.add().scope_spans.add().spans.extend(islice(spans, 12))
            body = request.SerializeToString()
            load(store, [Request("traces", START_NS, body)], dead_letters=path.parent)
            before = time.process_time()
            times += refresh(store, pace=pace) > 0
            seconds += time.process_time() - before
        before = time.process_time()
        derive_all(store, path)
        rest = time.process_time() - before
    print(f"{12 * turns:9,} {times:9,} {seconds + rest:8.2f} {1e3 * seconds / turns:9.1f}")


OTHERS = """
    CREATE TEMP TABLE others AS SELECT md5((number // 12)::VARCHAR) AS trace_id, number,
        md5((-number)::VARCHAR)[:16] AS span_id, make_timestamp_ns({start} + number) AS start_time,
        number % 12 AS place
    FROM range({spans}) numbers(number);
    INSERT INTO spans BY NAME SELECT trace_id, span_id, 'work' AS name, start_time,
        start_time AS end_time, start_time AS received_at, MAP {{}} AS attributes FROM others;
    INSERT INTO llm_calls BY NAME SELECT trace_id, span_id, start_time, trace_id AS rollout_id,
        'semconv' AS dialect, 0 AS step, 'full' AS content FROM others WHERE place < 5;
    INSERT INTO tool_calls BY NAME SELECT trace_id, span_id, start_time, trace_id AS rollout_id,
        'span' AS source FROM others WHERE place BETWEEN 5 AND 8;
    INSERT INTO trace_keys SELECT trace_id, md5_number_lower(number::VARCHAR) FROM others
    WHERE place > 0;
    DROP TABLE others
"""
"""Spans that were derived long ago, with all that deriving looks through, and no text."""


def beside(others: int, path: Path, rounds: int = 3) -> None:
    """Derive a hundred new traces in a store that holds so many other spans."""
    with open_store(path) as store:
        for first in range(0, others, 1_200_000):
            spans = min(others - first, 1_200_000)
            store.execute(OTHERS.format(start=START_NS + first, spans=spans))
            store.checkpoint()
        store.threads = 1
        known, spans, seconds = Known(store), agents(1_200 * (1 + rounds)), 0.0
        for number in range(1 + rounds):
            request = ExportTraceServiceRequest()
            some = request.resource_spans.add().scope_spans.add().spans
            for one in islice(spans, 1_200):
                one.trace_id = md5(one.trace_id, usedforsecurity=False).digest()
                some.append(one)
            body = request.SerializeToString()
            load(store, [Request("traces", START_NS, body)], known, dead_letters=path.parent)
            before = time.process_time()
            refresh(store)
            if number:  # the first one reads the file
                seconds += time.process_time() - before
    print(f"{others:11,} {1e3 * seconds / rounds:10.0f}")


def measure(path: Path, at_once: int) -> None:
    share_memory()  # as the commands do
    with open_store(path) as store:
        before = os.times()
        derive_all(store, path, at_once)
        after = os.times()
        (spans,) = store.query("SELECT count(*) FROM spans").column(0).to_pylist()
        (calls,) = store.query("SELECT count(*) FROM llm_calls").column(0).to_pylist()
    seconds = after.user + after.system - before.user - before.system
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{spans:9,} {calls:9,} {seconds:8.2f} {1e6 * seconds / spans:9.1f} {peak:9,.0f}")


def main(largest: int) -> None:
    print(f"{'':31}{'spans':>9} {'calls':>9} {'CPU s':>8} {'ms/1,000':>9} {'peak MB':>9}")
    for case, (_, sizes) in CASES.items():
        for size in sizes:
            if size <= largest:
                show(case, case, size)
    print(f"\nThe aim for the agents is {AIM} ms/1,000. By the number of spans at once:")
    for at_once in (1_000, 5_000, SPANS_AT_ONCE, 100_000):
        show(f"{at_once:,} at once", AGENTS, min(largest, 120_000), at_once)
    print(f"\n{'':31}{'spans':>9} {'times':>9} {'CPU s':>8} {'ms a turn':>9}")
    for turns in (100, 1_000):
        with tempfile.TemporaryDirectory() as folder:
            print(f"{f'{turns:,} turns one by one':31}", end="", flush=True)
            grow(turns, Path(folder) / "t.duckdb")
    print(f"\n{'1,200 new spans beside':31}{'spans':>11} {'CPU ms':>10}")
    for others in (10_000, 100_000, 1_000_000, 10_000_000):
        with tempfile.TemporaryDirectory() as folder:
            print(" " * 31, end="", flush=True)
            beside(others, Path(folder) / "t.duckdb")


def show(label: str, case: str, size: int, at_once: int = SPANS_AT_ONCE) -> None:
    """Store a case by one process, derive it by another, and print what that cost."""
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, __file__, case, str(size), f"{folder}/t.duckdb", str(at_once)]
        subprocess.run([*run, "fill"], check=True)
        print(f"{label:31}", end="", flush=True)
        subprocess.run([*run, "measure"], check=True)


if __name__ == "__main__":
    if sys.argv[-1] == "fill":
        fill(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[-1] == "measure":
        measure(Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else sys.maxsize)
