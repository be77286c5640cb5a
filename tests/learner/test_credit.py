import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from otel_lightning.learner.credit import METHODS

REWARDS = arrays.arrays(np.float64, st.integers(1, 30), elements=st.floats(-9, 9, width=16))

# Rollouts 0, 1 and 2 of the first task end with 1, 0 and 0.5; rollout 3 is alone in the second.
WORKED_REWARDS = np.array([0.0, 1.0, 0.0, 0.5, 0.0, 0.25])
WORKED_ROLLOUTS = np.array([0, 0, 1, 2, 3, 3])
WORKED_TASKS = np.array([0, 0, 0, 0, 1, 1])


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("identical", [1.0, 1.0, 0.0, 0.5, 0.25, 0.25]),
        ("return_to_go", [0.5, 1.0, 0.0, 0.5, 0.125, 0.25]),
        ("group", [0.75, 0.75, -0.75, 0.0, 0.0, 0.0]),
    ],
)
def test_method_gives_the_advantages_worked_by_hand(method: str, expected: list[float]) -> None:
    result = METHODS[method](WORKED_REWARDS, WORKED_ROLLOUTS, WORKED_TASKS, 0.5)
    assert result.tolist() == expected


@pytest.mark.parametrize("method", sorted(METHODS))
def test_method_leaves_the_rewards_as_they_were(method: str) -> None:
    rewards = WORKED_REWARDS.copy()
    METHODS[method](rewards, WORKED_ROLLOUTS, WORKED_TASKS, 0.5)
    assert rewards.tolist() == WORKED_REWARDS.tolist()


@given(REWARDS, st.floats(0, 1))
def test_return_to_go_is_the_discounted_sum_of_what_follows(
    rewards: np.ndarray, gamma: float
) -> None:
    one_rollout = np.zeros(len(rewards), dtype=np.int64)
    returns = METHODS["return_to_go"](rewards, one_rollout, one_rollout, gamma)
    for t in range(len(rewards)):
        powers = gamma ** np.arange(len(rewards) - t)
        assert returns[t] == pytest.approx(powers @ rewards[t:], abs=1e-9)


@given(REWARDS, st.integers(1, 4))
def test_group_advantages_are_against_the_mean_of_the_others(
    outcomes: np.ndarray, tasks: int
) -> None:
    rollouts = np.arange(len(outcomes))
    task = rollouts % tasks
    advantages = METHODS["group"](outcomes, rollouts, task, 1.0)
    for i, advantage in enumerate(advantages):
        others = outcomes[(task == task[i]) & (rollouts != i)]
        expected = outcomes[i] - others.mean() if len(others) else 0.0
        assert advantage == pytest.approx(expected, abs=1e-9)
