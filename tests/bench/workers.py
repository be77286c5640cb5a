"""What worker processes save: the time to derive a store, by the number of workers.

Run it with `make bench-workers`. Each line derives a copy of the same store in a process of its
own, by turns, as `lightning-ingest derive` does: from the start of the workers to the checkpoint
that ends it. One process reads and writes the store whatever the number of workers, so time cannot
fall below its part: "store's part" is the CPU of that process. Wall times mean something on a
machine without other work only.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).parent))

from derive_once import cpu_seconds, store_workload, warm_up
from workloads import DIALECTS

from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.process.allocator import share_memory
from otel_lightning.collector.store import open_store


def measure(path: Path, workers: int) -> dict[str, Any]:
    """Derive a store; return the time, and the CPU of this process and of its workers."""
    share_memory()
    warm_up(path.parent)
    with open_store(path) as store:
        began, before = time.monotonic(), own_seconds()
        derive_all(store, path, workers=workers)
        store.checkpoint()
        wall, own = time.monotonic() - began, own_seconds() - before
        rows = store.count("llm_calls")
    # Workers count once they were waited for; what importing took is in it.
    return {"wall": wall, "own": own, "cpu": cpu_seconds(), "rows": rows}


def own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure by turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=96_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    asked = parser.parse_args()
    print(f"{asked.spans:,} spans, {asked.runs} runs by turns: medians\n")
    print("| work | workers | wall s | times | store's part, CPU s | rows |")
    print("|---|---|---|---|---|---|")
    for case in DIALECTS:
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "whole.duckdb"
            store_workload(case, asked.spans, whole, [])
            found = {count: [] for count in asked.workers}
            for _ in range(asked.runs):
                for count, runs in found.items():
                    runs.append(in_a_process(whole, count))
        first = median(one["wall"] for one in found[asked.workers[0]])
        for count, runs in found.items():
            wall, own = (median(one[name] for one in runs) for name in ("wall", "own"))
            rows = runs[0]["rows"]
            print(f"| {case} | {count} | {wall:.2f} | {wall / first:.2f} | {own:.2f} | {rows:,} |",
                  flush=True)  # fmt: skip


def in_a_process(whole: Path, workers: int) -> dict[str, Any]:
    copy = whole.with_name("copy.duckdb")
    shutil.copy(whole, copy)
    run = [sys.executable, __file__, "measure", str(copy), str(workers)]
    done = subprocess.run(run, check=True, stdout=subprocess.PIPE)
    copy.unlink()
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(Path(sys.argv[2]), int(sys.argv[3]))))
    else:
        main()
