"""What running an agent on tasks costs, beside agentlightning 0.3's Trainer and Inspect AI.

    python tests/bench/loop.py [--rollouts 200] [--turns 2]

Each runs the same trivial agent on the same tasks, two at a time. The agent notes its start and its
end in a file. It runs as a command (a shell, a process for each rollout) or stays: a worker for
`lightning-learn run --serve`, a function in the runner's own process for the other two.

Columns: CPU of the whole process tree (user and system) for each rollout, less the agents' own
("CPU"); the CPU of a run with one task ("start"); what each further rollout adds ("further"); the
agents' own CPU, measured by running them alone ("agents"); and the time. For an ingester that runs
already, its CPU during the run is counted. All runners take turns, and the least of the turns
counts. An agent that sends a span, and a store that exists, are measured beside: the ingester of a
new store starts only when it is needed. Then each is killed (SIGKILL) when half of the rollouts
have ended, and started again as its documentation says; the notes tell which rollouts ended twice,
and which never. The other two run in environments of their own, made when they are first needed.
"""

import argparse
import compileall
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from otel_lightning.collector.store import open_store

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "loop"
JOBS = 2
PEERS = {
    "agentlightning": ("loop_agentlightning.py", ["agentlightning==0.3.0"]),
    "inspect": ("loop_inspect.py", ["inspect_ai==0.3.285"]),
}
AGENT = 'echo "started $1" >> "$0"; echo "ended $1" >> "$0"'
"""A shell command: its log file is `$0`, its task `$1`."""
PATIENCE_SECONDS = 600


SENDER = [sys.executable, "-I", "-S", str(HERE / "loop_sender.py")]
WORKER = [sys.executable, "-I", "-S", str(HERE / "loop_worker.py")]
READY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost."""

    cpu: float
    wall: float


@dataclass(slots=True)
class Runner:
    """One way to run the agent on the tasks, and what was measured."""

    command: list[str]
    stays: bool
    """Whether the agent stays in one process."""
    served: bool = False
    """Whether a lightning-ingest serves the store before the run starts."""
    exists: bool = False
    """Whether the store exists before the run starts."""
    sends: bool = False
    """Whether the agent sends a span."""
    start: float = float("inf")
    cost: Cost = Cost(float("inf"), float("inf"))
    twice: int = 0
    lost: int = 0


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rollouts", type=int, default=200)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument(
        "--only", action="append", help="runners whose name has this text; may be repeated"
    )
    options = parser.parse_args()
    # As pip does when it installs a package, the peers' too: a checkout may have no bytecode.
    for part in ("instrumentation", "collector", "learner"):
        compileall.compile_dir(HERE.parents[1] / part, quiet=2)
    with tempfile.TemporaryDirectory() as place:
        folder, count = Path(place), options.rollouts
        write_tasks(folder, count)
        alone = {
            (stays, sends): agents_alone(folder, count, stays=stays, sends=sends)
            for stays, sends in ((False, False), (True, False), (False, True))
        }
        found = runners(folder, options.only or [""])
        for _ in range(options.turns):
            for name, one in found.items():
                measure(one, folder, count, name)
        for name, one in found.items():
            with prepared(one, folder):
                one.twice, one.lost = killed(one.command, folder, count)
            clean(folder)
            print(f"{name}: killed, {one.twice} twice, {one.lost} lost", flush=True)
    show(found, alone, count)


def measure(one: Runner, folder: Path, count: int, name: str) -> None:
    """Run one task and then all; keep the least of the turns."""
    write_tasks(folder, 1)
    one.start = min(one.start, timed(one, folder).cpu)
    clean(folder)
    write_tasks(folder, count)
    cost = timed(one, folder)
    one.cost = min(one.cost, cost, key=lambda cost: cost.cpu)
    assert_all_ended(folder, count, name)
    clean(folder)
    print(f"{name}: {cost.cpu:.2f} CPU-s in {cost.wall:.1f} s", flush=True)


def timed(one: Runner, folder: Path) -> Cost:
    """Measure one run, with the CPU of an ingester that runs already."""
    with prepared(one, folder) as ingester:
        before = cpu_of(ingester)
        cost = measured(one.command)
        return Cost(cost.cpu + cpu_of(ingester) - before, cost.wall)


@contextmanager
def prepared(one: Runner, folder: Path) -> Iterator["subprocess.Popen[bytes] | None"]:
    """Serve the store for the block, if the runner is measured beside an ingester."""
    store = folder / "t.duckdb"
    if one.exists:
        open_store(store).close()
    if not one.served:
        yield None
        return
    command = [sys.executable, "-m", "otel_lightning.collector", "serve", "--store", str(store)]
    command += ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + READY_SECONDS
        while not store.with_name("t.duckdb.server").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("lightning-ingest does not start")
            time.sleep(0.05)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(READY_SECONDS)


def cpu_of(process: "subprocess.Popen[bytes] | None") -> float:
    """Return the CPU-seconds that a running process has used; 0 without one."""
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(found: dict[str, Runner], alone: dict[tuple[bool, bool], Cost], count: int) -> None:
    """Print the table, in CPU-milliseconds a rollout."""
    heads = ("CPU ms", "start ms", "further ms", "agents ms", "wall ms", "twice", "lost")
    print(f"\n{'a rollout':<42}" + "".join(f"{head:>11}" for head in heads))
    for name, one in found.items():
        agents = alone[one.stays, one.sends]
        further = (one.cost.cpu - one.start - agents.cpu) / max(count - 1, 1)
        each = [
            (one.cost.cpu - agents.cpu) / count,
            one.start,
            further,
            agents.cpu / count,
            one.cost.wall / count,
        ]
        numbers = "".join(f"{1000 * number:>11.1f}" for number in each)
        print(f"{name:<42}{numbers}{one.twice:>11}{one.lost:>11}")


def agents_alone(folder: Path, count: int, *, stays: bool, sends: bool) -> Cost:
    """Measure the agents without any runner."""
    log = folder / "alone.log"
    if stays:
        lines = (folder / "tasks.jsonl").read_text()
        return measured([*WORKER, str(log)], given=lines)
    agent = " ".join(SENDER) if sends else f"sh -c '{AGENT}'"
    script = f"for i in $(seq {count}); do {agent} {log} t$i; done"
    return measured(["sh", "-c", script])


def write_tasks(folder: Path, count: int) -> None:
    """Write the tasks, one JSON object a line."""
    rows = [json.dumps({"id": f"t{i}", "n": i}) + "\n" for i in range(count)]
    (folder / "tasks.jsonl").write_text("".join(rows))


def runners(folder: Path, wanted: Sequence[str]) -> dict[str, Runner]:
    """Return the runners whose name has one of these texts.

    A peer is installed if it is wanted; if it cannot be, it is left out, and said.
    """
    log = folder / "agents.log"
    run = [sys.executable, "-m", "otel_lightning.learner", "run"]
    run += ["--store", str(folder / "t.duckdb"), "--tasks", str(folder / "tasks.jsonl")]
    run += ["--jobs", str(JOBS), "--exit-code-is-reward"]
    command = [*run, "--stdin", "none", "--", "sh", "-c", AGENT, str(log), "{id}"]
    sender = [*run, "--stdin", "none", "--", *SENDER, str(log), "{id}"]
    worker = [*run, "--serve", " ".join([*WORKER, str(log)])]
    found = {
        "otel-lightning, sends a span": Runner(sender, stays=False, sends=True),
        "otel-lightning, command, store exists": Runner(command, stays=False, exists=True),
        "otel-lightning, command": Runner(command, stays=False),
        "otel-lightning, command, ingester runs": Runner(command, stays=False, served=True),
        "otel-lightning, worker": Runner(worker, stays=True),
        "otel-lightning, worker, ingester runs": Runner(worker, stays=True, served=True),
    }
    for name, (script, packages) in PEERS.items():
        peers = {f"{name}, command": ("command", False), f"{name}, in process": ("inside", True)}
        if not any(text in peer for peer in peers for text in wanted):
            continue
        if (python := installed(name, packages)) is not None:
            start = [str(python), str(HERE / script), str(folder), AGENT, str(JOBS)]
            found |= {peer: Runner([*start, how], stays=s) for peer, (how, s) in peers.items()}
    return {n: one for n, one in found.items() if any(text in n for text in wanted)}


def installed(name: str, packages: Sequence[str]) -> Path | None:
    """Make the environment of a peer, once."""
    place = CACHE / name
    python = place / "bin" / "python"
    if not (place / "ok").exists():
        venv.create(place, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", *packages]
        if subprocess.run(pip, check=False).returncode:
            sys.stderr.write(f"{name}: cannot be installed here; its row is left out\n")
            return None
        (place / "ok").touch()
    return python


def measured(command: Sequence[str], given: str | None = None) -> Cost:
    """Run a command to its end; return the CPU of its process tree, and the time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, env=environment(), input=given, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{command[:3]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, time.monotonic() - start)


