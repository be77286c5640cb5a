"""A contextual bandit whose best policy is known: a request has one right action among four."""

import json
import math
import random
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from otel_lightning.learner.cli import cli

REQUESTS = ["refund", "return", "status", "lookup"]
ACTIONS = ["left", "right", "up", "down"]
RIGHT = dict(zip(REQUESTS, ACTIONS, strict=True))
TASKS = 120


def question(tokenizer: Any, request: str, number: int) -> list[int]:
    """The prompt of a task in tokens."""
    messages = [{"role": "user", "content": f"{request} {number}"}]
    ids: list[int] = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    return ids


def answer_json(text: str) -> str:
    """An answer as the collector stores it."""
    parts = [{"type": "text", "content": text}]
    return json.dumps([{"role": "assistant", "parts": parts}])


def log(
    traces: Any,
    tokenizer: Any,
    attempts: int = 4,
    agent_name: list[str] | None = None,
    tasks: int = TASKS,
) -> None:
    """Log uniform choices among four actions, of which the request makes one the right one.

    Agents, if named, take rollouts in turn.
    """
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for task in range(tasks):
        request, number = REQUESTS[task % 4], task // 4
        for attempt in range(attempts):
            rollout, action = f"{task:03}-{attempt}", rng.choice(ACTIONS)
            row = {
                "prompt_token_ids": question(tokenizer, request, number),
                "completion_token_ids": tokenizer.convert_tokens_to_ids([action, "<end>"]),
                "completion_logprobs": [math.log(0.25), 0.0],
                "output_messages": answer_json(action),
            }
            if agent_name:
                row["agent_name"] = agent_name[attempt % len(agent_name)]
            traces.call(rollout, **row)
            traces.task(rollout, f"task-{task}")
            traces.reward(rollout, float(action == RIGHT[request]))


def run(*arguments: str) -> Result:
    """Run `lightning-learn`."""
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def fine_tune(
    traces: Any, model: Path, output: Path, *options: str, algorithm: str = "rft"
) -> Result:
    """Run `lightning-learn weights` with settings for a model this small."""
    paths = ["--store", traces.store(), "--model", str(model), "--output", str(output)]
    algorithm_options = ["--algorithm", algorithm, "--steps", "40", "--batch-size", "32"]
    return run("weights", *paths, *algorithm_options, *options)


def right_share(path: Path, tokenizer: Any, tasks: list[str]) -> float:
    """Mean probability of the right action among the four, on tasks by their names."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path)
    actions = tokenizer.convert_tokens_to_ids(ACTIONS)
    total = 0.0
    for task in tasks:
        number = int(task.removeprefix("task-"))
        ids = torch.tensor([question(tokenizer, REQUESTS[number % 4], number // 4)])
        with torch.no_grad():
            probabilities = model(input_ids=ids).logits[0, -1, actions].softmax(-1)
        total += float(probabilities[number % 4])
    return total / len(tasks)


def held_out_tasks(traces: Any) -> list[str]:
    """Names of the tasks that judge."""
    rows = traces.ask("SELECT DISTINCT task_id FROM transitions WHERE split = 'heldout'")
    return [row["task_id"] for row in rows]
