"""Rollouts to transitions: (observation, action, reward, next observation, terminated, truncated).

One row a model call that said something in a rollout with a reward. The rows are narrow; the
view `transitions` joins the text when it is asked for.
"""

from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import polars as pl

from otel_lightning.collector.store import Store, open_store
from otel_lightning.learner.credit import METHODS
from otel_lightning.learner.credit.return_to_go import return_to_go
from otel_lightning.learner.progress import Progress
from otel_lightning.learner.rewards import CALL, outcomes, place, select, shuffle
from otel_lightning.learner.runs import Run, fingerprint
from otel_lightning.learner.splits import HELD_OUT, TRAIN, split_of
from otel_lightning.learner.tables import arrow, read

COLUMNS = (
    "rollout_id",
    "step",
    "trace_id",
    "span_id",
    "agent_name",
    "task_id",
    "split",
    "state_hash",
    "arm_key",
    "arm",
    "propensity",
    "behavior_logprob",
    "policy_version",
    "reward",
    "return_to_go",
    "advantage",
    "terminated",
    "truncated",
    "next_span_id",
)


@dataclass(frozen=True, slots=True)
class Tables:
    """What transitions are built from, as the store has it."""

    calls: pl.DataFrame
    rewards: pl.DataFrame
    rollouts: pl.DataFrame
    arms: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Settings:
    """How transitions are built."""

    reward: str | None = None
    credit: str = "identical"
    gamma: float = 1.0
    held_out: float = 0.3
    shuffle_rewards: int | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """What was built, in numbers."""

    rollouts: int
    rewarded: int
    transitions: int
    train: int
    heldout: int
    mean_reward: float


def make_transitions(store: str, settings: Settings) -> Summary:
    """Build the transitions of a store and put them in the place of the former ones.

    Args:
        store: Location of the store.
        settings: Which reward, which credit, which split.

    Returns:
        What was built.

    Raises:
        DataError: If no rollout has a reward, or a reward is not a finite number.
        StoreError: If the store cannot be read or written.
    """
    run, progress = Run("transitions", asdict(settings)), Progress("Transitions", 3)
    with open_store(store, create=False) as opened:
        tables = read_tables(opened)
        progress.report(1, "read")
        rows = build(tables, settings)
        progress.report(2, "built")
        summary = summarize(tables, rows)
        opened.replace("transition_rows", arrow(rows))
        progress.report(3, "written")
        ended = run.ended(
            outcome="done",
            fingerprint=fingerprint(rows),
            metrics=asdict(summary),
            artifact="transition_rows",
        )
        opened.insert("runs", arrow(ended))
    return summary


def read_tables(store: Store) -> Tables:
    """Read what transitions are built from."""
    calls, rewards, rollouts, arms = (
        read(store, name) for name in ("calls", "rewards", "rollouts", "arms")
    )
    return Tables(calls, rewards, rollouts, arms)


def build(tables: Tables, settings: Settings) -> pl.DataFrame:
    """Build the rows of `transition_rows`.

    Args:
        tables: Calls, rewards, rollouts and arms.
        settings: Which reward, which credit, which split.

    Returns:
        One row a transition, in the order of rollout and step.

    Raises:
        DataError: If no rollout has a reward, or a reward is not a finite number.
    """
    calls = tables.calls.lazy()
    placed = place(calls, select(tables.rewards, settings.reward).lazy())
    if settings.shuffle_rewards is not None:
        placed = shuffle(calls, placed, settings.shuffle_rewards)
    rows = (
        calls.filter("has_completion")
        .join(outcomes(placed), on="rollout_id", how="semi")
        .join(placed, on=CALL, how="left")
        .with_columns(pl.col("reward").fill_null(0.0))
        .join(with_split(tables, settings.held_out), on="rollout_id")
        .join(first_arms(tables.arms.lazy()), on="rollout_id", how="left")
        .sort("rollout_id", "step", "span_id")
        .with_columns(**_ends())
    )
    return _with_credit(rows.collect(), settings).select(COLUMNS)


def with_split(tables: Tables, held_out: float) -> pl.LazyFrame:
    """Name the task and the split of each rollout.

    Rollouts without a task id are of one task when they begin in the same state.

    Returns:
        Columns rollout_id, task_id, outcome, task, split.
    """
    begins = tables.calls.lazy().sort("step").group_by("rollout_id")
    task = pl.coalesce("task_id", "first_state", "rollout_id")
    split = pl.col("task").map_elements(
        partial(split_of, held_out=held_out), return_dtype=pl.String
    )
    return (
        tables.rollouts.lazy()
        .join(begins.agg(first_state=pl.first("state_hash")), on="rollout_id", how="left")
        .with_columns(task=task)
        .with_columns(split=split)
        .drop("first_state")
    )


def first_arms(arms: pl.LazyFrame) -> pl.LazyFrame:
    """Keep the first choice of each rollout.

    Returns:
        Columns rollout_id, arm_key, arm, propensity, policy_version.
    """
    return (
        arms.sort("time", "key", "arm", nulls_last=True)
        .unique("rollout_id", keep="first", maintain_order=True)
        .select("rollout_id", "arm", "propensity", "policy_version", arm_key="key")
    )


def summarize(tables: Tables, rows: pl.DataFrame) -> Summary:
    """Count what was built and what was left out."""
    rollouts = rows.group_by("rollout_id").agg(pl.first("split"), pl.sum("reward"))
    return Summary(
        rollouts=tables.calls["rollout_id"].n_unique(),
        rewarded=rollouts.height,
        transitions=rows.height,
        train=rollouts.filter(split=TRAIN).height,
        heldout=rollouts.filter(split=HELD_OUT).height,
        mean_reward=float(rollouts["reward"].to_numpy().mean()) if rollouts.height else np.nan,
    )


def _ends() -> dict[str, pl.Expr]:
    following = pl.col("span_id").shift(-1).over("rollout_id")
    is_last = following.is_null()
    return {
        "next_span_id": following,
        "terminated": is_last & (pl.col("outcome") == "terminated"),
        "truncated": is_last & (pl.col("outcome") == "truncated"),
    }


def _with_credit(rows: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    rewards = rows["reward"].to_numpy().astype(np.float64)
    rollouts = rows["rollout_id"].rle_id().to_numpy().astype(np.int64)
    tasks = (rows["task"].rank("dense").to_numpy() - 1).astype(np.int64)
    arrays = (rewards, rollouts, tasks, settings.gamma)
    return rows.with_columns(
        return_to_go=pl.Series(return_to_go(*arrays)),
        advantage=pl.Series(METHODS[settings.credit](*arrays)),
    )
