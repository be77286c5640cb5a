"""Choices of the flag `support-prompt` in a store, and a policy learned from them."""

import json
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from otel_lightning.learner.cli import cli

if TYPE_CHECKING:
    from conftest import Traces

LATER = datetime(2026, 11, 1, hour=5)  # noqa: DTZ001 - the store's UTC has no zone
UNIFORM = {"brief": 1 / 3, "friendly": 1 / 3, "careful": 1 / 3}
SUCCESS = {"brief": 0.2, "friendly": 0.35, "careful": 0.6}


def log(traces: "Traces", success: dict[str, float], rollouts: int = 600, seed: int = 0) -> None:
    """Log uniform choices; four rollouts a task."""
    rng = random.Random(seed)  # noqa: S311 - sampling, not cryptography
    for i in range(rollouts):
        rollout, arm = f"{seed}-{i:04}", rng.choice(list(UNIFORM))
        traces.call(rollout)
        traces.arm(rollout, arm, UNIFORM[arm])
        traces.task(rollout, f"task-{i // 4}")
        traces.reward(rollout, float(rng.random() < success[arm]))


def propose(traces: "Traces", flag_file: Path, *options: str) -> Result:
    required = ["--store", traces.store(), "--key", "support-prompt", "--flags", str(flag_file)]
    return CliRunner().invoke(cli, ["policy", *required, *options], catch_exceptions=False)


def learn(traces: "Traces", flag_file: Path, *options: str) -> Result:
    return propose(traces, flag_file, "--promote", *options)


def with_variants(flag_file: Path, weights: dict[str, int]) -> None:
    document = json.loads(flag_file.read_text())
    flag = document["flags"]["support-prompt"]
    flag["variants"] = {arm: f"Be {arm}." for arm in weights}
    flag["defaultVariant"] = next(iter(weights))
    flag["targeting"]["fractional"] = [[arm, weight] for arm, weight in weights.items()]
    flag_file.write_text(json.dumps(document))


def served(path: Path) -> dict[str, int]:
    flag = json.loads(path.read_text())["flags"]["support-prompt"]
    return dict(flag["targeting"]["fractional"])


def at(number: int) -> datetime:
    """A time so many minutes after five o'clock."""
    return LATER + timedelta(minutes=number)
