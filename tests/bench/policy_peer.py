"""Policies of azure-agents-learning-sdk 0.3.1 and of ours, from the same logged rollouts.

    python tests/bench/policy_peer.py [--seeds 5] [--million 1000000]

The bandit has four arms that are worth .55, .60, .75 and .45. Its peer runs in an environment of
its own (`.cache`) as its README says, with the rewards given: see `azure_worker.py`. Value: that of
the learned policy. CPU: seconds from the store to the verdict (the peer has no verdict), of a
process of its own, so Python's start and imports are included.
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
LARGE = (5_000, 20_000)
"""Sizes at which the peer's time per rollout is measured: it is linear."""


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
        subprocess.run([found, "-m", "pip", "install", "-q", PEER], check=True)
    return found


def theirs(logged: Log, runs: int, limit: int) -> tuple[float, float]:
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
        command = [
            python(),
            HERE / "azure_worker.py",
            path,
            f"{folder}/store",
            str(runs),
            str(limit),
        ]
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
    print(f"value reached from 400 logged rollouts, mean of {seeds} seeds (worst); best arm .75")
    for name, shares in LOGGED.items():
        print(f"\n{name} logging, whose policy is worth {shares @ MEANS:.3f}")
        rows = {
            "theirs, 1 run of the newest 200": [
                theirs(log(shares, seed, 400), 1, THEIR_STEP)[0] for seed in range(seeds)
            ],
            "theirs, 50 runs of all 400": [
                theirs(log(shares, seed, 400), 50, 400)[0] for seed in range(seeds)
            ],
            "ours, before the gate": [ours(400, shares, seed)[0] for seed in range(seeds)],
        }
        for label, values in rows.items():
            print(f"{label:<40}{np.mean(values):>8.3f} ({min(values):.3f})", flush=True)


def time_table(million: int) -> None:
    print("\nCPU seconds from the store to the policy")
    per_rollout = 0.0
    for count in LARGE:
        _, cpu = theirs(log(LOGGED["uniform"], 0, count), 1, count)
        per_rollout = cpu / count
        print(f"theirs, 1 run of {count:>9,}{cpu:>25.2f}  ({1e6 * per_rollout:.0f} µs a rollout)")
    print(f"theirs, 1 run of {million:>9,}, by that{million * per_rollout:>17.0f}")
    print(f"theirs, 50 runs of {million:>7,}, by that{50 * million * per_rollout:>17.0f}")
    value, cpu, verdict = ours(million, LOGGED["uniform"], 0)
    alone = learning_alone(million)
    print(f"ours, {million:>20,}{cpu:>25.2f}  (value {value:.3f}, gate {verdict})")
    print(f"ours, learning and judging alone{alone:>19.2f}")
    ratio = million * per_rollout / cpu
    print(
        f"one run of theirs takes {ratio:.0f} times as long as ours, 50 runs {50 * ratio:.0f} times"
    )
    print("aims: at most 5 CPU seconds in all, and 2 for learning and judging alone")


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
