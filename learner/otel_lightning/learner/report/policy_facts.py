"""Facts of a learned policy, for a report: arms, importance weights, tasks that got worse."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from otel_lightning.collector.store import Store
from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.policy.arms import Arm, describe
from otel_lightning.learner.policy.logged.choices import LoggedChoices, as_choices, read_choices
from otel_lightning.learner.policy.logged.staged import known_keys, read_staged, stage_choices
from otel_lightning.learner.policy.logged.window import Window
from otel_lightning.learner.policy.serving.joint import flags_of
from otel_lightning.learner.policy.serving.versions import known_versions
from otel_lightning.learner.policy.softmax.choice_arrays import Choices
from otel_lightning.learner.report.facts import Facts
from otel_lightning.learner.runs import fingerprint
from otel_lightning.learner.score.rules import name_of
from otel_lightning.learner.task_splits import TRAIN
from otel_lightning.learner.transitions.settings import Settings as TransitionSettings
from otel_lightning.learner.transitions.stage import bounded

MAX_TASKS = 10
"""Number of tasks that a report lists as worse under the new policy, at most."""


@dataclass(frozen=True, slots=True)
class WorseTask:
    """A task on which a new policy does worse than the one before, as far as the data tell."""

    task: str
    before: float
    after: float
    rollouts: int
    example: str | None = None
    """Id of one of its rollouts."""


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """A policy's arms, and their overlap with the logged choices."""

    arms: tuple[Arm, ...]
    weights: tuple[float, ...]
    """Importance weight of each held-out rollout; empty for a policy that sees context."""
    propensities: tuple[tuple[str, float, float], ...]
    """For each arm that was tried: least and greatest propensity, as logged."""
    worse: tuple[WorseTask, ...]
    tasks_compared: int
    outcomes: pl.DataFrame
    """Columns rollout_id, task_hash and outcome of the rollouts that the run learned from."""
    keys: tuple[str, ...]
    """The flags that the policy is about."""
    is_same_data: bool
    """Whether the choices are those that the run learned from; rewards may have come since."""


def read_policy(store: Store, facts: Facts) -> PolicyFacts | None:
    """Read the choices that a run learned from again; None if they are gone.

    Args:
        store: An open store that may be written: choices are staged in temporary tables.
        facts: The run.
    """
    config, policy = facts.run.config, facts.policy
    if policy is None:
        return None
    try:
        logged = read_choices(
            store, _window(config, _started(facts)), known_versions(store, policy["key"])
        )
    # The data may have been forgotten since; the rest of the report is still right.
    except DataError:
        return None
    new = json.loads(policy["arms"])
    live = facts.run.gate.get("live") or {}
    choices = as_choices(logged.rows, sorted({*new, *live, *logged.rows["arm"]}))
    shares = np.array([new.get(arm, 0.0) for arm in choices.arms])
    before = np.array([live.get(arm, 0.0) for arm in choices.arms])
    is_contextual = bool(json.loads(policy["parameters"] or "{}").get("contextual"))
    held_out = (logged.rows["split"] != TRAIN).to_numpy()
    judged = choices.where(held_out)
    worse = [] if is_contextual else _worse(judged, logged.rows.filter(held_out), before, shares)
    weights = shares[judged.taken] / judged.propensities
    return PolicyFacts(
        arms=tuple(arm for arm in describe(choices, live, shares)),
        weights=() if is_contextual else tuple(weights.tolist()),
        propensities=_propensities(choices),
        worse=_with_ids(store, worse[:MAX_TASKS]),
        tasks_compared=0 if is_contextual else len(np.unique(judged.tasks)),
        outcomes=logged.rows.select("rollout_id", "outcome", task_hash="task"),
        keys=tuple(flags_of(policy["key"], dict.fromkeys(known_keys(store)))),
        is_same_data=_is_same(logged, facts.run.data_fingerprint),
    )


