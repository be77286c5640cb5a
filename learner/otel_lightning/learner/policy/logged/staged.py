"""Read each rollout's first choice for a flag, with its task and its outcome.

Transitions stage much more: every call, and fingerprints to rebuild only what changed. A policy
needs one row per rollout, so it has statements of its own, which cost a third. They must give the
same tasks, splits and outcomes as transitions; a test compares both.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from otel_lightning.collector.store import Sql, Store, statement
from otel_lightning.collector.store.sql_text import Value, list_literal
from otel_lightning.instrumentation.attributes import (
    FEATURE_FLAG_CONTEXT_ID,
    FEATURE_FLAG_EVALUATION,
    FEATURE_FLAG_KEY,
)
from otel_lightning.learner.named_sql import number, read
from otel_lightning.learner.score.rewards import GIVEN_LATER
from otel_lightning.learner.transitions import stage
from otel_lightning.learner.transitions.make import choice_of
from otel_lightning.learner.transitions.rewards import outcomes
from otel_lightning.learner.transitions.settings import Settings

SAMPLE = 20_000
"""Number of choices that are searched first for a rollout with several choices. Choices of one
rollout are recorded together, so such rollouts are likely to show in any part of the log."""
OF_PEOPLE = (
    r"(^|[._])(user|enduser|session|thread|conversation|customer|account|tenant|visitor|client"
    r"|device|organization)([._]?(id|name|key|hash|email|address))$"
)
"""Names of the attributes that say for whom or in which conversation a rollout was run."""
OF_PROCESSES = (
    r"^(service\.instance\.id|process\.pid|host\.(id|name)|k8s\.pod\.(uid|name)|container\.id)$"
)
"""Names of a resource's attributes that say which process ran a rollout."""
SEVERAL = "rollout_id IN (SELECT rollout_id FROM policy_rewards WHERE rewards > 1)"


def known_keys(store: Store) -> list[str]:
    """Return the keys of all flags with choices, in alphabetical order."""
    return [str(key) for key in read(store, __package__, "keys")["key"].to_list()]


def keys_hint(keys: Sequence[str]) -> str:
    """Say which flags have choices in the store, or how choices come into it."""
    if keys:
        return f"It has: {', '.join(keys)}."
    return (
        "It has none of any flag. Let the agent evaluate the flag by OpenFeature, or set "
        "LIGHTNING_POLICY to the flag file in the agent's environment, and run it."
    )


def stage_choices(store: Store, keys: Sequence[str], since: str | None, until: str | None) -> int:
    """Stage the first choice of each rollout; return the number of rollouts.

    Args:
        store: An open store.
        keys: The flag, or several flags whose combination is the choice.
        since: Time (UTC) before which choices are left out.
        until: Time (UTC) from which on choices are left out.
    """
    store.execute(statement(__package__, "logged_choices", keys=keys, since=since, until=until))
    if len(keys) > 1:
        order = Sql(list_literal(keys))
        store.execute(statement(__package__, "stage_joint_choices", order=order))
    else:
        store.execute(statement(__package__, "as_recorded"))
        _stage_first_choices(store, SAMPLE)
    return store.count("policy_choices")


def _stage_first_choices(store: Store, max_choices: int) -> bool:
    """Stage the first choices if a rollout has several among `max_choices` of the choices.

    Returns:
        Whether one has.
    """
    repeated = number(store, statement(__package__, "repeated", most=max_choices)) > 0
    if repeated:
        store.execute(statement(__package__, "stage_choices"))
    return repeated


