import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support.logged_choices import SUCCESS, UNIFORM, at, learn, log, propose, with_variants

from otel_lightning.learner.cli import cli

if TYPE_CHECKING:
    from conftest import Traces


@pytest.mark.parametrize("told", ["nowhere.toml", "may serve fewer than two variants"])
def test_bad_settings_are_refused_before_a_rule_is_applied(
    traces: "Traces", flag_file: Path, tmp_path: Path, told: str
) -> None:
    log(traces, SUCCESS, rollouts=40)
    features = ["--features", "nowhere.toml"] if told == "nowhere.toml" else []
    if not features:
        document = json.loads(flag_file.read_text())
        weights = [["brief", 1], ["friendly", 0], ["careful", 0]]
        document["flags"]["support-prompt"]["targeting"]["fractional"] = weights
        flag_file.write_text(json.dumps(document))
    rule = tmp_path / "rule.sql"
    rule.write_text("SELECT rollout_id, 1.0 AS value FROM rollouts")
    result = propose(traces, flag_file, "--reward", str(rule), *features)
    assert result.exit_code == (2 if features else 1)
    assert told in result.stderr
    assert traces.ask("SELECT * FROM scores") == []


def test_rollouts_of_none_of_the_variants_in_the_file_teach_nothing(
    traces: "Traces", flag_file: Path
) -> None:
    """The flag file of another agent, or all variants were renamed."""
    log(traces, SUCCESS, rollouts=200)
    with_variants(flag_file, {"short": 1, "long": 1, "brief": 0})
    before = flag_file.read_text()
    result = learn(traces, flag_file)
    assert result.exit_code == 1
    assert "is of a variant in" in result.stderr
    assert "which has: short, long. The rollouts are of: brief, careful, friendly." in result.stderr
    assert "or give the flag file that was served." in result.stderr
    assert flag_file.read_text() == before
    assert traces.ask("SELECT * FROM policies") == []


SERVES_NOTHING = {
    "is disabled, so no variant would be served. Set its state": {"state": "DISABLED"},
    "serves nothing: it has no targeting and no default": {"targeting": {}, "defaultVariant": None},
}


@pytest.mark.parametrize("told", SERVES_NOTHING)
@pytest.mark.parametrize("command", ["policy", "evaluate"])
def test_flag_that_serves_nothing_has_no_live_policy_to_beat(
    traces: "Traces", flag_file: Path, told: str, command: str
) -> None:
    """The whole value of the new policy passed for its gain."""
    log(traces, SUCCESS, rollouts=40)
    document = json.loads(flag_file.read_text())
    document["flags"]["support-prompt"] |= SERVES_NOTHING[told]
    flag_file.write_text(json.dumps(document))
    where = ["--store", traces.store(), "--key", "support-prompt", "--flags", str(flag_file)]
    result = CliRunner().invoke(cli, [command, *where], catch_exceptions=False)
    assert result.exit_code == 1
    assert told in result.stderr
    assert traces.ask("SELECT * FROM policies") == []


def test_evaluating_a_flag_file_whose_variants_nobody_logged_is_refused(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS, rollouts=40)
    with_variants(flag_file, {"short": 1, "long": 1, "brief": 0})
    where = ["--store", traces.store(), "--key", "support-prompt", "--flags", str(flag_file)]
    result = CliRunner().invoke(cli, ["evaluate", *where], catch_exceptions=False)
    assert result.exit_code == 1
    assert "which has: short, long. The rollouts are of: brief, careful" in result.stderr


def one_rollout(traces: "Traces", arm: str = "brief", propensity: float | None = 0.5) -> None:
    traces.call(arm)
    traces.arm(arm, arm, propensity)
    traces.reward(arm, 1.0)


def no_reward(traces: "Traces") -> None:
    traces.call("a")
    traces.arm("a", "brief", 0.5)


def no_choices(traces: "Traces") -> None:
    traces.call("careful")
    traces.reward("careful", 1.0)


def other_rewarded(traces: "Traces") -> None:
    no_reward(traces)
    traces.call("b")
    traces.reward("b", 1.0)


def other_key(traces: "Traces") -> None:
    traces.call("a")
    traces.arm("a", "brief", 0.5, key="greeting")
    traces.reward("a", 1.0)


def constant_rewards(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "careful")


def no_propensity(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "careful", None)


def impossible_propensity(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "careful", 0.0)


def propensity_above_1(traces: "Traces") -> None:
    one_rollout(traces)
    one_rollout(traces, "careful", 1.5)


def reward_is_nan(traces: "Traces") -> None:
    one_rollout(traces)
    traces.call("careful")
    traces.arm("careful", "careful", 0.5)
    traces.reward("careful", float("nan"))


@pytest.mark.parametrize(
    ("story", "message"),
    [
        (no_reward, "No rollout in the store has a reward"),
        (other_rewarded, "No rollout with a choice for flag 'support-prompt' has a reward."),
        (other_rewarded, "by a rule: --reward FILE.py:FUNCTION"),
        (other_key, "The store has no choices for flag 'support-prompt'. It has: greeting."),
        (no_choices, "It has none of any flag. Let the agent evaluate the flag by OpenFeature"),
        (one_rollout, "Only arm 'brief' of flag 'support-prompt' was tried"),
        (constant_rewards, "All 2 rewards for flag 'support-prompt' are 1, so they say nothing"),
        (no_propensity, "None of 1 choice of arm 'careful' for flag 'support-prompt' has a"),
        (
            impossible_propensity,
            "Rollout 'careful' has a propensity of 0 for flag 'support-prompt', and 1 of 2 choices",
        ),
        (propensity_above_1, "Rollout 'careful' has a propensity of 1.5 for flag"),
        (reward_is_nan, "Reward 'task_success' of rollout 'careful' is nan."),
    ],
)
def test_what_cannot_be_learned_from_is_one_sentence_and_exit_code_1(
    traces: "Traces", flag_file: Path, story: Any, message: str
) -> None:
    story(traces)
    before = flag_file.read_bytes()
    result = learn(traces, flag_file)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert flag_file.read_bytes() == before
    assert traces.ask("SELECT * FROM policies") == []
    (run,) = traces.ask("SELECT command, outcome, metrics FROM runs")
    assert (run["command"], run["outcome"]) == ("policy", "failed")
    assert message in json.loads(run["metrics"])["error"]


