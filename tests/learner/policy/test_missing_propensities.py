import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.logged_choices import UNIFORM, propose

if TYPE_CHECKING:
    from conftest import Traces

LIVE = "brief"


def log(traces: "Traces", *, because_of_rewards: bool, arms: int = 3) -> None:
    """Log three arms that succeed equally often; a third of the propensities of some is lost.

    If it is because of the rewards, they are those of the live arm's successes and of the other
    arms' failures, so that the others look better.
    """
    rng = random.Random(3)  # noqa: S311 - sampling, not cryptography
    names = list(UNIFORM)
    for i in range(900):
        rollout, arm, good = f"r-{i:04}", rng.choice(names), rng.random() < 0.5
        at_risk = good == (arm == LIVE) if because_of_rewards else rng.random() < 0.5
        lost = rng.random() < 0.6 and at_risk and arm in names[:arms]
        traces.call(rollout)
        traces.task(rollout, f"task-{i // 3}")
        traces.arm(rollout, arm, None if lost else UNIFORM[arm], policy_version=None)
        traces.reward(rollout, float(good))


def test_propensities_that_are_missing_because_of_the_reward_are_refused(
    traces: "Traces", flag_file: Path
) -> None:
    log(traces, because_of_rewards=True)
    result = propose(traces, flag_file)
    assert result.exit_code == 1
    assert "Of arm 'brief' " in result.stderr
    assert " choices have no propensity and a mean reward of 1.0000; the other" in result.stderr
    assert propose(traces, flag_file, "--task-by", "id").exit_code in {0, 3}


@pytest.mark.parametrize(("because_of_rewards", "arms"), [(False, 3), (True, 1)])
def test_propensities_that_are_missing_by_chance_or_of_the_default_only_are_left_out(
    traces: "Traces", flag_file: Path, *, because_of_rewards: bool, arms: int
) -> None:
    log(traces, because_of_rewards=because_of_rewards, arms=arms)
    result = propose(traces, flag_file)
    assert "no propensity and a mean reward" not in result.stderr
    assert because_of_rewards or "choices without a propensity left out" in result.output