def read_staged(store: Store, settings: Settings) -> pl.DataFrame:
    """Read the staged choices with the outcome of each rollout.

    Args:
        store: An open store with staged choices.
        settings: The reward, and how to name the task of a rollout without a task id.

    Returns:
        Columns rollout_id, arm, propensity, policy_version, time, switched, outcome, open,
        task_hash and contradicts, sorted by time. The outcome is null without a reward, or where
        rewards contradict each other; a rollout that is open gets none yet.

    Raises:
        DataError: If no rollout in the store has such a reward, or a reward is not finite.
    """
    choice = choice_of(settings)
    received = Sql(f"NOT {GIVEN_LATER}")
    idle_before = choice.idle_before_ns
    store.execute(
        statement(__package__, "stage_outcomes", idle_before_ns=idle_before, received=received)
    )
    recent = store.count("policy_recent") > 0
    rows = _with_single_rewards(store, settings.reward, recent=recent)
    if rows is None and _stage_first_choices(store, store.count("policy_choices")):
        rows = _with_single_rewards(store, settings.reward, recent=recent)
    if rows is None:
        rows = _with_any_rewards(store, settings.reward, recent=recent)
    if rows["task_hash"].null_count():
        by = {name: choice.clauses[name] for name in ("by_user", "by_prompt")}
        rows = _with_unnamed_tasks(store, rows, by)
    if "contradicts" not in rows.columns:
        rows = rows.with_columns(contradicts=pl.lit(value=False))
    return _in_time_order(rows)


def lost_attempts(store: Store) -> dict[str, tuple[int, int]]:
    """Count the attempts of runs that lost some, if rollouts with a choice are of these runs.

    Args:
        store: An open store with staged choices.

    Returns:
        For each arm: number of attempts that were lost, and of all attempts.
    """
    runs = read(store, __package__, "lost_runs")["run_id"].to_list()
    if not runs:
        return {}
    counted = read(store, __package__, "lost_attempts", runs=runs)
    return {arm: (lost, attempts) for arm, lost, attempts in counted.iter_rows()}


def read_inputs(store: Store, max_rollouts: int) -> pl.DataFrame:
    """Read the service and the user's text of the first call of some rollouts with a choice.

    Args:
        store: An open store with staged choices.
        max_rollouts: Largest number of rollouts; they are chosen by the hash of their id.

    Returns:
        Columns rollout_id, service_name and input.
    """
    return read(store, __package__, "inputs", most=max_rollouts)


