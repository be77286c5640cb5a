"""An example in `lightning-learn loop`: its settings, and the curve of its rounds."""

import functools
import json
import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from otel_lightning.collector.store import open_store
from otel_lightning.learner.loop.rounds import run_loop
from shared.rollouts import BIN, agent_server, free_port, ingesting
from shared.study import JOBS, Rewards, Study, interval

NAME = "example"
GATES = ("prompts_gate", "weights_gate")
SPLIT = {"held_out": 0.35, "final": 0.25}
"""Shares of the tasks that only the gate, and that only the last report sees."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a loop, or the time after the last one."""

    number: int
    rewards: Rewards
    """Rewards on the training tasks of the prompt or model that was live when the round began."""
    gain: tuple[float, float, float] | None = None
    """Gain that the gate measured on its own tasks, with the ends of its interval."""
    outcome: str = ""


def loop_of(one: Study) -> tuple[list[Round], str]:
    """Run the loop of an example; return its rounds and its last report."""
    if one.example.LEARNS == "prompts":
        from shared.prompts import prompts_loop

        return prompts_loop(one)
    return weights_loop(one)


def weights_loop(one: Study) -> tuple[list[Round], str]:
    """Fine-tune in rounds; the final tasks are those that the study holds out."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    serve = [str(BIN / "lightning-learn"), "serve", "--model", "{model}", "--port", str(port)]
    # Without a seed: with one, the same model would give the same answers in the next round.
    serve += ["--name", "small", "--temperature", "1"]
    with ingesting(one.store), agent_server(one.agent, one.store, url) as agent_url:
        parts = {
            "run": {
                "tasks": str(write_tasks(one, lines_of(one))),
                "url": agent_url,
                "samples": one.size.samples,
                "jobs": JOBS,
                "grade": one.rule,
                "seed": one.seed,
            },
            "learn": {
                "rounds": one.size.rounds,
                "what": ["weights"],
                "agents": list(one.example.LEARNERS),
            },
            "split": SPLIT,
            "gate": {"samples": one.size.held_out_samples},
            "weights": {
                "model": str(one.folder / "base"),
                "output": str(one.folder / "models"),
                "serve": shlex.join(serve),
                "ready": f"{url}/models",
            },
            "weights.settings": {
                "steps": one.size.steps,
                "learning_rate": one.size.learning_rate,
                "batch_size": one.size.batch,
                "seed": one.seed,
            },
        }
        return run_rounds(one, write_settings(one, parts))


def lines_of(one: Study) -> list[dict[str, Any]]:
    """Return as many task lines as a study has."""
    lines: list[dict[str, Any]] = one.example.tasks(one.folder)
    random.Random(one.seed).shuffle(lines)
    return lines[: one.size.tasks + one.size.held_out]


def write_tasks(one: Study, lines: Sequence[Mapping[str, Any]]) -> Path:
    """Write a task file."""
    file = one.folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def write_settings(one: Study, parts: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write `loop.toml`; JSON's texts, numbers and lists are TOML's too."""
    text = f'name = "{NAME}"\n'
    for name, values in parts.items():
        lines = (f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        text += f"[{name}]\n{''.join(lines)}"
    file = one.folder / "loop.toml"
    file.write_text(text, encoding="utf-8")
    return file


def run_rounds(one: Study, file: Path) -> tuple[list[Round], str]:
    """Run a loop as `lightning-learn loop` does; return its rounds and its last report."""
    outcome = run_loop(file, one.store, functools.partial(print, flush=True))
    with open_store(one.store) as opened:
        rows = opened.query(
            f"SELECT round, stage, outcome, details::VARCHAR AS details FROM rounds "
            f"WHERE loop = '{NAME}' AND round BETWEEN 1 AND {outcome.rounds}"
        ).to_pylist()
    stages = {(row["round"], row["stage"]): row for row in rows}
    final = outcome.final
    summary = final.get("said") or "Nothing was promoted."
    if "tasks" in final:
        summary = f"On {final['tasks']} final tasks, which were read only now: {summary}"
    return [_round(one, number, stages) for number in range(1, outcome.rounds + 1)], summary


def _round(one: Study, number: int, stages: Mapping[tuple[int, str], Mapping[str, Any]]) -> Round:
    rewards = _rewards(one, f"{NAME}.{number}.train")
    gate = next((stages[number, name] for name in GATES if (number, name) in stages), None)
    if gate is None:
        return Round(number, rewards)
    details = json.loads(gate["details"])
    verdicts = details.get("verdicts") or {}
    best = max(verdicts.values(), key=lambda one: one["gain"], default=None)
    gain = None if best is None else (best["gain"], best["lower"], best["upper"])
    return Round(number, rewards, gain, gate["outcome"])


def _rewards(one: Study, run_id: str) -> Rewards:
    sql = f"""
        SELECT a.task_id, coalesce(r.value, 0) AS value
        FROM attempts a
        LEFT JOIN rewards r ON r.rollout_id = a.rollout_id AND r.name = '{one.example.RULE}'
        WHERE a.run_id = '{run_id}' AND a.status <> 'lost'
    """
    by_task: dict[str, list[float]] = {}
    with open_store(one.store) as opened:
        for row in opened.query(sql).to_pylist():
            by_task.setdefault(row["task_id"], []).append(row["value"])
    return Rewards(by_task)


def curve(rounds: Sequence[Round]) -> list[str]:
    """Write the rounds as lines of a Markdown table."""
    lines = [
        "| round | reward on the training tasks | 95 % | gain on the gate's tasks | interval | |",
        "|---|---|---|---|---|---|",
    ]
    for one in rounds:
        low, high = interval([float(np.mean(values)) for values in one.rewards.by_task.values()])
        gained = ["", ""]
        if one.gain is not None:
            gain, lower, upper = one.gain
            gained = [f"{gain:+.3f}", f"[{lower:+.3f}, {upper:+.3f}]"]
        cells = [str(one.number), f"{one.rewards.mean:.3f}", f"[{low:.3f}, {high:.3f}]"]
        lines.append(f"| {' | '.join([*cells, *gained, one.outcome])} |")
    return lines


def draw(rounds: Sequence[Round], title: str, picture: Path) -> None:
    """Draw the reward of what was live, round by round."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.add_subplot()
    means = [one.rewards.mean for one in rounds]
    ends = [interval([float(np.mean(v)) for v in one.rewards.by_task.values()]) for one in rounds]
    errors = np.abs(np.asarray(ends).T - np.asarray(means))
    axes.errorbar([one.number for one in rounds], means, yerr=errors, marker="o", capsize=3)
    axes.set(title=title, xlabel="round", ylabel="mean reward, training tasks", ylim=(0, 1))
    axes.set_xticks([one.number for one in rounds])
    figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else None)
