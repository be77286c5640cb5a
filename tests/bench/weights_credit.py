"""Does credit matter? The first call of a rollout decides, and the four calls after it are noise.

A request has one right action among four; the reward comes with the first call. Then the agent
chooses four times more, at random, in states that no reward depends on. With `identical` these
calls get the return of the rollout as well, so most of what is learned is noise.
"""

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from learner.conftest import Traces
from learner.conftest import tokenizer as tokenizer_fixture
from support.desk_bandit import ACTIONS, REQUESTS, RIGHT, answer_json, question, right_share
from support.untrained import untrained

from otel_lightning.learner.transitions.make import Settings, make_transitions
from otel_lightning.learner.weights.learn import learn_weights
from otel_lightning.learner.weights.settings import Training

NOISE = 4
TASKS, ATTEMPTS, HELD_OUT = 40, 3, 0.3
CREDITS = ("identical", "group", "return_to_go", "anchor_state")
ALGORITHM = "rft"
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""97.5 % quantiles of Student's distribution for 2 seeds and more."""


def credit_table(folder: Path, seeds: int) -> Iterator[str]:
    """Compare credit methods by the mean probability of the right action on held-out tasks."""
    tokenizer = tokenizer_fixture.__wrapped__()
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        model = untrained(folder / f"credit-{seed}", tokenizer, seed)
        store = folder / f"credit-{seed}.duckdb"
        _log(store, tokenizer, seed)
        for credit in CREDITS:
            make_transitions(store, Settings(credit=credit, held_out=HELD_OUT))
            held_out = _held_out(store)
            output = folder / f"credit-{seed}-{credit}"
            training = Training(
                model, learning_rate=2e-3, steps=40, batch_size=16, save_every=0, seed=seed
            )
            learn_weights(store, ALGORITHM, training, output)
            found.setdefault(credit, []).append(right_share(output, tokenizer, held_out))
    yield f"| credit, {seeds} seeds | right action | more than `identical` | 95 % |"
    yield "|---|---|---|---|"
    for credit, shares in found.items():
        cells = [f"`{credit}`", f"{np.mean(shares):.3f}", "", ""]
        if credit != CREDITS[0]:
            more = np.subtract(shares, found[CREDITS[0]])
            spread = STUDENT[seeds - 2] * more.std(ddof=1) / seeds**0.5
            low, high = more.mean() - spread, more.mean() + spread
            cells[2:] = [f"{more.mean():+.3f}", f"{low:+.3f} to {high:+.3f}"]
        yield f"| {' | '.join(cells)} |"


def _log(path: Path, tokenizer: Any, seed: int) -> None:
    """Log uniform choices; the states after the first call are the same for all rollouts."""
    rng = random.Random(seed)  # noqa: S311 - sampling, not cryptography
    traces = Traces(path)
    for task in range(TASKS):
        request, number = REQUESTS[task % 4], task // 4
        for attempt in range(ATTEMPTS):
            rollout = f"{task:03}-{attempt}"
            for step in range(1 + NOISE):
                action = rng.choice(ACTIONS)
                asked = question(tokenizer, *((request, number) if step == 0 else ("up", step)))
                traces.call(
                    rollout,
                    step,
                    prompt_token_ids=asked,
                    completion_token_ids=tokenizer.convert_tokens_to_ids([action, "<end>"]),
                    completion_logprobs=[math.log(0.25), 0.0],
                    output_messages=answer_json(action),
                )
                if step == 0:
                    right = float(action == RIGHT[request])
            traces.task(rollout, f"task-{task}")
            traces.reward(rollout, right, span_id=f"{rollout}.0", trace_id=rollout)
    traces.store()


def _held_out(path: Path) -> list[str]:
    rows = Traces(path).ask("SELECT DISTINCT task_id FROM transitions WHERE split = 'heldout'")
    return sorted(row["task_id"] for row in rows)
