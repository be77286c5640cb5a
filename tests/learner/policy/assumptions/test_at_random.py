"""Frequencies are propensities only of arms that were drawn at random."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.assumptions.at_random import check_ease, check_random

NOON = datetime(2026, 11, 1, hour=12)  # noqa: DTZ001 - the store's UTC has no zone


def rows(  # noqa: PLR0913, PLR0917 - what an arm could depend on
    seed: int,
    by_task: float = 0.5,
    by_time: float = 0.5,
    by_service: float = 0.5,
    by_words: float = 0.5,
    per_task: int = 3,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Log two arms; each number is the probability of arm b where its condition holds."""
    rng, count = np.random.default_rng(seed), 900
    tasks = np.arange(count) // per_task
    easy, newer = rng.random(count)[tasks] < 0.5, np.arange(count) >= count / 2
    desk, refund = rng.random(count) < 0.5, rng.random(count) < 0.5
    odds = np.ones(count)
    for holds, share in (
        (easy, by_task),
        (newer, by_time),
        (desk, by_service),
        (refund, by_words),
    ):
        odds *= np.where(holds, share / (1 - share), (1 - share) / share)
    is_b = rng.random(count) < odds / (1 + odds)
    ids = [f"r{i}" for i in range(count)]
    good = rng.random(count) < np.where(easy, 0.8, 0.2)
    choices = pl.DataFrame(
        {
            "rollout_id": ids,
            "arm": np.where(is_b, "b", "a"),
            "policy_version": pl.Series([None] * count, dtype=pl.String),
            "task": tasks,
            "outcome": good.astype(float),
            "time": [NOON + timedelta(minutes=i) for i in range(count)],
        }
    )
    words = [f"{'refund' if r else 'status'} of order {i % 97}" for i, r in enumerate(refund)]
    services = np.where(desk, "desk", "shop")
    inputs = pl.DataFrame({"rollout_id": ids, "service_name": services, "input": words})
    return choices, inputs


@pytest.mark.slow
def test_arms_that_were_drawn_at_random_are_hardly_ever_refused() -> None:
    refused = 0
    for seed in range(12):
        try:
            check_random(*rows(seed))
        except DataError:
            refused += 1
    assert refused <= 3  # 5 % are allowed; four of 12 or more have a probability of .2 %


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("by_task", "how easy the task is"),
        ("by_time", "the time: the share of an arm changed"),
        ("by_service", "the service"),
        ("by_words", "the words of the input"),
    ],
)
def test_what_the_arm_depends_on_is_named(cause: str, told: str) -> None:
    with pytest.raises(DataError, match="are no propensities, because the arm depends on") as error:
        check_random(*rows(1, **{cause: 0.8}))
    assert told in str(error.value)
    assert "--propensities random" in str(error.value)


def test_task_that_decides_the_arm_is_refused_without_a_reward() -> None:
    choices, inputs = rows(0, by_task=0.9)
    blind = choices.with_columns(outcome=pl.lit(None, pl.Float64))
    with pytest.raises(DataError, match="rollouts of one task have the same arm more often"):
        check_random(blind, inputs)


def test_tasks_with_one_rollout_each_cannot_show_that_arms_are_random() -> None:
    with pytest.raises(DataError, match="Only 0 of 900 rollouts share their task") as error:
        check_random(*rows(0, per_task=1))
    assert "would be a guess" in str(error.value)


def test_share_that_changed_with_the_policy_version_is_no_dependence() -> None:
    choices, inputs = rows(0, by_time=0.9)
    newer = pl.int_range(pl.len()) >= 450
    versions = pl.when(newer).then(pl.lit("v2")).otherwise(pl.lit("v1"))
    check_random(choices.with_columns(policy_version=versions), inputs)


def test_more_rollouts_than_a_permutation_takes_are_sampled() -> None:
    parts = [rows(seed, by_time=0.6)[0] for seed in range(30)]
    many = pl.concat(
        part.with_columns(rollout_id=pl.col("rollout_id") + f"-{i}", task=pl.col("task") + 1000 * i)
        for i, part in enumerate(parts)
    )
    inputs = rows(0)[1].clear()
    with pytest.raises(DataError, match="the time"):
        check_random(many, inputs)


