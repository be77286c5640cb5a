import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.logged_choices import SUCCESS, UNIFORM, learn, log, propose

if TYPE_CHECKING:
    from conftest import Traces


@pytest.mark.parametrize("values", [(0.0, 1.0), (1.0, 1.0)])
def test_contradictory_rewards_are_told_apart_from_missing_ones(
    traces: "Traces", flag_file: Path, values: tuple[float, float]
) -> None:
    log(traces, SUCCESS, rollouts=200)
    traces.call("more")
    traces.arm("more", "brief", 1 / 3)
    for value in values:
        traces.reward("more", value)
    output = propose(traces, flag_file).output
    assert ("1 rollout has contradictory rewards" in output) == (values[0] != values[1])


def missing_failures(traces: "Traces", success: float = 0.5) -> None:
    """Failures of 'careful' leave no reward."""
    rng = random.Random(1)  # noqa: S311 - sampling, not cryptography
    for i in range(300):
        rollout, arm = f"m-{i:04}", rng.choice(list(UNIFORM))
        good = rng.random() < success
        traces.call(rollout)
        traces.arm(rollout, arm, UNIFORM[arm])
        if good or arm != "careful":
            traces.reward(rollout, float(good))


def test_rewards_that_are_missing_for_one_arm_are_refused_by_name_and_number(
    traces: "Traces", flag_file: Path
) -> None:
    missing_failures(traces)
    result = learn(traces, flag_file)
    assert result.exit_code == 1
    assert "Rewards are missing more often for one arm than for another" in result.stderr
    assert "'careful' 57.7% of 97" in result.stderr
    assert "'brief' 0.0% of" in result.stderr


def test_missing_reward_can_be_the_worst_one(traces: "Traces", flag_file: Path) -> None:
    missing_failures(traces)
    result = learn(traces, flag_file, "--missing", "worst")
    assert result.exit_code == 3
    assert "counted as the worst reward" in result.output
    (row,) = [line for line in result.output.splitlines() if "careful" in line and "33.33%" in line]
    assert float(row.split("│")[3]) < 0.7


@pytest.mark.parametrize(("treatment", "mean"), [("drop", 1.0), ("0.5", 0.75)])
def test_missing_reward_can_be_dropped_or_a_number(
    traces: "Traces", flag_file: Path, treatment: str, mean: float
) -> None:
    missing_failures(traces)
    result = propose(traces, flag_file, "--missing", treatment)
    (row,) = [line for line in result.output.splitlines() if "careful" in line and "33.33%" in line]
    assert float(row.split("│")[3]) == pytest.approx(mean, abs=0.06)


def test_rewards_that_are_missing_evenly_are_left_out_and_counted(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, {**SUCCESS, "careful": 0.9})
    for i, arm in enumerate(list(UNIFORM) * 10):
        traces.call(f"none-{i}")
        traces.arm(f"none-{i}", arm, 1 / 3)
        traces.task(f"none-{i}", f"task-{i}")
    result = propose(traces, flag_file, "--held-out", "0.5")
    assert result.exit_code == 0, result.output
    assert "Rollouts without a reward: brief" in result.output


def test_rewards_that_are_missing_evenly_could_still_hide_a_loss(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, SUCCESS)
    for i, arm in enumerate(list(UNIFORM) * 70):
        traces.call(f"none-{i}")
        traces.arm(f"none-{i}", arm, 1 / 3)
        traces.task(f"none-{i}", f"task-{i}")
    before = flag_file.read_bytes()
    result = learn(traces, flag_file, "--held-out", "0.5")
    assert result.exit_code == 3
    assert "held-out rollouts have no reward: if the arms that gain traffic failed" in result.stderr
    assert "say with --missing what a missing one means" in result.stderr
    assert flag_file.read_bytes() == before
    result = learn(traces, flag_file, "--held-out", "0.5", "--missing", "drop")
    assert result.exit_code == 0, result.output


