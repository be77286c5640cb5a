"""Stores and flags from which no prompt can be proposed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.prompted_flag import FIRST, TEXT, Serve, ask, log, numbered, question

if TYPE_CHECKING:
    from conftest import Traces


def no_choices(traces: "Traces") -> None:
    traces.call("r0")
    traces.reward("r0", 0.0)


def no_rewards(traces: "Traces") -> None:
    traces.call("r0")
    traces.call("r1")
    traces.arm("r0", "careful", 0.66)
    traces.reward("r1", 1.0)


@pytest.mark.parametrize(
    ("fill", "told"),
    [(no_choices, "has no choices for flag 'support-prompt'"), (no_rewards, "has a reward")],
)
def test_store_without_choices_or_rewards_is_told_apart(
    traces: "Traces",
    flags: Path,
    serve: Serve,
    fill: Callable[["Traces"], None],
    told: str,
) -> None:
    fill(traces)
    traces.store()
    result = ask(traces, flags, serve(numbered))
    assert result.exit_code == 1
    assert told in result.stderr


FRACTIONS = '"targeting": {"fractional": [["careful", 66], ["brief", 34]]}'


CANARY = ', "metadata": {"lightning.policy.version": "p1@0.1"}'


FLAGS = {
    "is disabled": ('"ENABLED"', '"DISABLED"'),
    "No variant of flag": ('{"careful": "You answer', '{"careful": 1, "brief": 2}, "was": {"x": "'),
    "serves a canary": (FRACTIONS, FRACTIONS + CANARY),
    "drawn together with the others of 'support-prompt+model'": (
        '"fractional": [',
        '"fractional": [{"cat": ["support-prompt+model", {"var": "targetingKey"}]}, ',
    ),
}


@pytest.mark.parametrize("told", FLAGS)
def test_flag_to_which_nothing_can_be_added_is_refused(
    traces: "Traces", flags: Path, serve: Serve, told: str
) -> None:
    log(traces, 20)
    before, after = FLAGS[told]
    assert before in TEXT
    flags.write_text(TEXT.replace(before, after, 1))
    result = ask(traces, flags, serve(numbered))
    assert result.exit_code == 1
    assert told in result.stderr


def test_rollouts_of_other_variants_only_are_refused_before_the_model_is_asked(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    log(traces, 20)
    flags.write_text(TEXT.replace("careful", "calm").replace("brief", "short"))
    server = serve(numbered)
    result = ask(traces, flags, server)
    assert result.exit_code == 1
    assert "which has: calm, short. The rollouts are of: brief, careful." in result.stderr
    assert server.requests == []


def test_a_flag_that_serves_no_text_is_refused_before_a_rule_is_applied(
    traces: "Traces", flags: Path, serve: Serve, tmp_path: Path
) -> None:
    log(traces, 20)
    document = json.loads(TEXT)
    of_flag = document["flags"]["support-prompt"]
    of_flag["variants"]["limit"] = 3
    of_flag |= {"defaultVariant": "limit", "targeting": {}}
    flags.write_text(json.dumps(document))
    rule = tmp_path / "rule.sql"
    rule.write_text("SELECT rollout_id, 1.0 AS value FROM rollouts")
    result = ask(traces, flags, serve(numbered), "--reward", str(rule))
    assert result.exit_code == 1
    assert "serves no variant that is a text" in result.stderr
    assert traces.ask("SELECT * FROM scores") == []


def test_variants_that_are_all_worse_than_their_parents_are_refused_before_the_model_is_asked(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    # The parent is served no more, and all traffic goes to a variant that loses to it.
    document = json.loads(TEXT)
    of_flag = document["flags"]["support-prompt"]
    of_flag["variants"] = {"careful": FIRST, "careful-1a2b": "Guess."}
    of_flag["targeting"] = {"fractional": [["careful", 0], ["careful-1a2b", 100]]}
    of_flag["metadata"] = {"lightning.candidate.careful-1a2b": "careful run-1"}
    flags.write_text(json.dumps(document))
    for i in range(200):
        rollout, arm = f"r{i}", ("careful-1a2b", "careful")[i % 2]
        traces.call(rollout, input_messages=question("refund", i))
        traces.arm(rollout, arm, 0.5)
        traces.task(rollout, f"task-{i}")
        traces.reward(rollout, float(arm == "careful"))
    traces.store()
    server = serve(numbered)
    result = ask(traces, flags, server)
    assert result.exit_code == 1
    assert "none would be left beside new ones: careful-1a2b. Give a weight to careful." in (
        result.stderr
    )
    assert server.requests == []


def test_nothing_failed_is_nothing_to_learn_from(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    for i in range(12):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", "careful", 0.66)
        traces.reward(f"r{i}", 1.0)
    traces.store()
    server = serve(numbered)
    result = ask(traces, flags, server)
    assert result.exit_code == 3
    assert "no rollout failed" in result.stderr
    assert server.requests == []
