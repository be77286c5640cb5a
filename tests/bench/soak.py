"""Half an hour of load at three quarters of what is accepted; what it needs stays flat.

Run it with `make soak`. First it measures for five minutes what is accepted: at first more is
accepted than derived, until senders are held to `--max-lag`. Then a new server gets three quarters
of that. Each minute one line says how soon rows followed in that minute, and what the server and
its workers hold. The exit code is 1 if rows of any minute came more than 30 seconds late, or if the
last quarter needs clearly more memory or descriptors than the second one.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench.lag import Followed, look, quantile, send, sustain
from bench.traffic import SPANS
from support.running import Ingester, start

SHARE = 0.75
CAPACITY_SECONDS = 300.0
"""As long as `make bench-lag` measures it."""
MOST_LAG_SECONDS = 30.0
MOST_GROWTH = 1.5
"""DuckDB keeps some 25 bytes of each stored span in memory, so memory grows a little."""
MORE_DESCRIPTORS = 20
LEAST_SECONDS = 30.0
"""A last part of a minute that is shorter than this is not counted."""


class Minute(NamedTuple):
    """What one minute of load gave."""

    stored_p99: float
    derived_p99: float
    memory_bytes: int
    descriptors: int
    store_bytes: int

    def line(self, number: int) -> str:
        """Write it as a line of the table."""
        return (
            f"| {number} | {self.stored_p99:.1f} | {self.derived_p99:.1f} | "
            f"{self.memory_bytes / 1e6:,.0f} | {self.descriptors} | {self.store_bytes / 1e6:,.0f} |"
        )


def main() -> None:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long the load lasts")
    parser.add_argument("--rate", type=float, help="spans a second, instead of measuring them")
    parser.add_argument("--options", default="", help="more options for lightning-ingest")
    chosen = parser.parse_args()
    options = tuple(chosen.options.split())
    rate = chosen.rate or SHARE * sustain(CAPACITY_SECONDS, None, options).accepted
    print(f"{rate:,.0f} spans a second for {chosen.minutes:g} minutes\n")
    print("| minute | spans p99 s | llm_calls p99 s | memory MB | descriptors | store MB |")
    print("|---|---|---|---|---|---|", flush=True)
    minutes = soak(60 * chosen.minutes, rate, options)
    faults = judged(minutes)
    print("\n" + ("\n".join(faults) or "Lag, memory and descriptors stayed flat."))
    raise SystemExit(1 if faults else 0)


def soak(seconds: float, rate: float, options: tuple[str, ...]) -> list[Minute]:
    """Send at a rate to a new server; return what each minute gave."""
    with tempfile.TemporaryDirectory() as folder:
        ingester = start(Path(folder) / "traces.duckdb", *options)
        followed, over = Followed(), threading.Event()
        lags: tuple[list[float], list[float]] = [], []
        work = (
            threading.Thread(target=look, args=(ingester, followed, *lags, over)),
            threading.Thread(target=send, args=(ingester, seconds, rate / SPANS, followed)),
        )
        for thread in work:
            thread.start()
        minutes: list[Minute] = []
        try:
            while work[1].is_alive():
                begun = time.monotonic()
                work[1].join(60)
                if time.monotonic() - begun < LEAST_SECONDS:
                    break
                minutes.append(measured(ingester, *lags))
                print(minutes[-1].line(len(minutes)), flush=True)
        finally:
            over.set()
            for thread in work:
                thread.join()
            ingester.stop()
        return minutes


def measured(ingester: Ingester, stored: list[float], derived: list[float]) -> Minute:
    """Take down the present minute, and begin the next one."""
    server = psutil.Process(ingester.process.pid)
    processes = [server, *server.children(recursive=True)]
    minute = Minute(
        quantile(stored, 0.99),
        quantile(derived, 0.99),
        sum(process.memory_info().rss for process in processes),
        server.num_fds(),
        ingester.store.stat().st_size,
    )
    stored.clear()
    derived.clear()
    return minute


def judged(minutes: list[Minute]) -> list[str]:
    """Compare the last quarter of the minutes with the second one; return what is not flat."""
    quarter = max(len(minutes) // 4, 1)
    before, after = minutes[quarter : 2 * quarter], minutes[-quarter:]
    faults = []
    for name, bound in (
        ("memory_bytes", lambda value: MOST_GROWTH * value),
        ("descriptors", lambda value: value + MORE_DESCRIPTORS),
    ):
        first, last = (median(getattr(one, name) for one in some) for some in (before, after))
        if last > bound(first):
            faults.append(f"{name} is not flat: {first:,.1f} in the second quarter, {last:,.1f} in "
                          f"the last one.")  # fmt: skip
    for number, one in enumerate(minutes, 1):
        if not one.derived_p99 <= MOST_LAG_SECONDS:  # also if it is nan, because no row followed
            faults.append(f"Rows of minute {number} came {one.derived_p99:.0f} s late (p99).")
    return faults


if __name__ == "__main__":
    main()
