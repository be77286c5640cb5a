"""What holds for every credit method, and how methods are named, added and refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_steps import ROLLOUTS, Rollout, apart, together

from otel_lightning.learner.credit import (
    METHODS,
    Options,
    Steps,
    advantages,
    compares,
    ungrouped,
    validate,
)
from otel_lightning.learner.errors import DataError

METHOD = st.sampled_from(sorted(METHODS))
# Two rollouts of one task, and one alone in another.
WORKED = [
    Rollout([0.0, 0.5], outcome=1.0, states=[7, 8], tools=[1.0, -1.0]),
    Rollout([0.0], states=[7]),
    Rollout([0.0, 0.0], outcome=0.25, task=1),
]


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        ("identical", [1.5, 1.5, 0, 0.25, 0.25]),
        ("return_to_go", [0.75, 1.5, 0, 0.125, 0.25]),
        ("intermediate", [0.5, 1.5, 0, 0.125, 0.25]),
        ("tool_outcome", [0.75, 1.25, 0, 0.125, 0.25]),
        ("group", [1.5, 1.5, -1.5, 0, 0]),
        ("anchor_state", [0.75, 0, -0.75, 0, 0]),
        ("group+anchor_state", [1.875, 1.5, -1.875, 0, 0]),
        ("gae", [0.75, 1.5, -0.75, 0, 0]),
    ],
)
def test_method_gives_the_advantages_worked_by_hand(credit: str, expected: list[float]) -> None:
    options = Options(gamma=0.5, lam=1.0, tool_reward=0.25, step_weight=0.5)
    assert advantages(credit, together(WORKED), options).tolist() == expected


@given(METHOD, ROLLOUTS)
def test_method_leaves_what_it_was_given_as_it_was(method: str, rollouts: list[Rollout]) -> None:
    steps, before = together(rollouts), together(rollouts)
    advantages(method, steps, Options())
    for name in Steps.__slots__:
        assert np.array_equal(getattr(steps, name), getattr(before, name))


@given(METHOD, ROLLOUTS, st.integers(0, 9))
def test_advantages_are_the_same_to_the_bit_whatever_other_tasks_are_there(
    method: str, rollouts: list[Rollout], cut: int
) -> None:
    by_task = sorted(rollouts, key=lambda r: r.task)
    here, there = ([r for r in by_task if (r.task == cut % 3) is side] for side in (True, False))
    with_others = apart(advantages(method, together(there + here), Options()), there + here)
    alone = apart(advantages(method, together(here), Options()), here) if here else []
    for one, other in zip(alone, with_others[len(there) :], strict=True):
        assert one == other


@given(ROLLOUTS)
def test_rollouts_of_one_call_are_a_bandit(rollouts: list[Rollout]) -> None:
    pulls = together([Rollout([0.0], outcome=r.outcome, task=r.task) for r in rollouts])
    outcomes = pulls.rewards.tolist()
    for method in ("identical", "return_to_go", "intermediate"):
        assert advantages(method, pulls, Options(gamma=0.5)).tolist() == outcomes
    against_others = advantages("group", pulls, Options())
    assert advantages("gae", pulls, Options(gamma=0.5)) == pytest.approx(against_others, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_method_takes_no_calls_at_all(method: str) -> None:
    empty = np.zeros(0, dtype=np.int64)
    nothing = Steps(np.zeros(0), np.zeros(0), np.zeros(0), empty, empty, empty, empty > 0)
    assert advantages(method, nothing, Options()).shape == (0,)


@given(METHOD, ROLLOUTS)
def test_length_makes_the_calls_of_a_rollout_weigh_as_one_call(
    method: str, rollouts: list[Rollout]
) -> None:
    plain, shared = (
        apart(advantages(method, together(rollouts), Options(length=length)), rollouts)
        for length in ("none", "rollout")
    )
    for before, after in zip(plain, shared, strict=True):
        assert sum(after) == pytest.approx(np.mean(before), abs=1e-9)


def test_ten_calls_weigh_ten_times_one_call_unless_length_says_otherwise() -> None:
    long, short = Rollout([0.0] * 10, outcome=1.0), Rollout([0.0], outcome=1.0)
    weights = {
        length: [sum(part) for part in apart(result, [long, short])]
        for length in ("none", "rollout")
        for result in [advantages("identical", together([long, short]), Options(length=length))]
    }
    assert weights["none"] == [10.0, 1.0]
    assert weights["rollout"] == pytest.approx([1.0, 1.0])


def test_rollouts_alone_in_their_task_are_found_and_neutral_where_rollouts_are_compared() -> None:
    steps = together(WORKED)
    assert ungrouped(steps).tolist() == [False, False, False, True, True]
    for credit in ("group", "anchor_state", "gae", "group+anchor_state"):
        assert compares(credit, Options())
        assert advantages(credit, steps, Options())[3:].tolist() == [0.0, 0.0]
    assert not compares("gae", Options(value="fitted"))
    assert not compares("identical+return_to_go", Options())


def test_unknown_method_is_an_error_that_lists_the_known_and_guesses() -> None:
    expected = (
        r"Unknown credit method 'gea'\. Known: identical, group, .*, tool_outcome\. "
        r"Did you mean 'gae'\?"
    )
    with pytest.raises(DataError, match=expected):
        validate("gea")
    with pytest.raises(DataError, match=r"Unknown credit method 'nonsense'\. Known: [^?]*$"):
        validate("group+nonsense")


@pytest.mark.parametrize("credit", ["gae+group", "group+identical", "group+gae+gae"])
def test_methods_that_cannot_be_added_are_an_error_that_says_which_can(credit: str) -> None:
    with pytest.raises(DataError, match=r"Name one of identical, group, then '\+', then one of "):
        validate(credit)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": "median"}, r"Unknown baseline 'median'\. Known: leave_one_out, mean\."),
        ({"scale": "var"}, r"Unknown scale 'var'\. Known: none, std\."),
        ({"gamma": 1.5}, r"gamma is 1\.5; it must be in \[0, 1\]\."),
        ({"lam": float("nan")}, r"lam is nan; it must be in \[0, 1\]\."),
        ({"step_weight": float("inf")}, r"step_weight is inf; it must be a finite number\."),
    ],
)
def test_option_that_means_nothing_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Options(**options)


@pytest.mark.parametrize("first", ["group", "identical"])
@pytest.mark.parametrize("second", ["anchor_state", "intermediate", "tool_outcome"])
def test_any_method_per_rollout_is_added_to_any_method_per_call(first: str, second: str) -> None:
    assert len(validate(f"{first}+{second}")) == 2
