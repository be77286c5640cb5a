"""Do one group of lines of `beside.py` with whichever version of the package comes first.

`beside.py` runs it in a process of its own with a version's folders on `PYTHONPATH`. It uses only
what 0.1.0 has too: the commands, `open_store` and its SQL. It prints one line of JSON: CPU seconds
of this process and its children, by line. Each command runs on a small store first, so imports are
not measured.
"""

import contextlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from derive_once import cpu_seconds, found
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from traffic import agent_request

Lines = dict[str, float]
KEY = "support-prompt"
CREDITS = ("identical", "return_to_go", "group", "gae", "anchor_state", "tool_outcome")
FORMS = {"trl-sft": "jsonl", "trl-grpo": "jsonl", "transitions": "parquet"}
TRAIN_STEPS = 8
REPEATED = ("gen_ai.conversation.id", "gen_ai.response.id")
ROWS = 5_000
ASKED_SECONDS, ASKED = 0.5, 5
"""How long each question is asked again and again, but at least so often; the least counts."""
KEPT_UP = 0.95
"""Share of the rate of `lag` that has to be accepted."""
REPEATED_COMMANDS = 3
"""How often a command is run that takes a fraction of a second; the least counts."""


def command(module: str, name: str, *words: object) -> float:
    """Run a command of the package in this process; return its CPU seconds.

    Raises:
        SystemExit: If the command failed. A gate that says no (3) is no failure.
    """
    program = getattr(import_module(f"otel_lightning.{module}"), name)
    said, before = io.StringIO(), cpu_seconds()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            program.main([str(word) for word in words], standalone_mode=False)
        except SystemExit as ended:
            if ended.code not in (0, 3, None):
                raise
    return cpu_seconds() - before


def learn(*words: object) -> float:
    return command("learner.cli", "cli", *words)


def least(measure: Callable[[], float]) -> float:
    """Return the least of a few measurements of the same."""
    return min(measure() for _ in range(REPEATED_COMMANDS))


def export(folder: Path, ending: str, *words: object) -> float:
    """Export to a new file, and remove it."""
    file = folder / f"{time.monotonic_ns()}.{ending}"
    used = learn(*words, "--output", file)
    file.unlink()
    return used