def test_choice_without_a_propensity_is_left_out_and_counted(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS)
    one_rollout(traces, "careful", None)
    result = learn(traces, flag_file)
    assert result.exit_code == 0
    assert "1 choice without a propensity left out." in result.output


def test_propensities_can_be_estimated_from_frequencies_and_the_output_says_so(
    traces: "Traces", flag_file: Path
) -> None:
    rng = random.Random(4)  # noqa: S311 - sampling, not cryptography
    for i in range(600):
        rollout, arm = f"f-{i}", rng.choice(list(UNIFORM))
        traces.call(rollout)
        traces.arm(rollout, arm, None)
        traces.task(rollout, f"task-{i // 3}")
        traces.reward(rollout, float(rng.random() < SUCCESS[arm]))
    assert "or estimate them with --propensities frequencies" in learn(traces, flag_file).stderr
    result = learn(traces, flag_file, "--propensities", "frequencies", "--held-out", "0.5")
    assert result.exit_code == 0, result.output
    assert "Propensities: 600 from frequencies." in result.output


def test_frequencies_that_the_input_could_explain_are_refused_unless_arms_are_said_to_be_random(
    traces: "Traces", flag_file: Path
) -> None:
    rng = random.Random(4)  # noqa: S311 - sampling, not cryptography
    for i in range(600):
        rollout, easy = f"f-{i}", i % 6 < 3
        weights = (6, 1, 1) if easy else (1, 1, 6)
        arm = rng.choices(list(UNIFORM), weights)[0]
        traces.call(rollout)
        traces.arm(rollout, arm, None)
        traces.task(rollout, f"task-{i // 3}")
        traces.reward(rollout, float(rng.random() < (0.9 if easy else 0.2)))
    result = learn(traces, flag_file, "--propensities", "frequencies")
    assert result.exit_code == 1
    assert "because the arm depends on how easy the task is" in result.stderr
    output = learn(traces, flag_file, "--propensities", "random").stdout
    assert (
        "600 from frequencies of arms that were drawn at random, as --propensities random" in output
    )


def test_two_policies_that_took_turns_are_refused_by_name(
    traces: "Traces", flag_file: Path
) -> None:
    for i in range(200):
        arm = ("brief", "careful")[i % 3 == 0]
        traces.call(f"r{i:03}")
        traces.task(f"r{i:03}", f"task-{i}")
        traces.arm(f"r{i:03}", arm, 0.5, policy_version=f"v{i % 2}", time=at(i))
        traces.reward(f"r{i:03}", float(i % 3 == 0))
    before = flag_file.read_bytes()
    result = learn(traces, flag_file, "--reward-range", "0,1")
    assert result.exit_code == 1
    assert "Policies v0 and v1 were live at the same time: they took turns 198 times" in (
        result.stderr
    )
    assert "the last time at 2026-11-01 08:19:00 UTC" in result.stderr
    assert "leave out with --since" in result.stderr
    assert flag_file.read_bytes() == before
    one = ("--since", "2026-11-01 08:19:00")
    assert "live at the same time" not in learn(traces, flag_file, *one).stderr


def test_version_that_came_back_by_a_rollback_is_not_two_live_at_once(
    traces: "Traces", flag_file: Path
) -> None:
    for i in range(300):
        arm = ("brief", "careful")[i % 3 == 0]
        version = "v1" if 100 <= i < 200 else "v0"
        traces.call(f"r{i:03}")
        traces.task(f"r{i:03}", f"task-{i}")
        traces.arm(f"r{i:03}", arm, 0.5, policy_version=version, time=at(i))
        traces.reward(f"r{i:03}", float(i % 3 == 0))
    assert "live at the same time" not in learn(traces, flag_file).output


def test_reward_too_large_to_compute_with_is_named(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    traces.call("huge")
    traces.arm("huge", "brief", 1 / 3)
    traces.reward("huge", 1e300)
    result = learn(traces, flag_file)
    assert result.exit_code == 1
    assert "Rollout 'huge' has a reward of 1e+300, and 1 of 601 rollouts" in result.stderr


def test_note_says_that_frequencies_do_not_see_the_input(traces: "Traces", flag_file: Path) -> None:
    log(traces, SUCCESS)
    output = learn(traces, flag_file, "--propensities", "frequencies").output
    assert "Frequencies are propensities only if no variant was chosen by the input" in output


def test_nothing_held_out_is_one_sentence_without_numbers(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS)
    result = learn(traces, flag_file, "--held-out", "0")
    assert result.exit_code == 3
    assert "Held out: no rollout, so nothing was judged." in result.stdout
    assert (
        "To pass: hold tasks out: collect rollouts of more tasks, or raise --held-out."
        in result.stderr
    )
    assert "nan" not in result.output
