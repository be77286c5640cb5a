"""Policies of azure-agents-learning-sdk 0.3.1 and of ours, from the same logged rollouts.

    python tests/bench/policy_peer.py [--seeds 5] [--million 1000000] [--largest 200000]

The bandit has four arms that are worth .55, .60, .75 and .45. Its peer runs in an environment of
its own (`.cache`) as its README and quick start say, with the rewards given: see `azure_worker.py`.
Value: that of the learned policy. CPU: seconds from the store to the verdict (the peer has no
verdict). Ours is of a process of its own, so it includes Python's start and imports; theirs is of
the runs alone. Their quick start is measured up to --largest rollouts, in memory; with --largest
1000000 (13 CPU minutes) nothing of it is extrapolated.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from otel_lightning.collector.store import open_store
from otel_lightning.learner.evaluate.gate import Requirements
from otel_lightning.learner.evaluate.reward_range import Rewards
from otel_lightning.learner.policy.gate.judge import learn_and_judge
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, Settings

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
LARGE = (2_000, 10_000, 50_000)
"""Sizes at which the peer's time is measured: a run is linear in the number of rollouts."""
LARGE_IN_MEMORY = (2_000, 10_000, 50_000, 100_000)
SMALL = (2_000, 5_000, 10_000)
"""Sizes of the quick start with local files: it takes 10 CPU seconds for 10,000."""
LARGEST = 200_000
MARKS = (2_000, 10_000, 50_000, 100_000, 200_000, 300_000, 400_000, 500_000, 750_000, 1_000_000)


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
    return work(logged, limit, runs, in_memory=in_memory)[-1][1:]


def work(
    logged: Log, limit: int, runs: int | str, *, in_memory: bool, marks: Sequence[int] = ()
) -> list[tuple[int, float, float]]:
    """Run the peer; return rollouts, value and CPU seconds, at each mark and at the end."""
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
        command += [",".join(map(str, marks))] if marks else []
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [
        (
            answer["rollouts"],
            sum(answer["probabilities"].get(arm, 0) * MEANS[i] for i, arm in enumerate(ARMS)),
            answer["learning"],
        )
        for answer in map(json.loads, output.splitlines())
    ]


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
    learn_and_judge(choices, in_train, live, Settings(), Requirements(Rewards((0.0, 1.0))))
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


def as_logged(million: int, largest: int) -> float:
    """Print the CPU seconds of their quick start; return those of a million rollouts.

    Each run reads and sorts all stored rollouts to find the newest 200, so the time is a * N +
    b * N^2. Both are fitted to all sizes but the largest, which tells how far off the fit is.
    """
    sizes = [mark for mark in MARKS if mark <= largest]
    logged = log(LOGGED["uniform"], 0, sizes[-1])
    measured = work(logged, THEIR_STEP, "as-logged", in_memory=True, marks=sizes)
    whole = _fitted(measured, million, "memory")
    by_files = []
    for count in SMALL:
        value, cpu = theirs(log(LOGGED["uniform"], 0, count), THEIR_STEP, "as-logged")
        by_files.append((count, value, cpu))
    _fitted(by_files, million, "files")
    return whole


def _fitted(measured: list[tuple[int, float, float]], million: int, place: str) -> float:
    """Print the measured sizes and how well the smaller ones foretell the largest one."""
    for count, value, cpu in measured:
        label = f"theirs, a run each {THEIR_STEP} of {count:,}, {place}"
        cost = f"{1e6 * cpu / count:.0f} µs a rollout, value {value:.3f}"
        print(f"{label:<52}{cpu:>10.2f}  ({cost})", flush=True)
    counts, seconds = (np.array([row[i] for row in measured], dtype=float) for i in (0, 2))

    def fit(rows: slice, count: float) -> float:
        squares = np.column_stack([counts[rows], counts[rows] ** 2])
        (linear, square), *_ = np.linalg.lstsq(squares, seconds[rows], rcond=None)
        return float(linear * count + square * count**2)

    told, label = fit(slice(-1), counts[-1]), f"the smaller ones foretell for {counts[-1]:,.0f}"
    print(f"{label:<52}{told:>10.2f}  (measured {seconds[-1]:.2f})")
    if counts[-1] >= million:
        return float(seconds[-1])
    whole = fit(slice(None), million)
    label = f"theirs, a run each {THEIR_STEP} of {million:,}, {place}, by that"
    print(f"{label:<56}{whole:>10.0f}")
    return whole


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


def time_table(million: int, largest: int) -> None:
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
    quick_start = as_logged(million, largest)
    whole, learning = sorted(totals)[1], sorted(alone)[1]
    print("\nhow many times as long as ours: what, theirs, ours, times\n")
    for label, of_theirs, of_ours in (
        ("learning alone, rollouts in memory, one averaged gradient step", memory, learning),
        ("store to policy, local files, one such step", files, whole),
        ("store to policy, each rollout learned from once (quick start)", quick_start, whole),
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
    parser.add_argument("--largest", type=int, default=LARGEST)
    options = parser.parse_args()
    value_table(options.seeds)
    time_table(options.million, options.largest)


if __name__ == "__main__":
    main()
