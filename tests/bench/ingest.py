"""What receiving and storing costs: a real server, real clients, one table.

CPU is of the whole server process, from the first request to the checkpoint behind the last one,
less what an idle server took to start. Where somebody reads meanwhile, the table says how long
after its acknowledgement a span was found by SQL, at the latest. Run it with `make bench-ingest`.
"""

import argparse
import gzip
import http.client
import json
import sys
import tempfile
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
import psutil
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.store import open_store

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench.traffic import SPANS, agent_request, requests, small_request
from support.running import Ingester, start

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF, JSON = "application/x-protobuf", "application/json"
SETTLED_SECONDS = 8.0
LOOK_SECONDS = 0.05

Send = Callable[[bytes], object]


class Work(NamedTuple):
    """One line of the table."""

    name: str
    clients: int = 4
    template: Callable[[int], bytes] = agent_request
    protocol: str = "http"
    content_type: str = PROTOBUF
    encoding: str | None = None
    derive: bool = False
    read: bool = False
    spans: int | None = None


class Acknowledged(NamedTuple):
    """The request that was answered last, and when."""

    body: bytes
    at: float


class Measured(NamedTuple):
    """What one piece of work took."""

    spans: int
    cpu_seconds: float
    waits: list[float]
    peak_bytes: int
    store_bytes: int
    seen_after: list[float]


