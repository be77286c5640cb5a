"""Store a workload, or derive it once, with whichever version of the package comes first.

`versions.py` runs it in a process with an older version's folders on `PYTHONPATH`, so it finds its
functions by their names of then and of now. It prints one line of JSON.
"""

import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PACKAGE = "otel_lightning.collector"
PLACES = {
    "load": ("load.batches", "load.loader", "loader"),
    "Request": ("load.batches", "load.loader", "loader"),
    "refresh": ("refresh.refresh", "refresh"),
    "rebuild": ("refresh.refresh", "refresh"),
    "open_store": ("store",),
    "share_memory": ("process.allocator", "allocator", "store.allocator", "memory"),
    "read_file": ("trace_files.read", "otlp.files", "files"),
}
"""In which module of the package each function is, by today's name and by earlier ones."""
TABLES = (
    *("llm_calls", "tool_calls", "agent_runs", "arms", "reward_events", "unread_spans"),
    *("rollout_tasks", "trace_keys"),
)


def found(name: str) -> Any:
    """Return a function of the package, wherever this version keeps it."""
    for place in PLACES[name]:
        try:
            return getattr(import_module(f"{PACKAGE}.{place}"), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise ImportError(f"No {name} in any of {PLACES[name]}.")


def store_workload(case: str, spans: int, path: Path, steps: Sequence[int]) -> None:
    """Store a workload, or the requests of it whose numbers are in `steps`."""
    from workloads import START_NS, arrivals

    with found("open_store")(path) as store:
        for number, some in enumerate(arrivals(case, spans)):
            if not steps or number in steps:
                request = ExportTraceServiceRequest()
                request.resource_spans.add().scope_spans.add().spans.extend(some)
                sent = found("Request")("traces", START_NS, request.SerializeToString())
                found("load")(store, [sent], dead_letters=path.parent)


def derive_all(store: Any) -> None:
    while found("refresh")(store):
        pass


def warm_up(folder: Path) -> None:
    """Derive one trace: what is imported and compiled once is not what is measured."""
    path = folder / "warm.duckdb"
    store_workload("agents, traces of 12 spans", 12, path, [])
    with found("open_store")(path) as store:
        derive_all(store)


def derive(path: Path) -> dict[str, Any]:
    """Derive what is stale in a store; return its cost and a hash of each table."""
    found("share_memory")()
    warm_up(path.parent)
    with found("open_store")(path) as store:
        store.threads = 1
        before = cpu_seconds()
        derive_all(store)
        store.checkpoint()
        seconds = cpu_seconds() - before
        spans = len(store.query("SELECT 1 FROM spans"))
        return {"seconds": seconds, "peak": peak_mb(), "spans": spans, "rows": hashes(store)}


def grow(case: str, spans: int, path: Path) -> dict[str, Any]:
    """Store a workload in its steps and derive after each; return what `derive` does."""
    found("share_memory")()
    seconds = 0.0
    with found("open_store")(path) as store:
        store.threads = 1
        for _ in stored_steps(store, case, spans, path.parent):
            before = cpu_seconds()
            derive_all(store)
            store.checkpoint()
            seconds += cpu_seconds() - before
        count = len(store.query("SELECT 1 FROM spans"))
        return {"seconds": seconds, "peak": peak_mb(), "spans": count, "rows": hashes(store)}


def stored_steps(store: Any, case: str, spans: int, folder: Path) -> Iterator[None]:
    """Store a workload request by request; yield after each."""
    from workloads import START_NS, arrivals

    for some in arrivals(case, spans):
        request = ExportTraceServiceRequest()
        request.resource_spans.add().scope_spans.add().spans.extend(some)
        sent = found("Request")("traces", START_NS, request.SerializeToString())
        found("load")(store, [sent], dead_letters=folder)
        yield


def hashes(store: Any) -> dict[str, str]:
    """Return a hash of the rows of each derived table."""
    return {table: digest(rows(store, table)) for table in TABLES}


def digest(lines: Iterator[str]) -> str:
    whole = hashlib.sha256()
    for line in lines:
        whole.update(line.encode())
    return whole.hexdigest()


def rows(store: Any, table: str) -> Iterator[str]:
    """Yield the rows of a table as text, sorted, without what is added to them after deriving."""
    # Columns that are filled in later, or with the time of writing, are not compared.
    compared = "NOT starts_with(name, 'placed_') AND name <> 'added_at'"
    derived = f"SELECT COLUMNS(name -> {compared}) FROM {table}"
    text = f'SELECT t::VARCHAR AS "row" FROM ({derived}) t ORDER BY 1'
    for batch in store.query(text).to_batches():
        yield from batch.column(0).to_pylist()


def recorded(folders: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Derive each folder's recordings in a store of its own; return the rows of its tables."""
    answer = {}
    for folder in folders:
        path = Path(f"{os.environ['BENCH_FOLDER']}/{len(answer)}.duckdb")
        with found("open_store")(path) as store:
            for file in sorted(Path(folder).rglob("*.otlp.*")):
                read = found("read_file")(file)
                requests = [
                    found("Request")(one.signal, 1_800_000_000_000_000_000, one.body)
                    for one in getattr(read, "requests", read)
                ]
                found("load")(store, requests, dead_letters=path.parent)
            derive_all(store)
            answer[folder] = {table: list(rows(store, table)) for table in TABLES}
        path.unlink()
    return answer


def cpu_seconds() -> float:
    """CPU seconds of this process and of the workers that it waited for, to the microsecond."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_mb() -> float:
    """The most memory that this process held; `ru_maxrss` would count its parent's too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return int(status["VmHWM"].split()[0]) / 1024


def main() -> None:
    """Run what the arguments say and print the answer as JSON."""
    what, *given = sys.argv[1:]
    began = time.monotonic()
    answer: Any = {}
    if what == "store":
        store_workload(given[0], int(given[1]), Path(given[2]), [int(one) for one in given[3:]])
    elif what == "derive":
        answer = derive(Path(given[0]))
    elif what == "grow":
        answer = grow(given[0], int(given[1]), Path(given[2]))
    elif what == "recorded":
        answer = recorded(given)
    if what != "recorded":
        answer["wall"] = time.monotonic() - began
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
