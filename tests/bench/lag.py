"""How soon after its answer a span can be asked for, stored and derived, under sustained load.

Run it with `make bench-lag`. First it measures what is accepted: clients send without pause, and
are held to what is stored and derived. Then load is sustained at 25, 50, 75 and 100 % of that, each
with a server of its own; each trace is a conversation of its own. One request in a few is followed
by SQL until its spans are in `spans` and its calls in `llm_calls`. Server, clients and reader share
the machine's cores.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.store import open_store

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench.ingest import Work, count, cpu_seconds, over_http, settle, watched
from bench.traffic import SPANS, agent_request, requests
from support.running import Ingester, start

CLIENTS = 4
SHARES = (0.25, 0.5, 0.75, 1.0)
LOOK_SECONDS = 0.25
FOLLOWED_EACH_SECONDS = 0.25
"""How often a request is chosen to be followed."""
BURST_SHARE = 1 / 3
"""Part of a load that is not counted: a burst is accepted faster than it is derived."""
PATIENCE_SECONDS = 120.0
"""How long after the load the last rows are waited for."""
START_SECONDS = 60.0
"""Spans start less than this before their request is sent."""
TALK = b"-talk-of-"
Marker = tuple[float, str]
"""When a request was answered, and a trace that it holds whole."""


class Lag(NamedTuple):
    """What one load gave."""

    accepted: float
    stored: list[float]
    derived: list[float]
    unseen: int
    backlog: int
    peak_bytes: int
    cpu_per_thousand: float
    """CPU seconds of the server for each 1,000 spans, until it has nothing more to do."""


@dataclass
class Followed:
    """Requests that were answered and whose rows are looked for."""

    stored: deque[Marker] = field(default_factory=deque)
    derived: deque[Marker] = field(default_factory=deque)
    last: float = 0.0
    count: int = 0

    def add(self, body: bytes) -> None:
        """Follow a request that was just answered, unless another was a moment ago."""
        now = time.monotonic()
        if now - self.last < FOLLOWED_EACH_SECONDS:
            return
        self.last = now
        self.count += 1
        spans = ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans
        trace = next(one.trace_id for one in spans if not one.parent_span_id).hex()
        self.stored.append((now, trace))
        self.derived.append((now, trace))


class Pacer:
    """The moments at which clients may send, so many a second; none to wait for without a rate."""

    def __init__(self, per_second: float | None) -> None:
        self._gap = 1 / per_second if per_second else 0.0
        self._next = time.monotonic()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait for the next moment; those that were missed are not made up for."""
        with self._lock:
            now = time.monotonic()
            at = self._next = max(self._next + self._gap, now)
        time.sleep(at - now)


def fresh_request(first: int) -> bytes:
    """Return spans of agents; patched, conversations and responses are new in each request."""
    sent = ExportTraceServiceRequest.FromString(agent_request(first))
    for span in sent.resource_spans[0].scope_spans[0].spans:
        for attribute in span.attributes:
            if attribute.key in ("gen_ai.conversation.id", "gen_ai.response.id"):
                attribute.value.string_value += TALK.decode()
    return sent.SerializeToString()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long each load lasts")
    parser.add_argument("--options", default="", help="more options for lightning-ingest")
    parser.add_argument("--only", type=float, action="append", help="a share, such as 0.75")
    chosen = parser.parse_args()
    options = tuple(chosen.options.split())
    print(
        "| load | spans/s | lag of spans, s | of llm_calls, s | not found | to derive | peak MB |"
    )
    print("|---|---|---|---|---|---|---|")
    most = sustain(chosen.seconds, None, options)
    print(row("without pause", most), flush=True)
    for share in chosen.only or SHARES:
        found = sustain(chosen.seconds, share * most.accepted / SPANS, options)
        print(row(f"{share:.0%} of it", found), flush=True)


