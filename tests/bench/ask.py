"""What asking costs over 10 million spans: CPU and wall milliseconds, the best of five.

Asked in the process that opened the file, and of an idle ingester by a client of its SQL server.
The spans are made by one INSERT … SELECT for every 122,880 of them, through the store that the
loader writes with: traces of 12 spans with random ids, a millisecond apart, five in twelve a model
call of one of 20 models with ten attributes. Texts are 200 bytes and not 2,000, so that making them
takes minutes. The derived tables are made the same way: each trace is a rollout of five calls and
four tools, with an arm, a task and a reward. Each question about rollouts has at most 512 MB of
memory, the default of `lightning-ingest`; a question that needs more fails. Run it with
`make bench-ask`.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from otel_lightning.collector.refresh.rollouts import rollout_rows
from otel_lightning.collector.store import MEMORY_BYTES, Store, attribute_columns, open_store

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench.ask_sql import ABOUT_ROLLOUTS, DERIVE, MAKE, QUESTIONS, ROWS, SPANS_A_TRACE
from support.running import start


def main() -> None:
    """Make the spans, ask and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=10_000_000)
    parser.add_argument("--store", type=Path, help="Keep the store here, or ask one kept before.")
    asked = parser.parse_args()
    spans: int = asked.spans
    with tempfile.TemporaryDirectory() as folder:
        path = asked.store or Path(folder) / "t.duckdb"
        if not path.exists():
            make(path, spans)
        questions = {
            name: sql.format(trace=spans // 24)
            for name, sql in (QUESTIONS | ABOUT_ROLLOUTS).items()
        }
        with open_store(path, read_only=True) as store:
            store.limit(MEMORY_BYTES)
            direct = [best(store, sql) for sql in questions.values()]
        ingester = start(path)
        with open_store(path, read_only=True) as store:
            served = [best(store, sql) for sql in questions.values()]
        ingester.stop()
        print(f"{spans:,} spans, {len(attribute_columns.KEYS)} promoted keys\n")
        print("| query | CPU ms | in process, ms | of an ingester, ms |\n|---|---|---|---|")
        for name, (wall, cpu), (asked_ms, _) in zip(questions, direct, served, strict=True):
            print(f"| {name} | {cpu:.0f} | {wall:.0f} | {asked_ms:.0f} |")


def make(path: Path, spans: int) -> None:
    """Fill a new store."""
    with open_store(path) as store:
        for first in range(0, spans, ROWS):
            last = min(first + ROWS, spans)
            store.execute(MAKE.format(first=first, last=last))
            traces = {"first": first // SPANS_A_TRACE, "last": last // SPANS_A_TRACE}
            store.execute(DERIVE.format(**traces))
        store.execute("CREATE TEMP TABLE made AS SELECT DISTINCT rollout_id FROM llm_calls")
        with store.transaction():
            rollout_rows.recompute(store, "made")
        store.checkpoint()


def best(store: Store, sql: str) -> tuple[float, float]:
    """Ask five times; return the least milliseconds, wall and CPU of this process."""
    wall, cpu = [], []
    for _ in range(5):
        begun, worked = time.perf_counter(), time.process_time()
        store.query(sql)
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - worked)
    return min(wall) * 1000, min(cpu) * 1000


if __name__ == "__main__":
    main()
