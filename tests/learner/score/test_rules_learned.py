"""Learning from what rules gave: which rewards count, and what the commands say."""

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from support import running

from otel_lightning.learner.cli import cli

if TYPE_CHECKING:
    from conftest import Traces

GRADE = """
import polars as pl


def grade(rollouts):
    wrong = rollouts["tool_errors"] > 0
    return wrong.cast(pl.Float64).replace(1.0, float("nan")).replace(0.0, 0.75)
"""
COMPOSED = """
name = "quality"
[measures.task_success]
weight = 1
range = [0, 1]
[shaping]
steps = -0.1
"""


def learn(traces: "Traces", command: str, *options: str) -> Result:
    return CliRunner().invoke(cli, [command, "--store", traces.store(), *options])


def rewards(traces: "Traces") -> dict[str, Any]:
    rows = traces.ask("SELECT span_id, reward FROM transitions ORDER BY rollout_id, step")
    return {row["span_id"]: row["reward"] for row in rows}


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_transitions_learn_from_a_rule_and_say_what_it_left_out(
    traces: "Traces", tmp_path: Path
) -> None:
    for rollout in "abc":
        traces.call(rollout)
        traces.reward(rollout, 0.0)
    traces.tool("b", "lookup", error_type="timeout")
    spec = written(tmp_path, "rewards.py", GRADE) + ":grade"
    result = learn(traces, "transitions", "--reward", spec)
    assert result.exit_code == 0, result.output
    assert "Rule 'grade' gave 2 scores.\n1 left out: the score is NaN (b).\n" in result.output
    assert rewards(traces) == {"a.0": 0.75, "c.0": 0.75}
    again = learn(traces, "transitions", "--reward", spec)
    assert "0 built in this run, the others had not changed" in again.output


@pytest.mark.slow
def test_what_rules_gave_counts_only_when_it_is_named_and_a_part_never_beside_the_whole(
    traces: "Traces", tmp_path: Path
) -> None:
    traces.call("a", 0)
    traces.call("a", 1)
    traces.reward("a", 1.0)
    spec = written(tmp_path, "quality.toml", COMPOSED)
    assert learn(traces, "transitions", "--reward", spec).exit_code == 0
    assert rewards(traces) == {"a.0": 0, "a.1": 0.8}
    for options, last in [
        ([], 1.0),
        (["--reward", "task_success"], 1.0),
        (["--reward", "quality"], 0.8),
        (["--reward", "quality.steps"], -0.2),
    ]:
        assert learn(traces, "transitions", *options).exit_code == 0
        assert rewards(traces) == {"a.0": 0, "a.1": last}, options


def test_rule_closes_no_rollout_and_is_not_its_final_reward(
    traces: "Traces", tmp_path: Path
) -> None:
    traces.call("a", finish_reason="tool_calls")
    rule = written(tmp_path, "one.sql", "SELECT rollout_id, 1 AS value FROM rollouts")
    before = traces.store() and traces.ask("SELECT * FROM rollouts")
    learn(traces, "transitions", "--reward", rule)
    assert traces.ask("SELECT count(*) AS n FROM rewards") == [{"n": 1}]
    assert traces.ask("SELECT * FROM rollouts") == before


@pytest.mark.slow
def test_transitions_by_a_rule_through_a_running_ingester(traces: "Traces", tmp_path: Path) -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    path = Path(traces.store())
    spec = written(tmp_path, "quality.toml", COMPOSED)
    ingester = running.start(path)
    try:
        result = learn(traces, "transitions", "--reward", spec)
    finally:
        ingester.stop()
    assert result.exit_code == 0, result.output
    assert rewards(traces) == {"a.0": 0.9}


def test_broken_rule_is_one_sentence_and_exit_code_1(traces: "Traces", tmp_path: Path) -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    spec = written(tmp_path, "rewards.py", "def grade(rollouts):\n    return 1 / 0\n") + ":grade"
    result = learn(traces, "transitions", "--reward", spec)
    assert result.exit_code == 1
    assert "raises ZeroDivisionError at rewards.py:2: division by zero" in result.output
    assert "Traceback" not in result.output


def test_policy_learns_from_a_rule(traces: "Traces", tmp_path: Path) -> None:
    draw = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for number in range(300):
        rollout, arm = f"r{number:03}", draw.choice(["brief", "careful"])
        traces.call(rollout, output_tokens=10 if arm == "brief" else 90)
        traces.arm(rollout, arm, 0.5)
    flag = {"state": "ENABLED", "variants": {"brief": "b", "careful": "c"}}
    flag |= {"defaultVariant": "careful"}
    file = written(tmp_path, "flags.json", json.dumps({"flags": {"support-prompt": flag}}))
    short = "[shaping]\ntokens = { weight = -1, above = 50 }\n"
    spec = written(tmp_path, "short.toml", short.replace("tokens", "steps").replace("50", "0"))
    result = learn(traces, "policy", "--key", "support-prompt", "--flags", file, "--reward", spec)
    assert result.exit_code == 1
    assert "All 300 rewards for flag 'support-prompt' are -1" in result.output
    brief = "SELECT rollout_id, -output_tokens AS value FROM rollouts"
    spec = written(tmp_path, "brief.sql", brief)
    known = ("--reward-range", "-90,-10", "--promote")
    options = ("--key", "support-prompt", "--flags", file, "--reward", spec, *known)
    result = learn(traces, "policy", *options)
    assert result.exit_code == 0, result.output
    served = json.loads(Path(file).read_text())["flags"]["support-prompt"]["targeting"]
    assert dict(part for part in served["fractional"] if isinstance(part, list))["brief"] > 8000