def row(name: str, lag: Lag) -> str:
    """Write one line of the table."""
    cells = [f"{quantile(some, 0.5):.1f}, {quantile(some, 0.99):.1f}" for some in lag[1:3]]
    told = f"{lag.unseen} | {lag.backlog:,} | {lag.peak_bytes / 1e6:.0f}"
    return f"| {name} | {lag.accepted:,.0f} | {cells[0]} | {cells[1]} | {told} |"


def quantile(values: list[float], share: float) -> float:
    """Return a quantile, which is nan where there is nothing."""
    return sorted(values)[int(share * (len(values) - 1))] if values else float("nan")


def sustain(seconds: float, per_second: float | None, options: tuple[str, ...]) -> Lag:
    """Send to a new server for so long; return how soon the rows of some requests were there."""
    with tempfile.TemporaryDirectory() as folder:
        ingester = start(Path(folder) / "traces.duckdb", *options)
        process = psutil.Process(ingester.process.pid)
        begun = cpu_seconds(process)
        followed, over = Followed(), threading.Event()
        stored: list[float] = []
        derived: list[float] = []
        looking = threading.Thread(target=look, args=(ingester, followed, stored, derived, over))
        looking.start()
        try:
            with watched(process) as memory:
                accepted = send(ingester, seconds, per_second, followed)
                backlog = underived(ingester)
                until = time.monotonic() + PATIENCE_SECONDS
                while len(derived) < followed.count and time.monotonic() < until:
                    time.sleep(LOOK_SECONDS)
                settle(process)
                used = cpu_seconds(process) - begun
        finally:
            over.set()
            looking.join()
            ingester.stop()
        unseen, cost = followed.count - len(derived), used * 1000 / count(ingester.store)
        return Lag(accepted, stored, derived, unseen, backlog, max(memory), cost)


def send(ingester: Ingester, seconds: float, per_second: float | None, followed: Followed) -> float:
    """Send from all clients until the time is over; return the spans a second that were taken."""
    pacer, counts = Pacer(per_second), [0] * CLIENTS
    making = threading.Lock()  # or all would make a request at once
    begun = time.monotonic()
    counted_from = begun + BURST_SHARE * seconds

    def client(number: int) -> None:
        source = requests(fresh_request, seed=number + 1)
        sent = 0
        answer = over_http(Work("lag"), ingester)
        while time.monotonic() - begun < seconds:
            pacer.wait()
            with making:
                sent += 1
                body = next(source).replace(TALK, f"-{number}{sent:07}".encode())
            answer(body)
            counts[number] += SPANS * (time.monotonic() > counted_from)
            followed.add(body)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return sum(counts) / (time.monotonic() - counted_from)


def look(
    ingester: Ingester,
    followed: Followed,
    stored: list[float],
    derived: list[float],
    over: threading.Event,
) -> None:
    """Look by SQL for the rows of what is followed, until it is over."""
    with open_store(ingester.store, read_only=True) as reader:
        while not over.wait(LOOK_SECONDS):
            for table, waiting, seen in (
                ("spans", followed.stored, stored),
                ("llm_calls", followed.derived, derived),
            ):
                some = [waiting.popleft() for _ in range(len(waiting))]
                if not some:
                    continue
                listed = ",".join(f"'{trace}'" for _, trace in some)
                # A reader who looks for what is new says so. Else each look would read the ids of
                # the whole table, and cost the server more the longer the load lasts.
                oldest = time.time() - (time.monotonic() - min(at for at, _ in some))
                since = int((oldest - START_SECONDS) * 1e9)
                query = (
                    f"SELECT DISTINCT trace_id FROM {table} WHERE trace_id IN ({listed})"
                    f" AND start_time >= make_timestamp_ns({since})"
                )
                there = set(reader.query(query)["trace_id"].to_pylist())
                now = time.monotonic()
                seen += [now - at for at, trace in some if trace in there]
                waiting.extendleft([one for one in some if one[1] not in there][::-1])


def underived(ingester: Ingester) -> int:
    """Return how many traces wait to be derived."""
    with open_store(ingester.store, read_only=True) as reader:
        return int(reader.query("SELECT count(*) AS n FROM stale")["n"][0].as_py())


if __name__ == "__main__":
    main()