def are_inputs_shared(store: Store) -> bool:
    """Return whether rollouts of several task ids have the same first prompt."""
    # Copies have the same prompt, and a sample of the prompts is enough to notice them.
    every = max(store.count("policy_choices") // SAMPLE, 1)
    return number(store, statement(__package__, "shared_inputs", every=every)) > 0


def read_user_texts(store: Store, every: int, *, staged: bool = False) -> pl.DataFrame:
    """Read a hash of the user's text in the first call of the rollouts with a choice.

    It is not the whole prompt: an arm is often a system prompt, so that rollouts with the same
    prompt have the same arm.

    Args:
        store: An open store whose outcomes were read.
        every: Read one of this many texts, chosen by its hash, with all rollouts that have it; 1
            reads all texts.
        staged: Whether an earlier call has staged the texts; otherwise this call stages them.

    Returns:
        Columns rollout_id and input.
    """
    if not staged:
        _stage_tasks(store, {"by_user": True, "by_prompt": False}, of_all=True)
    return read(store, __package__, "user_texts", every=every)


def read_units(
    store: Store,
    keys: Sequence[str],
    *,
    between: tuple[object, object] | None = None,
    names: Sequence[str] | None = None,
) -> pl.DataFrame:
    """Read what rollouts with a choice share that was known before their arm was chosen.

    Args:
        store: An open store with staged choices.
        keys: The flag, or several flags whose combination is the choice.
        between: Times of the first and the last choice to read; None reads all.
        names: Names of the units to read; None reads all.

    Returns:
        Columns rollout_id, unit (such as `user.id`) and value, a hash.
    """
    exact = f"^({'|'.join(map(re.escape, names or ()))})$"
    of_process = names is None or any(re.search(OF_PROCESSES, name) for name in names)
    values: dict[str, Value] = {
        "names": OF_PEOPLE if names is None else exact,
        "processes": OF_PROCESSES,
        "of_key": names is None or FEATURE_FLAG_CONTEXT_ID in names,
        "of_process": of_process,
        "evaluation": FEATURE_FLAG_EVALUATION,
        "flag": FEATURE_FLAG_KEY,
        "context": FEATURE_FLAG_CONTEXT_ID,
        "keys": keys,
    }
    values["first"], values["last"] = (None, None) if between is None else map(str, between)
    return read(store, __package__, "units", **values)


def _in_time_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort by time, then by rollout id; texts are only compared if two times are equal."""
    # Sorting here costs a third of an ORDER BY.
    by_time = rows.sort("time", nulls_last=True)
    times = by_time["time"].to_physical().to_numpy()
    if by_time["time"].null_count() or (times[1:] == times[:-1]).any():
        return rows.sort("time", "rollout_id", nulls_last=True)
    return by_time


def _with_single_rewards(store: Store, name: str | None, *, recent: bool) -> pl.DataFrame | None:
    """Read the choices with outcomes; None if a rollout has several of either, or on errors."""
    count = store.count("policy_choices")
    # A rollout with several choices, rewards or tasks joins to several rows. One row more than
    # choices is enough to know, so the query stops there.
    chosen, scored = stage.chosen_rewards(name), store.count("scores") > 0
    values: dict[str, Value] = {"recent": recent, "chosen": chosen, "scored": scored}
    values["most"] = count + 1
    rows = read(store, __package__, "single_choices", **values)
    rewards = rows["outcome"].drop_nulls()
    # Anything unusual takes the general way, which also finds the right error message.
    if rows.height > count or rewards.is_empty() or not rewards.is_finite().all():
        return None
    hashes = np.sort(rows["id_hash"].to_numpy())
    if (hashes[1:] == hashes[:-1]).any():
        return None
    return rows.drop("id_hash").with_columns(outcome=pl.when(~pl.col("open")).then("outcome"))


def _with_any_rewards(store: Store, name: str | None, *, recent: bool) -> pl.DataFrame:
    """Read the choices with outcomes; raise if the store has no reward or one is not finite."""
    store.execute(statement(__package__, "stage_rewards", chosen=stage.chosen_rewards(name)))
    _check_rewards(store, name)
    rows = read(store, __package__, "choices", recent=recent)
    if number(store, "SELECT count(*) FROM policy_rewards WHERE rewards > 1"):
        rows = _with_several(store, rows, name)
    return rows


def _check_rewards(store: Store, name: str | None) -> None:
    """Raise the same error as `transitions` if no reward can be used, or one is not finite."""
    if number(store, statement(__package__, "unusable_rewards")):
        # Raises, with a message that names the reason, unless later judgements replaced these.
        stage.stage_rewards(store, name)


def _with_unnamed_tasks(
    store: Store, rows: pl.DataFrame, key_columns: Mapping[str, Value]
) -> pl.DataFrame:
    """Fill in the tasks of rollouts without a task id, from the messages of their first call."""
    _stage_tasks(store, key_columns, of_all=False)
    unnamed = read(store, __package__, "unnamed_tasks", by_user=key_columns["by_user"])
    joined = rows.join(unnamed, on="rollout_id", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("task_hash", "unnamed")).drop("unnamed")


def _stage_tasks(store: Store, key_columns: Mapping[str, Value], *, of_all: bool) -> None:
    shared = stage.shared("task_messages")
    store.execute(
        statement(__package__, "stage_tasks", task_messages=shared, of_all=of_all, **key_columns)
    )


def _with_several(store: Store, rows: pl.DataFrame, name: str | None) -> pl.DataFrame:
    """Fill in the outcomes of rollouts with several rewards: the last of each kind, added up."""
    stage.stage_rewards(store, name, SEVERAL)
    store.execute(str(stage.shared("contradicted")))
    rewards = read(store, __package__, "several_rewards")
    numbers = rewards.select("rollout", "rollout_id").unique()
    summed = outcomes(rewards.drop("rollout_id").lazy()).collect().join(numbers, on="rollout")
    rewards_of_several = summed.select("rollout_id", several="outcome")
    joined = rows.join(rewards_of_several, on="rollout_id", how="left", maintain_order="left")
    several = pl.when(~pl.col("open")).then("several")
    contradicted = store.column("SELECT rollout_id FROM contradicted")
    return joined.with_columns(
        outcome=pl.coalesce("outcome", several),
        contradicts=pl.col("rollout_id").is_in(contradicted),
    ).drop("several")