def measured_since(store: Store, facts: Facts) -> Mapping[str, Any] | None:
    """Average the rewards of the rollouts that a policy has served since; None if there are none.

    Rewards are those of the run: of the same name, and added up in the same way.
    """
    policy, config = facts.policy, facts.run.config
    if policy is None:
        return None
    started = _started(facts)
    flags = flags_of(policy["key"], dict.fromkeys(known_keys(store)))
    settings = TransitionSettings(
        reward=name_of(config.get("reward")), task_by=config.get("task_by", "user")
    )
    try:
        with bounded(store):
            if not stage_choices(store, flags, f"{started:%Y-%m-%d %H:%M:%S.%f}", None):
                return None
            staged = read_staged(store, settings)
    except DataError:  # no rollout has such a reward any more
        return None
    mine = staged.filter(pl.col("policy_version") == policy["version"]).drop_nulls("outcome")
    if mine.is_empty():
        return None
    tasks = mine["task_hash"].n_unique()
    return {"rollouts": mine.height, "tasks": tasks, "reward": mine["outcome"].mean()}


def _started(facts: Facts) -> datetime:
    return datetime.fromtimestamp(facts.run.started_ns / 1e9, UTC).replace(tzinfo=None)


def _window(config: Mapping[str, Any], started: datetime) -> Window:
    """Return the window of a run: choices made after its start did not count."""
    since = config.get("since")
    until = config.get("until")
    times = [datetime.fromisoformat(until)] if until else []
    return Window(
        key=config["key"],
        reward=name_of(config.get("reward")),
        held_out=config.get("held_out", 0.3),
        since=datetime.fromisoformat(since) if since else None,
        # A choice that came later did not count, whatever --until says.
        until=min([*times, started]),
        missing=config.get("missing"),
        worst=(config.get("reward_range") or [None])[0],
        propensities=config.get("propensities", "auto"),
        shuffle_rewards=config.get("shuffle_rewards"),
        task_by=config.get("task_by", "user"),
    )


def _propensities(choices: Choices) -> tuple[tuple[str, float, float], ...]:
    ranges = []
    for number, arm in enumerate(choices.arms):
        logged = choices.propensities[choices.taken == number]
        if len(logged):
            ranges.append((arm, float(logged.min()), float(logged.max())))
    return tuple(ranges)


def _worse(choices: Choices, rows: pl.DataFrame, before: Floats, after: Floats) -> list[WorseTask]:
    """List the held-out tasks whose self-normalised estimate falls, the largest fall first."""
    names = [f"{task:016x}" for task in rows["task"].to_list()]
    examples = rows["rollout_id"].to_list()
    falls = []
    for task in np.unique(choices.tasks):
        inside = np.flatnonzero(choices.tasks == task)
        values = [_estimate(choices, inside, shares) for shares in (before, after)]
        if None not in values and float(values[1] or 0) < float(values[0] or 0):
            first = inside[0]
            estimates = (float(values[0] or 0), float(values[1] or 0))
            falls.append(WorseTask(names[first], *estimates, len(inside), examples[first]))
    return sorted(falls, key=lambda fall: (fall.after - fall.before, fall.task))


def _with_ids(store: Store, tasks: list[WorseTask]) -> tuple[WorseTask, ...]:
    """Name tasks by their recorded ids, where there are any, instead of by their hashes."""
    rollouts = [task.example for task in tasks if task.example]
    ids = dict(read(store, __package__, "task_ids", rollouts=rollouts).iter_rows())
    return tuple(replace(task, task=ids.get(task.example, task.task)) for task in tasks)


def _estimate(choices: Choices, inside: Integers, shares: Floats) -> float | None:
    weights = shares[choices.taken[inside]] / choices.propensities[inside]
    total = float(weights.sum())
    return float((weights * choices.rewards[inside]).sum() / total) if total > 0 else None


def _is_same(logged: LoggedChoices, data_fingerprint: str | None) -> bool:
    return fingerprint(logged.rows.drop("policy_version", "time")) == data_fingerprint