def recorded(choices: pl.DataFrame, propensity: float = 0.5) -> pl.DataFrame:
    """The same choices, with the same propensity of both arms for every input."""
    task = (pl.col("task") * 2**21).cast(pl.UInt64)
    return choices.with_columns(
        task_hash=task, propensity=pl.lit(propensity), policy_version=pl.lit("v1")
    )


def test_recorded_propensities_are_refused_if_the_arm_follows_how_easy_the_task_is() -> None:
    with pytest.raises(DataError, match="from the rewards of the task's earlier rollouts"):
        check_ease(recorded(rows(0, by_task=0.8)[0]))


def test_propensities_that_differ_are_refused_if_they_do_not_say_what_the_arm_follows() -> None:
    """The propensities follow something else, such as a feature of the input."""
    other = pl.Series(np.random.default_rng(1).uniform(0.45, 0.55, 900))
    for seed in range(5):
        choices = recorded(rows(seed, by_task=0.8)[0]).with_columns(propensity=other)
        with pytest.raises(DataError, match="from the rewards of the task's earlier rollouts"):
            check_ease(choices)


@pytest.mark.parametrize("share", [0.8, 0.98])
def test_propensities_that_say_what_the_arm_follows_are_right(share: float) -> None:
    for seed in range(20):
        rng, task = np.random.default_rng(seed), np.arange(900) // 3
        easy = (rng.random(300) < 0.5)[task]
        of_b = np.where(easy, share, 1 - share)
        is_b = rng.random(900) < of_b
        choices = pl.DataFrame(
            {
                "task": task,
                "arm": np.where(is_b, "b", "a"),
                "outcome": (rng.random(900) < np.where(easy, 0.8, 0.2)).astype(float),
                "time": pl.int_range(900, eager=True),
            }
        )
        told = np.where(is_b, of_b, 1 - of_b)
        check_ease(recorded(choices).with_columns(propensity=pl.Series(told)))


def test_arms_kept_for_a_task_are_drawn_regardless_of_its_ease() -> None:
    for seed in range(20):
        choices = recorded(rows(seed)[0])
        check_ease(choices.with_columns(arm=pl.col("arm").first().over("task")))


def test_tasks_that_are_tried_until_they_succeed_are_no_evidence() -> None:
    """The better arm is more often the last one, after failures of others."""
    for seed in range(20):
        rng, tried = np.random.default_rng(seed), []
        for task in range(400):
            for _ in range(4):
                arm = int(rng.integers(2))
                success = rng.random() < (0.3, 0.7)[arm]
                tried.append((task, "ab"[arm], float(success)))
                if success:
                    break
        rows_tried = pl.DataFrame(tried, ["task", "arm", "outcome"], orient="row")
        check_ease(recorded(rows_tried.with_columns(time=pl.int_range(pl.len()))))


def by_hour(seed: int, *, told: bool) -> pl.DataFrame:
    """Log 900 tasks in days of 90; arm b is more frequent by day, when rewards are higher."""
    rng, by_day = np.random.default_rng(seed), np.arange(900) % 90 < 45
    share = np.where(by_day, 0.7, 0.3)
    is_b = rng.random(900) < share
    rewards = rng.random(900) < np.where(by_day, 0.8, 0.2)
    choices = pl.DataFrame(
        {
            "task": np.arange(900),
            "arm": np.where(is_b, "b", "a"),
            "outcome": rewards.astype(float),
            "time": [NOON + timedelta(minutes=i) for i in range(900)],
        }
    )
    right = np.where(is_b, share, 1 - share)
    return recorded(choices).with_columns(propensity=pl.Series(right) if told else pl.lit(0.5))


def test_recorded_propensities_are_refused_if_the_arm_follows_the_hour() -> None:
    with pytest.raises(DataError, match="from the rewards of the rollouts just before"):
        check_ease(by_hour(0, told=False))
    check_ease(by_hour(0, told=True))


@pytest.mark.parametrize("seed", range(20))
def test_rewards_that_follow_the_hour_are_no_evidence_by_themselves(seed: int) -> None:
    choices = by_hour(seed, told=False)
    drawn = pl.Series(np.random.default_rng(seed + 100).permutation(["a", "b"] * 450))
    check_ease(choices.with_columns(arm=drawn))
