from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from otel_lightning.learner.policy.assumptions.drift import drift, live_at_once

NOON = datetime(2026, 11, 1, hour=12)  # noqa: DTZ001 - the store's UTC has no zone


def choices(versions: str, seconds: float) -> pl.DataFrame:
    """One choice a letter, the letter its policy, so many seconds apart from noon on."""
    return pl.DataFrame(
        {
            "rollout_id": [f"r{i:03}" for i in range(len(versions))],
            "policy_version": list(versions),
            "time": [NOON + timedelta(seconds=i * seconds) for i in range(len(versions))],
        },
        schema_overrides={"time": pl.Datetime("ns")},
    )


def test_processes_that_reload_the_file_late_are_not_two_policies_live_at_once() -> None:
    rows = choices("abababab" + "b" * 20, seconds=5)
    assert live_at_once(rows, [(NOON, "promote")]) is None
    told = live_at_once(rows, [])
    assert told is not None
    assert told.startswith("Policies a and b were live at the same time: they took turns 6 times")


def test_processes_that_still_serve_the_former_policy_after_a_minute_are_noticed() -> None:
    told = live_at_once(choices("ab" * 20, seconds=5), [(NOON, "promote")])
    assert told is not None
    assert told.endswith("the last time at 2026-11-01 12:03:15 UTC.")


@pytest.mark.parametrize("rollbacks", [0, 4])
def test_each_recorded_rollback_explains_one_return(rollbacks: int) -> None:
    rows = choices("a" * 9 + "b" * 9 + "a" * 9 + "b" * 9 + "a" * 9 + "b" * 9, seconds=600)
    changes = [(NOON - timedelta(days=1), "rollback")] * rollbacks
    assert (live_at_once(rows, changes) is None) == (rollbacks == 4)


def test_choices_without_a_version_or_a_time_say_nothing() -> None:
    rows = choices("ab" * 20, seconds=5).with_columns(policy_version=pl.lit(None, pl.String))
    assert live_at_once(rows, []) is None


def rewarded(older: np.ndarray, newer: np.ndarray, arms: str = "ab") -> pl.DataFrame:
    """Rollouts whose arms take turns, one a minute, with these rewards."""
    rewards = np.concatenate([older, newer])
    return pl.DataFrame(
        {
            "arm": [arms[i % len(arms)] for i in range(len(rewards))],
            "outcome": rewards.astype(float),
            "propensity": [1 / len(arms)] * len(rewards),
            "time": [NOON + timedelta(minutes=i) for i in range(len(rewards))],
        },
        schema_overrides={"time": pl.Datetime("ns")},
    )


@pytest.mark.parametrize("scale", [0.1, 10.0])
@pytest.mark.parametrize("values", [2, 5, 1000])
def test_rewards_that_are_given_on_another_scale_are_named(scale: float, values: int) -> None:
    rng = np.random.default_rng(values)
    older, newer = (rng.integers(values, size=100) / (values - 1) for _ in range(2))
    older[:2], newer[:2] = (0, 1), (0, 1)
    (told,) = (s for s in drift(rewarded(older, scale * newer)) if "scale" in s)
    assert told.startswith(
        "Drift: the scale of the rewards moved: they are from 0 to 1 in the older half and from 0 "
        f"to {scale:g} in the newer one."
    )


def test_rewards_from_minus_1_instead_of_0_are_another_scale() -> None:
    rng = np.random.default_rng(1)
    older, newer = (rng.integers(2, size=100) for _ in range(2))
    (told,) = (s for s in drift(rewarded(older, 2 * newer - 1)) if "scale" in s)
    assert "from 0 to 1 in the older half and from -1 to 1 in the newer one" in told


