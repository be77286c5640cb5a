"""A flag of prompts with logged rollouts, and `lightning-learn prompts` on it."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner, Result

from otel_lightning.learner.cli import cli
from support.prompt_server import (
    KINDS,
    RULES,
    UNKNOWN,
    PromptServer,
    Reply,
    Script,
    proposal,
)

if TYPE_CHECKING:
    from conftest import Traces


Serve = Callable[[Script], PromptServer]


FIRST = "You answer the requests of customers."


TEXT = """{ "flags": {
    "support-prompt": {"state": "ENABLED",   "defaultVariant": "careful",
        "variants": {"careful": "You answer the requests of customers.",
                     "brief": "Be brief."},
        "targeting": {"fractional": [["careful", 66], ["brief", 34]]}
    },
    "other":  {"state": "DISABLED",
        "variants": {"on": true} }
} }
"""


def question(kind: str, number: int) -> str:
    part = {"type": "text", "content": f"My {kind}, case {number}?"}
    return json.dumps([{"role": "user", "parts": [part]}])


def log(traces: "Traces", rollouts: int = 100, seed: int = 0) -> str:
    """Log rollouts of the world of five kinds, one per task; failures are explained."""
    rng = random.Random(seed)  # noqa: S311 - sampling, not cryptography
    for i in range(rollouts):
        kind, rollout = KINDS[i % 5], f"r{i:04}"
        arm = "careful" if rng.random() < 0.66 else "brief"
        traces.call(rollout, input_messages=question(kind, i))
        traces.arm(rollout, arm, {"careful": 0.66, "brief": 0.34}[arm])
        traces.task(rollout, f"task-{i}")
        success = rng.random() < UNKNOWN
        explanation = None if success else f"The agent should have said {RULES[kind]}."
        traces.reward(rollout, float(success), explanation=explanation)
    return traces.store()


def ask(traces: "Traces", flags: Path, server: PromptServer, *options: str) -> Result:
    paths = [
        "--store",
        str(traces.path),
        "--key",
        "support-prompt",
        "--flags",
        str(flags),
    ]
    model = ["--endpoint", server.url, "--model", "gpt-writer", "--retries", "0"]
    return CliRunner().invoke(cli, ["prompts", *paths, *model, *options], catch_exceptions=False)


def flag(path: Path) -> dict[str, Any]:
    own_flag: dict[str, Any] = json.loads(path.read_text())["flags"]["support-prompt"]
    return own_flag


def new_variants(path: Path) -> dict[str, str]:
    return {n: t for n, t in flag(path)["variants"].items() if n not in ("careful", "brief")}


def numbered(_: dict[str, Any], number: int) -> Reply:
    return proposal(f"You answer well, way {number}.")


def with_store(traces: "Traces", sql: str) -> None:
    from otel_lightning.collector.store import open_store

    with open_store(traces.path) as store:
        store.execute(sql)
