"""A log whose tasks were each recorded several times counts each task once."""

import numpy as np
import polars as pl
import pytest

from otel_lightning.learner.policy.assumptions.multiples import with_multiples_as_one
from otel_lightning.learner.policy.assumptions.units import NO_UNITS

ARMS = np.array(["brief", "careful", "long"])


def drawn(rng: np.random.Generator, tasks: int, per_task: int = 1) -> pl.DataFrame:
    """Draw tasks with binary rewards, each rollout with an arm of its own."""
    count = tasks * per_task
    arms = rng.integers(3, size=count)
    return pl.DataFrame(
        {
            "original": np.arange(count) // per_task,
            "arm": ARMS[arms],
            "outcome": (rng.random(count) < 0.3 + 0.2 * arms).astype(float),
            "propensity": np.full(count, 1 / 3),
            "policy_version": ["v1"] * count,
        }
    )


def recorded(rng: np.random.Generator, rows: pl.DataFrame, often: int) -> pl.DataFrame:
    """Record each task several times, with ids of its own, in an order by chance."""
    copies = pl.concat([rows.with_columns(copy=pl.lit(copy)) for copy in range(often)])
    task = pl.struct("original", "copy").hash()
    return copies.with_columns(task_hash=task).sample(
        fraction=1.0, shuffle=True, seed=int(rng.integers(1000))
    )


@pytest.mark.parametrize(("tasks", "per_task"), [(120, 1), (40, 3)])
@pytest.mark.parametrize("often", [10, 50])
def test_copies_without_texts_count_once(tasks: int, per_task: int, often: int) -> None:
    rng = np.random.default_rng(0)
    rows = recorded(rng, drawn(rng, tasks, per_task), often)
    merged, units = with_multiples_as_one(rows, NO_UNITS)
    assert merged["task_hash"].n_unique() == tasks
    assert (units.copies, units.before, units.after) == (often, tasks * often, tasks)
    assert f"{tasks * often:,} tasks count as {tasks}" in " ".join(units.notes)
    contents = merged.group_by("task_hash").agg(pl.n_unique("arm"), pl.len())
    assert contents["len"].to_list() == [per_task * often] * tasks
    assert contents["arm"].max() <= per_task


def test_a_few_lost_copies_do_not_hide_the_others() -> None:
    rng = np.random.default_rng(1)
    rows = recorded(rng, drawn(rng, 100, 5), 4)
    lost = rows["task_hash"].unique(maintain_order=True)[:3]
    merged, units = with_multiples_as_one(rows.filter(~pl.col("task_hash").is_in(lost)), NO_UNITS)
    assert units.copies == 4
    assert 100 <= merged["task_hash"].n_unique() <= 103


@pytest.mark.parametrize(("tasks", "per_task"), [(60, 1), (600, 1), (200, 3), (100, 6)])
def test_tasks_that_were_drawn_once_are_hardly_ever_taken_for_copies(
    tasks: int, per_task: int
) -> None:
    """Chance may take a log in a thousand: of 200, with three deviations, 1."""
    found = sum(
        with_multiples_as_one(recorded(rng, drawn(rng, tasks, per_task), 1), NO_UNITS)[1].copies > 1
        for rng in map(np.random.default_rng, range(200))
    )
    assert found <= 1


def test_arms_given_in_turn_are_no_copies_because_they_are_balanced() -> None:
    """Each arm ran 120 times and its rewards are fixed: only balance makes multiples of 20."""
    rows = pl.DataFrame(
        {
            "arm": np.repeat(ARMS, 120),
            "outcome": np.concatenate([np.arange(120) < wins for wins in (20, 60, 100)]) * 1.0,
            "propensity": np.full(360, 1 / 3),
            "policy_version": ["v1"] * 360,
            "task_hash": pl.Series(range(360), dtype=pl.UInt64),
        }
    )
    assert with_multiples_as_one(rows, NO_UNITS)[1] == NO_UNITS
    drawn_unevenly = rows.with_columns(propensity=pl.lit(0.3))
    assert with_multiples_as_one(drawn_unevenly, NO_UNITS)[1].copies > 1