def test_rare_large_losses_need_the_range_of_the_rewards(traces: "Traces", flag_file: Path) -> None:
    rng = random.Random(2)  # noqa: S311 - sampling, not cryptography
    for i in range(400):
        rollout, arm = f"r-{i:04}", rng.choice(list(UNIFORM))
        traces.call(rollout)
        traces.arm(rollout, arm, UNIFORM[arm])
        traces.reward(rollout, {"brief": 0.2, "friendly": 0.3, "careful": 0.7}[arm])
    unknown = learn(traces, flag_file)
    assert unknown.exit_code == 3
    assert "a rare loss that was not logged yet could be of any size: give the" in unknown.stderr
    assert learn(traces, flag_file, "--reward-range", "0,1").exit_code == 0
    outside = learn(traces, flag_file, "--reward-range", "0,0.5")
    assert outside.exit_code == 1
    assert "A reward of 0.7 was logged, which is outside --reward-range 0,0.5" in outside.stderr


def test_losses_that_happen_not_to_be_logged_are_no_proof(
    traces: "Traces", flag_file: Path
) -> None:
    """Of 300 steady rewards of an arm, none need be a loss of 50 that comes in .4 %."""
    rng = random.Random(3)  # noqa: S311 - sampling, not cryptography
    for i in range(900):
        rollout, arm = f"h-{i:04}", rng.choice(list(UNIFORM))
        traces.call(rollout)
        traces.arm(rollout, arm, UNIFORM[arm])
        traces.reward(rollout, rng.gauss(0.7 if arm == "careful" else 0.6, 0.05))
    result = learn(traces, flag_file)
    assert result.exit_code == 3
    assert "the rewards are not all 0 or 1" in result.stderr
    assert learn(traces, flag_file, "--reward-range", "0,1").exit_code == 0


@pytest.mark.parametrize("missing", [(), ("--missing", "worst")], ids=["default", "worst"])
def test_rewards_that_are_all_nan_are_refused_and_say_which_reward(
    traces: "Traces", flag_file: Path, missing: tuple[str, ...]
) -> None:
    for i in range(60):
        traces.call(f"r{i:02}")
        traces.arm(f"r{i:02}", ("brief", "careful")[i % 2], 0.5)
        traces.reward(f"r{i:02}", float("nan"))
    before = flag_file.read_bytes()
    result = learn(traces, flag_file, *missing)
    assert result.exit_code == 1
    assert "Reward 'task_success' of rollout 'r00' is nan. Send it again with a finite number" in (
        result.stderr
    )
    assert flag_file.read_bytes() == before


@pytest.mark.parametrize("treatment", ["nan", "inf", "guess"])
def test_missing_reward_is_never_replaced_by_what_is_no_number(
    traces: "Traces", flag_file: Path, treatment: str
) -> None:
    log(traces, SUCCESS)
    traces.call("unrewarded")
    traces.arm("unrewarded", "brief", 1 / 3)
    result = learn(traces, flag_file, "--missing", treatment)
    assert result.exit_code == 1
    assert f"Unknown treatment '{treatment}' of missing rewards" in result.stderr


@pytest.mark.parametrize("crashing", [["careful"], list(UNIFORM)])
def test_attempts_that_were_lost_for_one_arm_only_are_refused(
    traces: "Traces", flag_file: Path, crashing: list[str]
) -> None:
    """Rollouts of `lightning-learn run`: what was lost has no reward, and was repeated."""
    rng = random.Random(2)  # noqa: S311 - sampling, not cryptography
    for i in range(300):
        arm = rng.choice(list(UNIFORM))
        for attempt in range(3):
            rollout = f"r-{i:04}-a{attempt}"
            lost = arm in crashing and rng.random() < 0.3
            traces.call(rollout)
            traces.arm(rollout, arm, UNIFORM[arm])
            traces.task(rollout, f"task-{i // 4}")
            traces.attempt(rollout, "lost" if lost else "ok", arm)
            if not lost:
                traces.reward(rollout, float(rng.random() < SUCCESS[arm]))
                break
    result = propose(traces, flag_file)
    told = "Attempts were lost more often for one arm than for another"
    assert (told in result.stderr) == (len(crashing) == 1), result.output
    if len(crashing) == 1:
        assert result.exit_code == 1
        assert "'brief' 0.0% of" in result.stderr
        assert propose(traces, flag_file, "--missing", "drop").exit_code != 1
