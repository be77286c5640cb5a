"""What reading a page each second does to acknowledgements: p50 and p99 with and without.

An ingester receives and derives agents' traces, so that pages have something to show. Then one that
only stores is fed spans at a fixed rate, so that requests do not queue for the machine. Rounds with
and without a reader alternate, because a machine's speed drifts. Run it with `make bench-page`.
"""

import argparse
import http.client
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench.traffic import SPANS, agent_request, requests, small_request
from support.browser import ask, session
from support.otlp_client import column, send
from support.running import Ingester, eventually, start

PROTOBUF = "application/x-protobuf"
FILLED = 20  # requests of 512 spans
PAGES = ("/ui", "/ui/rollouts", "/ui/data", "/ui/rewards")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="pairs of rounds")
    parser.add_argument("--seconds", type=float, default=15, help="seconds of a round")
    parser.add_argument("--rate", type=float, default=8, help="requests of 512 spans a second")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "traces.duckdb"
        filled = start(store)
        fill(filled)
        filled.stop()
        ingester = start(store, "--no-derive")
        waits: dict[bool, list[float]] = {False: [], True: []}
        took: list[float] = []
        try:
            cookie = session(ingester)
            bodies = requests(small_request, seed=1)
            for warm in (True, False):
                for with_page in (False, True) * (1 if warm else chosen.rounds):
                    found = run(ingester, bodies, chosen, cookie if with_page else None, took)
                    if not warm:
                        waits[with_page] += found
            spans = column(ingester.store, "SELECT count(*) FROM spans")[0]
        finally:
            ingester.stop()
    print(f"{chosen.rate:g} requests of {SPANS} spans a second, {spans:,} spans at the end\n")
    print("| acknowledgements | requests | p50 ms | p99 ms |\n|---|---|---|---|")
    for with_page, name in ((False, "alone"), (True, "with a page read each second")):
        ms = sorted(wait * 1000 for wait in waits[with_page])
        print(f"| {name} | {len(ms)} | {quantile(ms, 0.5):.1f} | {quantile(ms, 0.99):.1f} |")
    late = [quantile(sorted(waits[with_page]), 0.99) for with_page in (False, True)]
    took.sort()
    print(f"\np99 with a page: {late[1] / late[0] - 1:+.0%}.")
    print(
        f"{len(took)} pages took {quantile(took, 0.5):.0f} ms, p99 {quantile(took, 0.99):.0f} ms."
    )


def fill(ingester: Ingester) -> None:
    """Send agents' traces and wait until they are derived."""
    bodies = requests(agent_request, seed=2)
    for _ in range(FILLED):
        while send(ingester.http, next(bodies)).status != http.client.OK:
            time.sleep(1)
    eventually(lambda: column(ingester.store, "SELECT count(*) FROM stale") == [0], 300)


def run(
    ingester: Ingester,
    bodies: Iterator[bytes],
    chosen: argparse.Namespace,
    cookie: str | None,
    took: list[float],
) -> list[float]:
    """Send at the rate for a round; return how long each request waited for its answer."""
    over = threading.Event()
    reader = threading.Thread(target=read, args=(ingester, cookie, over, took))
    reader.start()
    connection = http.client.HTTPConnection(ingester.http, timeout=60)
    waits, begun = [], time.perf_counter()
    for number in range(int(chosen.seconds * chosen.rate)):
        body = next(bodies)
        time.sleep(max(begun + number / chosen.rate - time.perf_counter(), 0))
        sent = time.perf_counter()
        connection.request("POST", "/v1/traces", body, {"Content-Type": PROTOBUF})
        answer = connection.getresponse()
        answer.read()
        waits.append(time.perf_counter() - sent)
        if answer.status != http.client.OK:
            raise SystemExit(f"{answer.status}: the rate is too high for this machine")
    over.set()
    reader.join()
    return waits


def read(ingester: Ingester, cookie: str | None, over: threading.Event, took: list[float]) -> None:
    """Read one page each second."""
    for page in itertools.cycle(PAGES):
        if over.wait(1):
            return
        if cookie is None:
            continue
        begun = time.perf_counter()
        reply = ask(ingester, page, Cookie=cookie)
        if reply.status != http.client.OK:
            print(f"{page}: {reply.status} {reply.body[:200]!r}", file=sys.stderr)
        took.append((time.perf_counter() - begun) * 1000)


def quantile(ordered: list[float], share: float) -> float:
    """Return a quantile of ordered values."""
    return ordered[int(share * (len(ordered) - 1))] if ordered else float("nan")


if __name__ == "__main__":
    main()
