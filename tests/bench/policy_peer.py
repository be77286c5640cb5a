"""Policies of azure-agents-learning-sdk 0.3.1 and of ours, from the same logged rollouts.

    python tests/bench/policy_peer.py [--seeds 5] [--million 1000000]

The bandit has four arms that are worth .55, .60, .75 and .45. Its peer runs in an environment of
its own (`.cache`) as its README and quick start say, with the rewards given: see `azure_worker.py`.
Value: that of the learned policy. CPU: seconds from the store to the verdict (the peer has no
verdict). Ours is of a process of its own, so it includes Python's start and imports; theirs is of
the runs alone.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from otel_lightning.collector.store import open_store
from otel_lightning.learner.policy.judge import learn_and_judge
from otel_lightning.learner.policy.softmax import Choices, Settings

HERE = Path(__file__).parent
PEER = "azure-agents-learning-sdk==0.3.1"
ENVIRONMENT = HERE.parents[1] / ".cache" / PEER.replace("==", "-")
LEARN = Path(sys.executable).parent / "lightning-learn"
ARMS, MEANS = ("a", "b", "c", "d"), np.array([0.55, 0.60, 0.75, 0.45])
SKEWED = np.array([0.80, 0.14, 0.03, 0.03])
LOGGED = {"uniform": np.full(4, 0.25), "skewed": SKEWED}
KEY = "prompt"
THEIR_STEP = 200
"""Number of the newest episodes that their runner reads by default."""
LARGE = (5_000, 10_000, 20_000)
"""Sizes at which the peer's time is measured: a run is linear in the number of rollouts."""
LARGE_IN_MEMORY = (20_000, 50_000, 100_000)


@dataclass(frozen=True)
class Log:
    """Logged rollouts."""

    taken: np.ndarray
    propensities: np.ndarray
    rewards: np.ndarray


def log(shares: np.ndarray, seed: int, count: int) -> Log:
    rng = np.random.default_rng(seed)
    taken = rng.choice(4, size=count, p=shares)
    rewards = (rng.random(count) < MEANS[taken]).astype(float)
    return Log(taken, shares[taken], rewards)


def python() -> Path:
    """The interpreter of the peer's environment, made once."""
    found = ENVIRONMENT / "bin" / "python"
    if not found.exists():
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([found, "-m", "pip", "install", "-qq", PEER], check=True)
    return found


