"""What running an agent on tasks costs, beside agentlightning 0.3's Trainer and Inspect AI.

    python tests/bench/loop.py [--rollouts 200]

Each runs the same trivial agent, a shell command that notes its start and its end, on the same
tasks, two at a time. CPU is that of the whole process tree (user and system), less the agents' own,
measured by running them alone; "further" is the CPU of a rollout after the first, so without the
start of the runner. Then each is killed (SIGKILL) when half of the rollouts have ended,
started again as its documentation says, and the notes tell which rollouts ended twice, and which
never. The other two run in environments of their own, made when they are first needed.
"""

import argparse
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run cost."""

    cpu: float
    wall: float

    def less(self, other: "Cost") -> "Cost":
        """Return the cost beyond another."""
        return Cost(self.cpu - other.cpu, self.wall)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rollouts", type=int, default=200)
    count = parser.parse_args().rollouts
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_tasks(folder, count)
        alone = measured(["sh", "-c", alone_script(folder, count)])
        print(f"{count} agents alone, one after the other: {alone.cpu:.2f} CPU-s.\n")
        heads = ("CPU ms", "wall ms", "further", "twice", "lost")
        print(f"{'a rollout':<18}" + "".join(f"{head:>10}" for head in heads))
        for name, command in commands(folder).items():
            write_tasks(folder, 1)
            start = measured(command)
            clean(folder)
            write_tasks(folder, count)
            cost = measured(command).less(alone)
            assert_all_ended(folder, count, name)
            clean(folder)
            twice, lost = killed(command, folder, count)
            clean(folder)
            further = (cost.cpu - start.cpu) / max(count - 1, 1)
            each = [1000 * number for number in (cost.cpu / count, cost.wall / count, further)]
            numbers = "".join(f"{number:>10.1f}" for number in each)
            print(f"{name:<18}{numbers}{twice:>10}{lost:>10}", flush=True)


def write_tasks(folder: Path, count: int) -> None:
    """Write the tasks, one JSON object a line."""
    rows = [json.dumps({"id": f"t{i}", "n": i}) + "\n" for i in range(count)]
    (folder / "tasks.jsonl").write_text("".join(rows))


def alone_script(folder: Path, count: int) -> str:
    """Return a shell script that runs each agent once, as a process of its own."""
    log = folder / "alone.log"
    return f"for i in $(seq {count}); do sh -c '{AGENT}' {log} t$i; done"


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the command of each runner; what cannot be installed is left out, and said."""
    log = folder / "agents.log"
    run = [sys.executable, "-m", "otel_lightning.learner", "run"]
    run += ["--store", str(folder / "t.duckdb"), "--tasks", str(folder / "tasks.jsonl")]
    run += ["--jobs", str(JOBS), "--exit-code-is-reward", "--stdin", "none"]
    found = {"otel-lightning": [*run, "--", "sh", "-c", AGENT, str(log), "{id}"]}
    for name, (script, packages) in PEERS.items():
        python = installed(name, packages)
        if python is not None:
            found[name] = [str(python), str(HERE / script), str(folder), AGENT, str(JOBS)]
    return found


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


def measured(command: Sequence[str]) -> Cost:
    """Run a command to its end; return the CPU of its process tree, and the time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        check=False,
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
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(ended(folder)) < count // 2 and first.poll() is None:
            if time.monotonic() > deadline:
                sys.exit(f"{command[:3]} does not come on")
            time.sleep(0.005)
        os.kill(first.pid, signal.SIGKILL)
    settled(folder)
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
