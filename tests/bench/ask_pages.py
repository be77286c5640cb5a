"""What the pages cost over many rollouts: CPU milliseconds of one thread, the best of four.

The store is that of `ask.py`, a quarter of it by default (a million model calls, 200,000 rollouts),
with a transition for each call; beside them one rollout of 5,000 steps and one trace of 100,000
spans. Statements run as the ingester runs them, with one thread and its
default memory; a page's rendering is included. Run it with `make bench-pages`.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench.ask import make
from support.page_source import DirectSource

from otel_lightning.collector.page.statements import with_values
from otel_lightning.collector.store import MEMORY_BYTES, Store, open_store

BUILT = """
    INSERT INTO transition_rollouts
    SELECT rollout_id, hash(task_id), 5, 0, 0, if(hash(rollout_id) % 10 = 0, 'no reward', NULL), 1
    FROM rollout_rows;
    INSERT INTO transition_rows BY NAME
    SELECT c.rollout_id, c.step, c.trace_id, c.span_id, r.task_id, 'prompt' AS arm_key,
        if(hash(r.task_id) % 3 = 0, 'heldout', 'train') AS split,
        ['terse', 'friendly', 'verbose'][1 + r.llm_calls % 3] AS arm, 0.33 AS propensity,
        if(c.step = 4, r.final_reward, 0) AS reward, r.final_reward AS return_to_go,
        r.final_reward - 0.5 AS advantage, c.step = 4 AS terminated, FALSE AS truncated,
        if(c.step < 4, 'next', NULL) AS next_span_id, hash(r.task_id) AS task_hash
    FROM llm_calls c
    JOIN rollout_rows r USING (rollout_id)
    WHERE hash(r.rollout_id) % 10 > 0
    ORDER BY task_hash, rollout_id, step
"""
LONG = Path(__file__).parent.parent / "support" / "long_store.sql"
SIZES = {"steps": 5_000, "spans": 100_000}
MIDDLE = """
    SELECT rollout_id, task_id, epoch_ns(start_time) AS start_ns FROM rollout_rows
    ORDER BY start_time LIMIT 1 OFFSET (SELECT count(*) // 2 FROM rollout_rows)
"""
START = "SELECT epoch_ns(start_time) AS start_ns FROM rollout_rows WHERE rollout_id = 'long'"


def main() -> None:
    """Make the store, read each page and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=2_400_000)
    parser.add_argument("--store", type=Path, help="Keep the store here, or ask one kept before.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.store or Path(folder) / "t.duckdb"
        if not path.exists():
            make(path, asked.spans)
            with open_store(path) as store:
                store.execute(BUILT)
                store.execute(with_values(LONG.read_text(), SIZES))
                store.checkpoint()
        with open_store(path, read_only=True) as store:
            store.limit(MEMORY_BYTES)
            store._connection.execute("SET threads = 1")
            calls = store.query("SELECT count(*) AS n FROM llm_calls")["n"][0].as_py()
            print(f"{calls:,} model calls\n\n| page | CPU ms | KB |\n|---|---|---|")
            for name, address in pages(store).items():
                milliseconds, size = best(DirectSource(store), address)
                print(f"| {name} | {milliseconds:.0f} | {size / 1000:.0f} |")


def pages(store: Store) -> dict[str, str]:
    """Return the address of each page, for a rollout in the middle."""
    row = store.query(MIDDLE).to_pylist()[0]
    rollout = f"/ui/rollouts/{row['rollout_id']}"
    long = store.query(START).to_pylist()[0]["start_ns"]
    return {
        "overview": "/ui",
        "rollouts": "/ui/rollouts",
        "rollouts of an arm, by reward": "/ui/rollouts?arm=prompt%3Dterse&sort=-reward",
        "one rollout": f"{rollout}?at={row['start_ns']}",
        "a rollout of 5,000 steps": f"/ui/rollouts/long?at={long}",
        "its step 4,200 and after": f"/ui/rollouts/long?at={long}&step=4200",
        "a trace of 100,000 spans": "/ui/traces/wide",
        "why an advantage": f"{rollout}/steps/2?at={row['start_ns']}&part=state",
        "tasks": "/ui/tasks",
        "one task": f"/ui/tasks/{row['task_id']}",
        "data": "/ui/data",
        "rewards": "/ui/rewards",
        "arms": "/ui/arms",
        "one key of arms": "/ui/arms/prompt",
        "runs": "/ui/runs",
    }


def best(source: DirectSource, address: str) -> tuple[float, int]:
    """Read a page four times; return the least CPU milliseconds, and its bytes."""
    found = []
    for _ in range(4):
        begun = time.process_time()
        reply = source.get(address)
        found.append((time.process_time() - begun) * 1000)
        if reply.status != 200:
            raise SystemExit(f"{address}: {reply.status} {reply.body[:300]!r}")
    return min(found), len(reply.body)


if __name__ == "__main__":
    main()
