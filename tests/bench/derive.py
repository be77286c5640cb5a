"""What deriving costs: CPU and peak memory, beside ten times less and ten times more spans.

Run it with `make bench-derive`. CPU seconds are the measure that survives a shared machine. Each
case is stored by one process and derived by another, whose memory is then the deriving's own.

The first table compares an older version (`--old`, a git ref) with this one, by turns, dialect by
dialect. Then, for this version: cost by size, what `--spans-at-once` bounds, a conversation whose
turns are stored and derived one by one, and a hundred new traces in a store that holds ever more.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import md5
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

sys.path.append(str(Path(__file__).parent))

from versions import RELEASED, ROOT, checked_out, run
from workloads import (
    AGENTS,
    DIALECTS,
    GROWING,
    START_NS,
    agents,
    conversation,
    deep,
    flat,
    lasting,
)

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.process.allocator import share_memory
from otel_lightning.collector.refresh.backoff import Backoff
from otel_lightning.collector.refresh.refresh import SPANS_AT_ONCE, refresh
from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

LONG = "calls that repeat the history"
AIM = 25.0
"""CPU milliseconds that 1,000 spans of the agents should cost at most."""
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
    spans, backoff, seconds, times = agents(12 * turns, conversations=1), Backoff(), 0.0, 0
    with open_store(path) as store:
        store.threads = 1
        for _ in range(turns):
            request = ExportTraceServiceRequest()
            request.resource_spans.add().scope_spans.add().spans.extend(islice(spans, 12))
            body = request.SerializeToString()
            load(store, [Request("traces", START_NS, body)], dead_letters=path.parent)
            before = time.process_time()
            times += refresh(store, backoff=backoff) > 0
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
    INSERT INTO trace_keys BY NAME
        SELECT trace_id, md5_number_lower(number::VARCHAR) AS key FROM others
    WHERE place > 0;
    DROP TABLE others
"""
"""Spans that were derived long ago, with all that deriving looks through, and no text."""


def beside(others: int, path: Path, rounds: int = 3, before: int = 17) -> None:
    """Derive a hundred new traces in a store that holds so many other spans."""
    with open_store(path) as store:
        for first in range(0, others, 1_200_000):
            spans = min(others - first, 1_200_000)
            # Before the new spans: rows that came earlier are skipped.
            store.execute(OTHERS.format(start=START_NS - others + first, spans=spans))
            store.checkpoint()
        store.threads = 1
        known, spans, seconds = SeenIds(store), agents(1_200 * (before + rounds)), 0.0
        for number in range(before + rounds):
            request = ExportTraceServiceRequest()
            some = request.resource_spans.add().scope_spans.add().spans
            for one in islice(spans, 1_200):
                one.trace_id = md5(one.trace_id, usedforsecurity=False).digest()
                some.append(one)
            body = request.SerializeToString()
            load(store, [Request("traces", START_NS, body)], known, dead_letters=path.parent)
            began = time.process_time()
            refresh(store)
            if number >= before:  # the first ones read the file and make the filters
                seconds += time.process_time() - began
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


def by_turns(old: str, spans: int, runs: int) -> None:
    """Derive the same spans with an older version and with this one, by turns; print medians."""
    print(f"{spans:,} spans, one process, {runs} runs by turns; CPU-ms a 1,000 spans, peak MB\n")
    print(f"| work | {old} | now | times | {old} MB | now MB | same rows |")
    print("|---|---|---|---|---|---|---|")
    with checked_out(old) as before:
        for case in (*DIALECTS, GROWING):
            found = [
                [once(version, case, spans) for version in (before, ROOT)] for _ in range(runs)
            ]
            took = [median(pair[place]["cost"] for pair in found) for place in (0, 1)]
            peaks = [median(pair[place]["peak"] for pair in found) for place in (0, 1)]
            same = "yes" if all(old["rows"] == new["rows"] for old, new in found) else "no"
            cells = f"{took[0]:.1f} | {took[1]:.1f} | {took[1] / took[0]:.2f}"
            print(f"| {case} | {cells} | {peaks[0]:.0f} | {peaks[1]:.0f} | {same} |", flush=True)


def once(version: Path, case: str, spans: int) -> dict[str, Any]:
    """Store a workload and derive it in two processes of one version; return what that cost."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t.duckdb"
        if case == GROWING:
            answer = run(version, "grow", case, spans, path)
        else:
            run(version, "store", case, spans, path)
            answer = run(version, "derive", path)
    return answer | {"cost": 1e6 * answer["seconds"] / answer["spans"]}


def main() -> None:
    """Print both parts: old against new, then this version by size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=sys.maxsize, help="Largest size by size.")
    parser.add_argument("--old", default=RELEASED, help="The git ref to compare with.")
    parser.add_argument("--spans", type=int, default=24_000, help="Spans of each compared line.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only-by-turns", action="store_true")
    asked = parser.parse_args()
    by_turns(asked.old, asked.spans, asked.runs)
    if not asked.only_by_turns:
        by_size(asked.largest)


def by_size(largest: int) -> None:
    print(f"\n{'':31}{'spans':>9} {'calls':>9} {'CPU s':>8} {'ms/1,000':>9} {'peak MB':>9}")
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
        main()
