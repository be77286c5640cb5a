"""What late spans cost: three executions of tools that come after all else was stored and derived.

Run it with `make bench-late`. A store is filled, derived and then served; the late spans are sent
one by one. The table has the CPU time of the server from the first one until nothing is left to
derive, and how long after its answer each one's row could be asked for. The server was just
started, so it knows nothing of the trace. With `--warm` it gets one more late span before, which is
not counted: then it has kept what it read, as one that received the whole trace has.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.store import Store, open_store
from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench.ingest import cpu_seconds
from bench.workloads import chat, flat, message, span, tool
from support.otlp_client import metric, send
from support.running import start

AT_ONCE = 5_000
LATE = 3
LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 900.0
STALE = "SELECT count(*) AS n FROM stale"
SPANS, TURNS = 200_000, 5_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=SPANS, help="of the trace")
    parser.add_argument("--turns", type=int, default=TURNS, help="of the conversation")
    parser.add_argument("--gap", type=float, default=2.0, help="seconds between the late spans")
    parser.add_argument("--warm", action="store_true", help="let it derive a late span before")
    parser.add_argument("--options", default="--workers 1", help="for lightning-ingest")
    chosen = parser.parse_args()
    print("| late spans in | first deriving, CPU s | late spans, CPU s | rows after, s | peak MB |")
    print("|---|---|---|---|---|")
    if spans := chosen.spans:
        late = [tool(spans + number, 1, 0) for number in range(LATE + 1)]
        show(f"a trace of {spans:,} spans", flat(spans), late, chosen)
    if turns := chosen.turns:
        traces = [turns * (number + 1) // (LATE + 2) for number in range(LATE + 1)]
        late = [tool(2 * turns + trace, trace + 1, 2 * trace) for trace in traces]
        show(f"a conversation of {turns:,} turns", talk(turns), late, chosen)


def talk(turns: int) -> Iterator[Span]:
    """Yield a conversation by turns: each is a trace of its own, of an agent and a call."""
    for turn in range(turns):
        yield span(2 * turn, turn + 1, None, operation="invoke_agent", conversation__id="talk")
        said = [message("user", 300)], message("assistant", 300)
        yield chat(2 * turn + 1, turn + 1, 2 * turn, *said)


def show(name: str, spans: Iterator[Span], late: list[Span], chosen: argparse.Namespace) -> None:
    """Print one line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces.duckdb"
        first = fill(path, spans)
        before = late[LATE:] if chosen.warm else []
        options = tuple(chosen.options.split())
        cpu, seen, peak = serve(path, before, late[:LATE], chosen.gap, options)
    waited = ", ".join(f"{seconds:.1f}" for seconds in seen)
    print(f"| {name} | {first:.1f} | {cpu:.1f} | {waited} | {peak / 1e6:,.0f} |", flush=True)


def fill(path: Path, spans: Iterator[Span]) -> float:
    """Store and derive spans; return the CPU seconds of deriving."""
    with open_store(path) as store:
        known = SeenIds(store)
        while some := list(islice(spans, AT_ONCE)):
            load(store, [Request("traces", time.time_ns(), body(some))], known, dead_letters=path)
        began = time.process_time()
        derive_all(store, path)
        return time.process_time() - began


def body(spans: list[Span]) -> bytes:
    """Return the request that exports these spans."""
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.extend(spans)
    return request.SerializeToString()


def serve(
    path: Path, before: list[Span], late: list[Span], gap: float, options: tuple[str, ...]
) -> tuple[float, list[float], int]:
    """Send late spans to a server; return its CPU seconds, when each was seen, and peak memory.

    Args:
        path: The store.
        before: Late spans that are sent and derived first; they do not count.
        late: The late spans that count.
        gap: Seconds between two of them.
        options: Of the server.
    """
    ingester = start(path, *options)
    try:
        process = psutil.Process(ingester.process.pid)
        with open_store(path, read_only=True) as reader:
            deliver(ingester.http, reader, before, gap)
            time.sleep(gap)
            began = cpu_seconds(process)
            waited = deliver(ingester.http, reader, late, gap)
        peak = int(process.memory_full_info().rss)
        return cpu_seconds(process) - began, waited, peak_of(process, peak)
    finally:
        ingester.kill()


def deliver(url: str, reader: Store, late: list[Span], gap: float) -> list[float]:
    """Send late spans, and wait until nothing is stale; return the seconds until each was seen."""
    seen: dict[str, float] = {}
    sent: dict[str, float] = {}
    for one in late:
        assert send(url, body([one])).status == 200
        sent[one.span_id.hex()] = time.monotonic()
        look_for(reader.query, sent, seen, until=time.monotonic() + gap)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(seen) < len(sent) or metric(url, LAG):
        look_for(reader.query, sent, seen, until=time.monotonic() + LOOK_SECONDS)
        assert time.monotonic() < deadline, f"{len(seen)} of {len(sent)} were seen"
    return [seen[name] - sent[name] for name in sent]


def peak_of(process: psutil.Process, present: int) -> int:
    """Return the most memory that a process ever had, where the system tells it."""
    status = Path(f"/proc/{process.pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(one.split()[1]) * 1024 for one in lines if one.startswith("VmHWM")), present)


LAG = "lightning_derive_lag_seconds"


def look_for(
    query: Callable[[str], object], sent: dict[str, float], seen: dict[str, float], until: float
) -> None:
    """Note when the rows of spans can be asked for first."""
    while sent:
        names = ", ".join(f"'{name}'" for name in sent)
        found = query(f"SELECT span_id FROM tool_calls WHERE span_id IN ({names})")
        for name in found["span_id"].to_pylist():  # type: ignore[index]  # an Arrow table
            seen.setdefault(name, time.monotonic())
        if time.monotonic() >= until:
            return
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main()