def environment() -> dict[str, str]:
    """Return variables that keep the peers from asking the network."""
    return {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1"}


def killed(command: Sequence[str], folder: Path, count: int) -> tuple[int, int]:
    """Kill a run in the middle, start it again, and count what ended twice or never."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment(), start_new_session=True, **quiet) as first:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(ended(folder)) < count // 2 and first.poll() is None:
            if time.monotonic() > deadline:
                sys.exit(f"{command[:3]} does not come on")
            time.sleep(0.005)
        os.kill(first.pid, signal.SIGKILL)
    settled(folder)
    with suppress(ProcessLookupError):
        os.killpg(first.pid, signal.SIGKILL)  # helpers of agentlightning would wait for ever
    measured(command)
    times = Counter(ended(folder))
    return sum(n > 1 for n in times.values()), count - len(times)


def settled(folder: Path) -> None:
    """Wait until the killed runner's agents and helpers write no more."""
    before, quiet = -1, 0
    while quiet < 10:
        now = len(ended(folder))
        quiet = quiet + 1 if now == before else 0
        before = now
        time.sleep(0.1)


def ended(folder: Path) -> list[str]:
    """Return the tasks whose agent has noted its end, as often as it did."""
    log = folder / "agents.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1] for line in lines if line.startswith("ended ")]


def assert_all_ended(folder: Path, count: int, name: str) -> None:
    """Stop if a run without a kill was not complete: then its cost means nothing."""
    times = Counter(ended(folder))
    if len(times) != count or max(times.values()) > 1:
        sys.exit(f"{name} ended {len(times)} of {count} rollouts, some {max(times.values())} times")


def clean(folder: Path) -> None:
    """Delete what a run left, but not the tasks."""
    for path in folder.iterdir():
        if path.name == "tasks.jsonl":
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


if __name__ == "__main__":
    main()