def theirs(
    logged: Log, limit: int, runs: int | str, *, in_memory: bool = False
) -> tuple[float, float]:
    """Return the value that the peer reaches, and the CPU seconds of its runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rollouts.jsonl"
        rows = zip(logged.taken, logged.propensities, logged.rewards, strict=True)
        path.write_text(
            "".join(
                json.dumps({"arm": ARMS[arm], "propensity": p, "reward": r}) + "\n"
                for arm, p, r in rows
            )
        )
        store = "memory" if in_memory else f"{folder}/store"
        command = [python(), HERE / "azure_worker.py", path, store, str(limit), str(runs)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    answer = json.loads(told.splitlines()[-1])
    value = sum(answer["probabilities"].get(arm, 0) * MEANS[i] for i, arm in enumerate(ARMS))
    return value, answer["learning"]


def flag_file(folder: Path) -> Path:
    path = folder / "flags.json"
    flag = {
        "state": "ENABLED",
        "variants": {arm: arm for arm in ARMS},
        "defaultVariant": "a",
        "targeting": {"fractional": [[arm, 1] for arm in ARMS]},
    }
    path.write_text(json.dumps({"flags": {KEY: flag}}))
    return path


def fill(path: Path, count: int, shares: np.ndarray, seed: int) -> None:
    """Write rollouts of one call, four a task, with one choice and one reward each."""
    cuts = np.cumsum(shares)
    arm = f"list_position([p < edge FOR edge IN {[*cuts[:-1].tolist(), 1.1]}], TRUE)"
    with open_store(path) as store:
        store.execute(f"SELECT setseed({seed / 1000})")
        store.execute(
            "CREATE TEMP TABLE drawn AS SELECT n, random() AS p, random() AS luck, "
            f"md5('rollout' || n) AS id FROM range({count}) t(n)"
        )
        mu = [float(share) for share in shares]
        for query in (HERE / "policy_peer.sql").read_text().split(";\n"):
            values = query.replace("$arm", arm).replace("$mu", str(mu))
            store.execute(values.replace("$means", str(MEANS.tolist())).replace("$key", KEY))


def ours(count: int, shares: np.ndarray, seed: int) -> tuple[float, float, str]:
    """Return the value that we reach, the CPU seconds of the command, and its verdict."""
    with tempfile.TemporaryDirectory() as folder:
        store, flags = Path(folder) / "traces.duckdb", flag_file(Path(folder))
        fill(store, count, shares, seed)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [LEARN, "policy", "--store", store, "--key", KEY, "--flags", flags]
        told = subprocess.run(
            [*command, "--reward-range", "0,1"], check=False, capture_output=True, text=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if told.returncode not in {0, 3}:
            sys.exit(told.stderr)
        with open_store(store) as opened:
            arms = json.loads(opened.query("SELECT arms FROM policies")["arms"][0].as_py())
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    value = sum(arms[arm] * MEANS[i] for i, arm in enumerate(ARMS))
    return value, cpu, "passed" if told.returncode == 0 else "refused"


def learning_alone(count: int) -> float:
    """CPU seconds of learning and judging, without the store."""
    logged = log(LOGGED["uniform"], 0, count)
    tasks = np.arange(count) // 4
    choices = Choices(ARMS, logged.taken, logged.propensities, logged.rewards, tasks)
    begin = time.process_time()
    in_train, live = tasks % 10 >= 3, dict.fromkeys(ARMS, 0.25)
    learn_and_judge(choices, in_train, live, Settings(), ((0.0, 1.0), 0.0))
    return time.process_time() - begin


def value_table(seeds: int) -> None:
    print(
        f"theirs: {PEER.replace('==', ' ')}. Value reached from 400 logged rollouts, mean of "
        f"{seeds} seeds (worst); the best arm is worth .75"
    )
    for name, shares in LOGGED.items():
        print(f"\n{name} logging, whose policy is worth {shares @ MEANS:.3f}")
        rows = {
            "theirs, 1 run of the newest 200": [
                theirs(log(shares, seed, 400), THEIR_STEP, 1)[0] for seed in range(seeds)
            ],
            "theirs, 50 runs of all 400": [
                theirs(log(shares, seed, 400), 400, 50)[0] for seed in range(seeds)
            ],
            "ours, before the gate": [ours(400, shares, seed)[0] for seed in range(seeds)],
        }
        for label, values in rows.items():
            print(f"{label:<40}{np.mean(values):>8.3f} ({min(values):.3f})", flush=True)


def as_logged(million: int) -> float:
    """Print the CPU seconds of their quick start, and extrapolate them to a million rollouts.

    Each run reads and sorts all stored rollouts to find the newest 200, so the time is a * N +
    b * N^2; both are fitted.
    """
    found = 0.0
    for name, sizes in (("memory", LARGE_IN_MEMORY), ("files", LARGE)):
        seconds = []
        for count in sizes:
            logged = log(LOGGED["uniform"], 0, count)
            value, cpu = theirs(logged, THEIR_STEP, "as-logged", in_memory=name == "memory")
            seconds.append(cpu)
            label = f"theirs, a run each {THEIR_STEP} of {count:,}, {name}"
            print(f"{label:<48}{cpu:>10.2f}  (value {value:.3f})", flush=True)
        squares = np.array([[count, count**2] for count in sizes], dtype=float)
        (linear, square), *_ = np.linalg.lstsq(squares, np.array(seconds), rcond=None)
        whole = float(linear * million + square * million**2)
        label = f"theirs, a run each {THEIR_STEP} of {million:,}, {name}, by that"
        print(f"{label:<56}{whole:>10.0f}")
        found = found or whole
    return found


def one_run(sizes: tuple[int, ...], million: int, *, in_memory: bool) -> float:
    """Print the CPU seconds of one run of theirs over all rollouts; return those of a million."""
    place, per_rollout = "memory" if in_memory else "files", 0.0
    for count in sizes:
        _, cpu = theirs(log(LOGGED["uniform"], 0, count), count, 1, in_memory=in_memory)
        per_rollout = cpu / count
        label = f"theirs, 1 run of {count:,}, {place}"
        print(f"{label:<48}{cpu:>10.2f}  ({1e6 * per_rollout:.0f} µs a rollout)", flush=True)
    label = f"theirs, 1 run of {million:,}, {place}, by that"
    print(f"{label:<48}{million * per_rollout:>10.1f}")
    return million * per_rollout


def time_table(million: int) -> None:
    print("\nCPU seconds from the store to the policy")
    totals, alone = [], []
    for _ in range(3):
        value, ours_cpu, verdict = ours(million, LOGGED["uniform"], 0)
        totals.append(ours_cpu)
        label = f"ours, {million:,}"
        print(f"{label:<48}{ours_cpu:>10.2f}  (value {value:.3f}, gate {verdict})", flush=True)
        alone.append(learning_alone(million))
        print(f"{'ours, learning and judging alone':<48}{alone[-1]:>10.2f}", flush=True)
    files = one_run(LARGE, million, in_memory=False)
    memory = one_run(LARGE_IN_MEMORY, million, in_memory=True)
    quick_start = as_logged(million)
    whole, learning = sorted(totals)[1], sorted(alone)[1]
    print("\nhow many times as long as ours: what, theirs, ours, times\n")
    for label, of_theirs, of_ours in (
        ("store to policy, each rollout learned from once (quick start)", quick_start, whole),
        ("store to policy, one run: one averaged gradient step", files, whole),
        ("learning alone, rollouts in memory, one such step", memory, learning),
    ):
        times = of_theirs / of_ours
        print(f"{label:<64}{of_theirs:>10.1f}{of_ours:>8.2f}{times:>8.0f}")
    print(
        "aims for ours: at most 5 CPU seconds in all, 2 for learning and judging alone, and 100\n"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--million", type=int, default=1_000_000)
    options = parser.parse_args()
    value_table(options.seeds)
    time_table(options.million)


if __name__ == "__main__":
    main()