@pytest.mark.slow
def test_rewards_of_one_scale_are_not_told_to_have_moved() -> None:
    rng = np.random.default_rng(0)
    kinds = {
        "more of them good": lambda half: rng.random(200) < (0.3, 0.95)[half],
        "heavy tails": lambda half: rng.standard_t(2.5, 200),  # noqa: ARG005 - the same in both
        "rare losses": lambda half: np.where(rng.random(200) < 0.03, -10.0, 0.7),  # noqa: ARG005
        "another mean": lambda half: rng.normal(3 * half, 1, 200),
        "a lottery": lambda half: 20 * (rng.random(200) < 0.02),  # noqa: ARG005
    }
    for kind, draw in kinds.items():
        told = [drift(rewarded(draw(0), draw(1))) for _ in range(80)]
        wrong = sum("scale" in sentence for sentences in told for sentence in sentences)
        assert wrong <= 4, kind  # 5 %


def test_arm_that_is_served_to_other_inputs_than_before_has_not_drifted() -> None:
    """Arm a is worth .9 for easy inputs and .3 for others; then a policy serves it to easy ones."""
    rng, told, plain = np.random.default_rng(0), 0, 0
    for _ in range(50):
        easy, newer = rng.random(800) < 0.5, np.arange(800) >= 400
        of_a = np.where(newer, np.where(easy, 0.9, 0.1), 0.5)
        is_a = rng.random(800) < of_a
        good = rng.random(800) < np.where(is_a & easy, 0.9, 0.3)
        rows = pl.DataFrame(
            {
                "arm": np.where(is_a, "a", "b"),
                "outcome": good.astype(float),
                "propensity": np.where(is_a, of_a, 1 - of_a),
                "time": [NOON + timedelta(minutes=i) for i in range(800)],
            },
            schema_overrides={"time": pl.Datetime("ns")},
        )
        told += len(drift(rows))
        plain += len(drift(rows.with_columns(propensity=pl.lit(0.5))))
    assert told <= 2
    assert plain >= 40  # the plain means do move


@pytest.mark.parametrize("versions", [1, 8])
def test_arms_that_did_not_move_are_hardly_ever_named_however_many_and_however_clustered(
    versions: int,
) -> None:
    """20 arms; each task is easy or hard for all of its 20 rollouts, and lies in one half."""
    rng, told = np.random.default_rng(0), 0
    for _ in range(40):
        task = np.arange(1200) // 20
        good = rng.random(1200) < np.where(rng.random(60) < 0.5, 0.9, 0.1)[task]
        rows = pl.DataFrame(
            {
                "arm": rng.integers(20, size=1200).astype(str),
                "outcome": good.astype(float),
                "propensity": [0.05] * 1200,
                "task": task,
                "policy_version": (np.arange(1200) * versions // 1200).astype(str),
                "time": [NOON + timedelta(minutes=i) for i in range(1200)],
            },
            schema_overrides={"time": pl.Datetime("ns")},
        )
        told += any("mean reward" in sentence for sentence in drift(rows))
    assert told <= 4  # 10 %


@pytest.mark.parametrize("tasks", [1, 4])
def test_few_tasks_with_many_rollouts_are_not_compared(tasks: int) -> None:
    """Their standard error over tasks is about 0, so any difference would be beyond it."""
    rng = np.random.default_rng(0)
    rows = rewarded(rng.random(60) < 0.4, rng.random(60) < 0.6, "a")
    few = rows.with_columns(task=pl.int_range(pl.len()) % tasks)
    assert not [s for s in drift(few) if "mean reward" in s]


def test_few_rollouts_with_large_weights_are_not_compared() -> None:
    """Two rollouts of probability .001 decide the mean of each half."""
    rng = np.random.default_rng(0)
    rows = rewarded(rng.random(60) < 0.2, rng.random(60) < 0.8, "a")
    rare = pl.when(pl.int_range(pl.len()) % 30 == 0).then(0.001).otherwise(0.9)
    assert [s for s in drift(rows) if "mean reward" in s]
    assert not [s for s in drift(rows.with_columns(propensity=rare)) if "mean reward" in s]