def start(_: Path, large: Path) -> Lines:
    """Start each command in a process of its own, up to its first answer."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from support.running import start as serve

    def started(module: str, *words: object) -> float:
        before = cpu_seconds()
        program = [sys.executable, "-m", f"otel_lightning.{module}", *map(str, words)]
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
        return cpu_seconds() - before

    asked = large / f"{time.monotonic_ns()}.duckdb"
    with found("open_store")(asked):
        pass  # a new store, so that making its tables is not measured

    def served() -> float:
        before = cpu_seconds()
        serve(asked).stop()
        return cpu_seconds() - before

    question = "sql", "SELECT 1", "--store", asked
    return {
        "start `lightning-learn --help`": least(lambda: started("learner", "--help")),
        "start `lightning-ingest sql 'SELECT 1'`": least(lambda: started("collector", *question)),
        "start `serve`, and stop it when ready": least(served),
    }


def receive(_: Path, __: Path, spans: str) -> Lines:
    """Send to a server as `ingest.py` does."""
    from ingest import WORK, measure

    works = {work.name: work for work in WORK}
    chosen = {"HTTP": works["4 clients"], "gRPC": works["4 clients, gRPC"]}
    return {
        f"`serve`: store {int(spans):,} spans over {name}": measure(work, int(spans)).cpu_seconds
        for name, work in chosen.items()
    }


def receive_and_derive(_: Path, __: Path, spans: str) -> Lines:
    """Send traces that are rollouts of their own to a server that derives them."""
    from ingest import Work, measure

    work = Work("derived", template=unrelated, derive=True)
    name = f"`serve`: store and derive {int(spans):,} spans over HTTP"
    return {name: measure(work, int(spans)).cpu_seconds}


def unrelated(first: int) -> bytes:
    """Return a request of agents without the ids that repeat in each request of the bench."""
    sent = ExportTraceServiceRequest.FromString(agent_request(first))
    for one in sent.resource_spans[0].scope_spans[0].spans:
        own = [each for each in one.attributes if each.key not in REPEATED]
        del one.attributes[:]
        one.attributes.extend(own)
    return sent.SerializeToString()


def lag(_: Path, __: Path, seconds: str, rate: str) -> Lines:
    """Send so many spans a second for so long: how soon they are found, and what that costs.

    The wall seconds depend on what else the machine does, the CPU seconds hardly. All lines are of
    the same load, which both versions have to keep up with.
    """
    from lag import SPANS, quantile, sustain

    seen = sustain(float(seconds), int(rate) / SPANS, ())
    if seen.unseen or seen.accepted < KEPT_UP * int(rate):
        sys.stderr.write(
            f"It did not keep up: {seen.accepted:,.0f} spans a second were accepted, and "
            f"{seen.unseen} requests were not found. Choose a lower --rate.\n"
        )
    name = f"{int(rate):,} spans a second"
    lines = {f"{name}: `serve` for 1,000 spans": seen.cpu_per_thousand}
    for table, waits in (("spans", seen.stored), ("llm_calls", seen.derived)):
        for title, share in (("median", 0.5), ("p99", 0.99)):
            lines[f"{name}: {title} lag of `{table}` (wall s)"] = quantile(waits, share)
    return lines


def print_table(small: Path, large: Path) -> Lines:
    """Print an answer of many rows as a table, to a pipe."""
    query = "SELECT range AS n, md5(range::VARCHAR) AS id, range / 7 AS x FROM range({})"
    for folder, rows in ((small, 10), (large, ROWS)):
        asked = folder / f"{time.monotonic_ns()}.duckdb"
        with found("open_store")(asked):
            pass
        words = ("sql", query.format(rows), "--store", asked)
        used = command("collector.cli", "main", *words)
    return {f"`sql`: print {ROWS:,} rows as a table": used}


def load(small: Path, large: Path) -> Lines:
    """Store and derive the spans of a file: the first store warms up, the second counts."""
    for folder in (small, large):
        for left in folder.glob("t.duckdb*"):  # by the turn before
            left.unlink()
        used = command(
            *("collector.cli", "main", "load", folder / "spans.otlp.pb"),
            *("--store", folder / "t.duckdb"),
        )
    return {"`load` a file: store and derive": used}


def learner(small: Path, large: Path) -> Lines:
    """Measure transitions by each credit method, exports, and a policy with its gate."""
    lines: Lines = {}
    for folder in (small, large):
        store = ("--store", folder / "t.duckdb")
        lines["`policy`: learn and judge"] = learn(
            *("policy", *store, "--key", KEY, "--flags", folder / "flags.json"),
            *("--estimator", "snips", "--output", folder / f"{time.monotonic_ns()}.json"),
        )
        for credit in CREDITS:
            words = ("transitions", *store, "--rebuild", "--credit", credit)
            lines[f"`transitions --credit {credit}`"] = least(partial(learn, *words))
        for form, ending in FORMS.items():
            words = ("export", *store, "--form", form, "--split", "all")
            lines[f"`export --form {form}`"] = least(partial(export, folder, ending, *words))
    return lines


def weights(small: Path, large: Path) -> Lines:
    """Fine-tune a tiny model with one step and with more: the difference is training."""

    def tuned(folder: Path, steps: int) -> float:
        return learn(
            *("weights", "--store", folder / "t.duckdb", "--algorithm", "rft"),
            *("--model", large / "model", "--output", folder / f"tuned-{time.monotonic_ns()}"),
            *("--steps", steps, "--batch-size", 16, "--learning-rate", 1e-4),
        )

    for folder in (small, large):
        learn("transitions", "--store", folder / "t.duckdb", "--credit", "group")
    tuned(small, 1)
    first, more = tuned(large, 1), tuned(large, 1 + TRAIN_STEPS)
    return {
        "`weights`: read, train one step, judge held-out tasks": first,
        f"`weights`: {TRAIN_STEPS} more steps of 16 rows": more - first,
    }


def fill(_: Path, large: Path, spans: str) -> Lines:
    """Make the store that `ask` asks, by SQL; it has no line of its own."""
    from ask_sql import DERIVE, MAKE, ROWS, SPANS_A_TRACE

    with found("open_store")(large / "asked.duckdb") as store:
        for first in range(0, int(spans), ROWS):
            last = min(first + ROWS, int(spans))
            store.execute(MAKE.format(first=first, last=last))
            traces = {"first": first // SPANS_A_TRACE, "last": last // SPANS_A_TRACE}
            store.execute(DERIVE.format(**traces))
        with contextlib.suppress(ModuleNotFoundError):  # 0.1.0 makes them when asked
            rows = import_module("otel_lightning.collector.refresh.rollouts.rollout_rows")
            store.execute("CREATE TEMP TABLE made AS SELECT DISTINCT rollout_id FROM llm_calls")
            with store.transaction():
                rows.recompute(store, "made")
        store.checkpoint()
    return {}


def ask(_: Path, large: Path, spans: str) -> Lines:
    """Ask what both versions can answer, in this process."""
    from ask_sql import ABOUT_ROLLOUTS, QUESTIONS

    lines = {}
    with found("open_store")(large / "asked.duckdb", read_only=True) as store:
        store.execute("SET threads = 1")  # several would wait for each other, which costs CPU time
        for name, sql in (QUESTIONS | ABOUT_ROLLOUTS).items():
            question = sql.format(trace=int(spans) // 24)
            if "rollout_rows" in question:  # a table that 0.1.0 does not have
                continue
            took: list[float] = []
            while len(took) < ASKED or sum(took) < ASKED_SECONDS:
                before = time.process_time()
                store.query(question)
                took.append(time.process_time() - before)
            lines[f"query: {name}"] = min(took)
    return lines


GROUPS: dict[str, Callable[..., Lines]] = {
    each.__name__: each
    for each in (
        start,
        print_table,
        receive,
        receive_and_derive,
        lag,
        load,
        learner,
        weights,
        fill,
        ask,
    )
}


def main() -> None:
    """Do the group that the arguments name and print its lines as JSON."""
    group, small, large, *more = sys.argv[1:]
    lines = GROUPS[group](Path(small), Path(large), *more)
    sys.stdout.write(json.dumps(lines) + "\n")


if __name__ == "__main__":
    main()
