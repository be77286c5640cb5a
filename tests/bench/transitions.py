"""What transitions cost, beside agentlightning 0.3 and from 10 thousand spans to 20 million.

Run it with `make bench-transitions`. CPU seconds are the measure that survives a shared machine.

Side by side, one thread each: traces of 12 spans as agentlightning's tracer writes them (five calls
with 2 KB of messages, four tools, a retrieval, a reward), once through its `TracerTraceToTriplet`
in an environment of its own, and from a store with these spans. The first line of ours is the whole
way, from stored spans to transitions, with the settings of `lightning-ingest derive`; the others
begin with derived tables. The medians of three runs by turns, each in a fresh process.

By size: stores whose derived tables were filled by SQL, see `FILL`, each in a process of its own,
so that the peak of memory is its own. Four rollouts a task, five calls a rollout.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.process.allocator import share_memory
from otel_lightning.collector.refresh.rollouts import rollout_rows
from otel_lightning.collector.store import open_store
from otel_lightning.learner.export.formats import FORMATS
from otel_lightning.learner.export.write import export_transitions as export
from otel_lightning.learner.transitions.make import Settings, make_transitions

sys.path.append(str(Path(__file__).parent.parent))
from bench.agentlightning_traces import SPANS_A_TRACE, START, otlp, trace

HERE = Path(__file__).parent
PEER = "agentlightning==0.3.0"
ENVIRONMENT = HERE.parents[1] / ".cache" / PEER.replace("==", "-")
SIZES = (10_000, 100_000, 1_000_000, 20_000_000)
RUNS = 3
TRACES_AT_ONCE = 24_576

FILL = """
    INSERT INTO llm_calls BY NAME
    SELECT
        md5('trace' || t) AS trace_id, substr(md5('span' || n), 1, 16) AS span_id,
        trace_id AS rollout_id, k::INTEGER AS step, 'agent-' || (k % 3) AS agent_name,
        make_timestamp_ns(1800000000000000000 + n * 1000000) AS start_time,
        make_timestamp_ns(1800000000000000000 + n * 1000000 + 500000) AS end_time,
        if(k = 4, 'stop', 'tool_calls') AS finish_reason, 'chat' AS operation,
        '[{{"role":"assistant","parts":[{{"type":"text","content":"' || md5('text' || n)
            || '"}}]}}]' AS output_messages,
        sha256('state' || (t // 4) || '.' || k) AS state_hash, TRUE AS has_completion
    FROM (SELECT range AS n, range // 5 AS t, range % 5 AS k FROM range({first} * 5, {last} * 5));
    INSERT INTO tool_calls BY NAME
    SELECT
        md5('trace' || t) AS trace_id, substr(md5('tool' || n), 1, 16) AS span_id,
        trace_id AS rollout_id, substr(md5('span' || (t * 5 + k)), 1, 16) AS llm_span_id,
        'call-' || n AS tool_call_id, 'search' AS name, if(n % 9 = 0, 'timeout', NULL) AS error_type
    FROM (SELECT range AS n, range // 4 AS t, range % 4 AS k FROM range({first} * 4, {last} * 4));
    INSERT INTO reward_events BY NAME
    SELECT
        md5('reward' || t) AS reward_id, md5('trace' || t) AS trace_id, trace_id AS rollout_id,
        substr(md5('judge' || t), 1, 16) AS span_id, 'solved' AS name, (t % 11) / 10 AS value,
        'span' AS source, make_timestamp_ns(1800000000000000000 + (t * 5 + 5) * 1000000) AS "time"
    FROM (SELECT range AS t FROM range({first}, {last}));
    INSERT INTO rollout_tasks BY NAME
    SELECT md5('trace' || t) AS rollout_id, 'task-' || (t // 4) AS task_id
    FROM (SELECT range AS t FROM range({first}, {last}))
"""


def write_traces(traces: int, folder: Path) -> None:
    """Write the same traces for both: a file of lines, and a store before and after deriving."""
    with (folder / "traces.jsonl").open("w") as file, open_store(folder / "t.duckdb") as store:
        for first in range(0, traces, 400):
            request = ExportTraceServiceRequest()
            scope = request.resource_spans.add().scope_spans.add()
            for number in range(first, min(first + 400, traces)):
                spans = trace(number)
                file.write(json.dumps(spans) + "\n")
                scope.spans.extend(otlp(spans))
            body = Request("traces", START * 10**9, request.SerializeToString())
            load(store, [body], dead_letters=folder)
    shutil.copy(folder / "t.duckdb", folder / "spans.duckdb")
    derive(folder / "t.duckdb")


def derive(path: Path) -> None:
    """Derive everything that a store has received, as `lightning-ingest derive` does."""
    with open_store(path) as store:
        derive_all(store, path)


def fill(spans: int, path: Path) -> None:
    """Make a store of so many spans by SQL."""
    traces = spans // SPANS_A_TRACE
    with open_store(path) as store:
        for first in range(0, traces, TRACES_AT_ONCE):
            last = min(first + TRACES_AT_ONCE, traces)
            store.execute(FILL.format(first=first, last=last))
        store.execute("CREATE TEMP TABLE made AS SELECT DISTINCT rollout_id FROM llm_calls")
        with store.transaction():
            rollout_rows.recompute(store, "made")


def measure(path: Path, parquet: str, *, whole: bool) -> None:
    """Make the transitions of a store, and where asked write them with their text to a file.

    `whole` derives the tables first, and counts it.
    """
    if whole:
        share_memory()  # as the commands that derive do
    with tempfile.TemporaryDirectory() as folder:  # the first run imports: not what is measured
        write_traces(10, Path(folder))
        make(Path(folder) / "t.duckdb", f"{folder}/t.parquet")
    begun = time.process_time()
    if whole:
        derive(path)
    rows = make(path, parquet)
    seconds = time.process_time() - begun
    print(json.dumps({"rows": rows, "seconds": seconds, "peak": peak_mb()}))


def make(path: Path, parquet: str) -> int:
    summary = make_transitions(str(path), Settings(credit="group"), rebuild=True)
    if parquet:
        export(str(path), FORMATS["transitions"], Path(parquet), split="all", threshold=0)
    return summary.transitions


def peak_mb() -> float:
    """The most memory that this process held; `ru_maxrss` would count its parent's too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return int(status["VmHWM"].split()[0]) / 1024


def peer(folder: Path) -> dict[str, float]:
    """Measure agentlightning, in an environment that is made when it is first needed."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PEER], check=True)
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network when imported
    return answer([str(python), str(HERE / "triplets.py"), str(folder / "traces.jsonl")])


def answer(command: list[str]) -> dict[str, float]:
    """Run a measurement in a process of its own and read the JSON on its last line."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def ours(path: Path, *more: str) -> dict[str, float]:
    """Measure a copy of a store in a process of its own."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    try:
        return answer([sys.executable, __file__, "--measure", str(copy), *more])
    finally:
        copy.unlink()


def by_turns(
    work: dict[str, Callable[[], dict[str, float]]], runs: int
) -> dict[str, dict[str, float]]:
    """Measure each work once a turn; return the first answer of each with the median seconds."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in work}
    for _ in range(runs):
        for name, measured in work.items():
            found[name].append(measured())
    return {
        name: some[0] | {"seconds": median(one["seconds"] for one in some)}
        for name, some in found.items()
    }


def side_by_side(traces: int) -> None:
    spans = traces * SPANS_A_TRACE
    with tempfile.TemporaryDirectory() as folder:
        write_traces(traces, Path(folder))
        store, spans_only = Path(folder) / "t.duckdb", Path(folder) / "spans.duckdb"
        to_file = ("--parquet", f"{folder}/t.parquet")
        theirs = f"{PEER} TracerTraceToTriplet"
        work = {
            theirs: partial(peer, Path(folder)),
            "stored spans to transitions": partial(ours, spans_only, "--whole"),
            "transitions alone, narrow": partial(ours, store),
            "transitions alone, with all text to Parquet": partial(ours, store, *to_file),
        }
        rows = by_turns(work, RUNS)
    print(f"\n{spans:,} spans, the same for all\n")
    print("| work | rows | CPU s | spans a CPU-s | rows a CPU-s | times as many rows |")
    print("|---|---|---|---|---|---|")
    slowest = rows[theirs]["rows"] / rows[theirs]["seconds"]
    for name, row in rows.items():
        rate, seconds = row["rows"] / row["seconds"], row["seconds"]
        cells = f"{row['rows']:,} | {seconds:.2f} | {spans / seconds:,.0f} | {rate:,.0f}"
        print(f"| {name} | {cells} | {rate / slowest:.1f} |")


def by_size(largest: int) -> None:
    print("\n| spans | transitions | CPU s | CPU-µs a span | spans a CPU-s | peak MB |")
    print("|---|---|---|---|---|---|")
    for spans in SIZES:
        if spans > largest:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.duckdb"
            fill(spans, path)
            size = {"store": partial(ours, path)}
            row = by_turns(size, RUNS if spans < SIZES[-1] else 1)["store"]
        seconds = row["seconds"]
        cells = f"{seconds:.2f} | {1e6 * seconds / spans:.1f} | {spans / seconds:,.0f}"
        print(f"| {spans:,} | {row['rows']:,} | {cells} | {row['peak']:,.0f} |", flush=True)


def main() -> None:
    """Measure one store if asked to, else print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=40_000)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--measure", type=Path)
    parser.add_argument("--parquet", default="")
    parser.add_argument("--whole", action="store_true", help="count deriving too")
    asked = parser.parse_args()
    if asked.measure:
        measure(asked.measure, asked.parquet, whole=asked.whole)
        return
    side_by_side(asked.traces)
    by_size(asked.largest)


if __name__ == "__main__":
    main()
