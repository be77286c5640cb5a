"""GRPO, Dr. GRPO and RLOO against their definitions and other implementations."""

from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_steps import ROLLOUTS, Rollout, apart, together

from otel_lightning.learner.credit import METHODS, Options
from otel_lightning.learner.credit.compare import EPSILON

GRPO = Options(baseline="mean", scale="std")
DR_GRPO = Options(baseline="mean", scale="none")
RLOO = Options(baseline="leave_one_out", scale="none")
STEADY_RLOO = Options(baseline="leave_one_out", scale="std")


def literal(rollouts: list[Rollout], i: int, options: Options) -> float:
    """The advantage of rollout i as the papers write it."""
    returns = {j: sum(r.earned) for j, r in enumerate(rollouts) if r.task == rollouts[i].task}
    if len(returns) == 1:
        return 0.0
    others = [value for j, value in returns.items() if j != i]
    baseline = mean(others if options.baseline == "leave_one_out" else returns.values())
    deviation = stdev(returns.values()) + EPSILON if options.scale == "std" else 1.0
    return (returns[i] - baseline) / deviation


@given(ROLLOUTS, st.sampled_from([GRPO, DR_GRPO, RLOO, STEADY_RLOO]))
def test_group_is_the_return_against_the_rollouts_of_the_task(
    rollouts: list[Rollout], options: Options
) -> None:
    results = apart(METHODS["group"](together(rollouts), options), rollouts)
    for i, result in enumerate(results):
        assert result == pytest.approx([literal(rollouts, i, options)] * len(result), abs=1e-6)


@given(ROLLOUTS, st.sampled_from([GRPO, DR_GRPO, RLOO]))
def test_advantages_of_a_task_add_up_to_nothing_whatever_the_lengths(
    rollouts: list[Rollout], options: Options
) -> None:
    results = apart(METHODS["group"](together(rollouts), options), rollouts)
    for task in {r.task for r in rollouts}:
        of_task = [a[0] for r, a in zip(rollouts, results, strict=True) if r.task == task]
        assert sum(of_task) == pytest.approx(0.0, abs=1e-6)


def test_equal_returns_that_differ_by_rounding_are_not_blown_up_by_the_deviation() -> None:
    equal = [Rollout([0.1, 0.2]), Rollout([0.3]), Rollout([0.1, 0.1, 0.1])]
    assert np.abs(METHODS["group"](together(equal), GRPO)).max() < 1e-9