WORK = (
    Work("4 clients"),
    Work("4 clients, 2 million spans", spans=2_000_000),
    Work("4 clients, read meanwhile", read=True),
    Work("1 client", clients=1),
    Work("64 clients", clients=64),
    Work("4 clients, derived and read meanwhile", derive=True, read=True),
    Work("4 clients, gzip", encoding="gzip"),
    Work("4 clients, gRPC", protocol="grpc"),
    Work("4 clients, JSON", content_type=JSON),
    Work("4 clients, small spans", template=small_request),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=200_000, help="spans for each line")
    parser.add_argument("--only", help="only the line of this name")
    chosen = parser.parse_args()
    floor = decode_floor()
    print(f"Decoding alone: {floor:.1f} CPU-ms a 1,000 spans\n")
    print(
        "| work | CPU-ms a 1,000 spans | times the floor | B a span | peak MB | p50 ms | p99 ms "
        "| seen after ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for work in WORK:
        if chosen.only in (None, work.name):
            print(row(work, measure(work, work.spans or chosen.spans), floor), flush=True)


def row(work: Work, seen: Measured, floor: float) -> str:
    """Write one line of the table."""
    cpu = seen.cpu_seconds * 1e6 / seen.spans
    waits = sorted(seen.waits)
    middle, late = (waits[int(share * (len(waits) - 1))] * 1000 for share in (0.5, 0.99))
    return (
        f"| {work.name} | {cpu:.1f} | {cpu / floor:.1f} | {seen.store_bytes / seen.spans:.0f} | "
        f"{seen.peak_bytes / 1e6:.0f} | {middle:.0f} | {late:.0f} | "
        f"{f'{max(seen.seen_after) * 1000:.0f}' if seen.seen_after else ''} |"
    )


def decode_floor() -> float:
    """CPU milliseconds that decoding 1,000 spans takes, without anything around it."""
    # Not at the top: `beside_once.py` measures an older version too, which keeps it elsewhere.
    from otel_lightning.collector.load.decoding.decode import decode

    source = requests(agent_request, seed=1)
    bodies = [next(source) for _ in range(48)]
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        decode("traces", bodies, [1] * len(bodies))
        best = min(best, time.process_time() - begun)
    return best * 1e6 / (len(bodies) * SPANS)


def measure(work: Work, spans: int) -> Measured:
    """Send to a new server until so many spans are acknowledged, and wait until all is stored."""
    with tempfile.TemporaryDirectory() as folder:
        options = () if work.derive else ("--no-derive",)
        ingester = start(Path(folder) / "traces.duckdb", *options)
        process = psutil.Process(ingester.process.pid)
        try:
            begun = cpu_seconds(process)
            with watched(process) as memory:
                waits, seen_after = send_all(work, ingester, spans)
                settle(process)
            used = cpu_seconds(process) - begun
        finally:
            ingester.stop()
        stored = count(ingester.store)
        if stored != len(waits) * SPANS:
            raise SystemExit(f"{len(waits) * SPANS} spans were acknowledged, {stored} are stored")
        size = ingester.store.stat().st_size
        return Measured(stored, used, waits, max(memory), size, seen_after)


def send_all(work: Work, ingester: Ingester, spans: int) -> tuple[list[float], list[float]]:
    """Send from all clients at once.

    Returns:
        How long each request waited for its answer, and some answers for a reader to find them.
    """
    each = max(spans // SPANS // work.clients, 1)
    sending = Sending(work, ingester, each)
    with ThreadPoolExecutor(work.clients) as pool, reading(work, ingester, sending) as seen_after:
        runs = pool.map(sending.client, range(work.clients))
        return [wait for run in runs for wait in run], seen_after


class Sending:
    """Clients that each send so many requests, one after the other."""

    def __init__(self, work: Work, ingester: Ingester, count: int) -> None:
        self.work, self.ingester, self.count = work, ingester, count
        self.last: Acknowledged | None = None
        self._making = threading.Lock()  # or all would make a request at once, and answers wait
        next(requests(work.template, seed=0))  # what all requests are made of

    def client(self, seed: int) -> list[float]:
        """Send, and return how long each request waited for its answer."""
        source = requests(self.work.template, seed)
        over = over_grpc if self.work.protocol == "grpc" else over_http
        send = over(self.work, self.ingester)
        waits = []
        for _ in range(self.count):
            with self._making:
                plain = next(source)
                body = encoded(self.work, plain)
            begun = time.perf_counter()
            send(body)
            ended = time.perf_counter()
            waits.append(ended - begun)
            self.last = Acknowledged(plain, ended)
        return waits


@contextmanager
def reading(work: Work, ingester: Ingester, sending: Sending) -> Iterator[list[float]]:
    """While the block runs, look by SQL for what was acknowledged last, again and again."""
    seen_after: list[float] = []
    over = threading.Event()
    reader = threading.Thread(target=look, args=(ingester.store, sending, seen_after, over))
    if work.read:
        reader.start()
    try:
        yield seen_after
    finally:
        over.set()
        if work.read:
            reader.join()


def look(store: Path, sending: Sending, seen_after: list[float], over: threading.Event) -> None:
    """Note how long after its answer a request is found."""
    with open_store(store, read_only=True) as reader:
        while not over.wait(LOOK_SECONDS):
            answered = sending.last
            if answered is None:
                continue
            spans = ExportTraceServiceRequest.FromString(answered.body).resource_spans[0]
            span = spans.scope_spans[0].spans[-1]
            query = (
                f"SELECT 1 FROM spans WHERE trace_id = '{span.trace_id.hex()}'"
                f" AND span_id = '{span.span_id.hex()}'"
            )
            while not len(reader.query(query)):
                time.sleep(LOOK_SECONDS)
            seen_after.append(time.perf_counter() - answered.at)


def encoded(work: Work, body: bytes) -> bytes:
    """Write a request as the work asks."""
    if work.content_type == JSON:
        body = otlp_json(body)
    return gzip.compress(body, 1) if work.encoding else body


def otlp_json(body: bytes) -> bytes:
    """Write a request as OTLP's JSON, whose ids are hex and whose enums are numbers."""
    request = ExportTraceServiceRequest.FromString(body)
    message = MessageToDict(request, use_integers_for_enums=True)
    for span in message["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in ("traceId", "spanId", "parentSpanId"):
            span[key] = b64decode(span.get(key, "")).hex()
    return json.dumps(message).encode()


def over_http(work: Work, ingester: Ingester) -> Send:
    """Keep one connection."""
    connection = http.client.HTTPConnection(ingester.http, timeout=60)
    headers = {"Content-Type": work.content_type}
    if work.encoding:
        headers["Content-Encoding"] = work.encoding

    def send(body: bytes) -> None:
        while True:
            connection.request("POST", "/v1/traces", body, headers)
            answer = connection.getresponse()
            reply = answer.read()
            if answer.status == http.client.OK:
                return
            if answer.status != http.client.SERVICE_UNAVAILABLE:
                raise SystemExit(f"{answer.status}: {reply!r}")
            time.sleep(1)

    return send


def over_grpc(_work: Work, ingester: Ingester) -> Send:
    """Keep one channel."""
    channel = grpc.insecure_channel(ingester.grpc, [("grpc.max_send_message_length", -1)])
    call = channel.unary_unary(EXPORT)
    return lambda body: call(body, timeout=60, wait_for_ready=True)


def cpu_seconds(process: psutil.Process) -> float:
    """What a process and its children have used."""
    tree = [process, *process.children(recursive=True)]
    return float(sum(sum(one.cpu_times()[:2]) for one in tree))


def settle(process: psutil.Process) -> None:
    """Wait until it has stored and checkpointed, so that it has nothing to do for a while."""
    used, since = cpu_seconds(process), time.monotonic()
    while time.monotonic() - since < SETTLED_SECONDS:
        time.sleep(0.25)
        if cpu_seconds(process) - used > 0.05:
            used, since = cpu_seconds(process), time.monotonic()


def count(store: Path) -> int:
    """How many spans a store has."""
    with open_store(store, read_only=True) as opened:
        return int(opened.query("SELECT count(*) AS n FROM spans")["n"][0].as_py())


@contextmanager
def watched(process: psutil.Process) -> Iterator[list[int]]:
    """Note how much memory a process has while the block runs."""
    seen, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            seen.append(process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main()
