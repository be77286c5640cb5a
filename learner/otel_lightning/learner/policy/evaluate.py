"""`lightning-learn evaluate`: estimate a policy's value from choices of another policy."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from otel_lightning.collector.store import Sql, Store, StoreError, StoreLike, opened
from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate import off_policy
from otel_lightning.learner.evaluate.estimates import ValueEstimate, estimate_value, outside_range
from otel_lightning.learner.evaluate.gains import per_task
from otel_lightning.learner.evaluate.gate import effective_sample_size, unusual_weights
from otel_lightning.learner.evaluate.off_policy import Logged
from otel_lightning.learner.evaluate.reward_range import Range, Rewards, reward_range
from otel_lightning.learner.named_sql import append, read
from otel_lightning.learner.policy.assumptions.drift import drift, mismatched
from otel_lightning.learner.policy.candidate import Candidate, Named, candidate, check_named
from otel_lightning.learner.policy.logged.choices import LoggedChoices, as_choices, read_choices
from otel_lightning.learner.policy.logged.window import Window
from otel_lightning.learner.policy.serving.versions import known_versions
from otel_lightning.learner.policy.softmax.choice_arrays import Choices
from otel_lightning.learner.policy.softmax.cross_fit import cross_fitted
from otel_lightning.learner.runs import Run, fingerprint, recorded
from otel_lightning.learner.score import rules

SEGMENT_METHOD = "doubly_robust"
TENTHS = 10


@dataclass(frozen=True, slots=True)
class Question:
    """Which policy to evaluate on which rollouts. One of `flags`, `version`, `arm` names it."""

    window: Window
    flags: Path | None = None
    version: str | None = None
    arm: str | None = None
    reward_range: Range | None = None
    by: str | None = None
    """SQL expression over the view `rollouts` whose values are the segments."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Overlap:
    """How well the logged choices cover the evaluated policy, for one arm."""

    arm: str
    share: float
    """Probability of the arm under the evaluated policy."""
    logged: int
    least_propensity: float
    greatest_weight: float


@dataclass(frozen=True, slots=True)
class Part:
    """The rewards of one arm in one tenth of the rollouts."""

    arm: str
    part: int
    """Number of the tenth, from 1, the oldest, to 10."""
    rollouts: int
    mean: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The value of a policy by every estimator, and statistics that tell how reliable it is."""

    policy: str
    rollouts: int
    tasks: int
    mean_reward: float
    effective_sample_size: float
    mean_weight: float
    """Mean importance weight over tasks; near 1 if the log covers the policy."""
    estimates: tuple[ValueEstimate, ...]
    overlap: tuple[Overlap, ...]
    segments: dict[str, ValueEstimate]
    rewards: Rewards
    notes: tuple[str, ...]
    weights: tuple[float, ...]
    """Quantiles of the importance weights: 0 %, 1 % and so on to 100 %."""
    history: tuple[Part, ...]
    """Rewards of the arms over time; empty if no choice has a time."""


def evaluate_policy(store: StoreLike, question: Question) -> Answer:
    """Estimate the value of a policy from logged choices.

    Args:
        store: Path of the store, or an open store.
        question: The policy and the rollouts.

    Raises:
        DataError: If the policy is not known, or nothing was logged for its flag.
        StoreError: If the store cannot be read or written.
    """
    run = Run("evaluate", _config(question))
    with recorded(store, run), opened(store) as db:
        versions = known_versions(db, question.window.key)
        named = Named(question.window.key, question.flags, question.version, question.arm)
        check_named(db, versions, named)
        if question.by:
            _segments(db, question.by, at_most=0)
        # The rule comes after all that can be refused without it: it may run for long.
        name, _ = rules.resolve_reward(db, question.window.reward)
        logged = read_choices(db, replace(question.window, reward=name), versions)
        policy = candidate(db, logged.rows, versions, named)
        segments = _segments(db, question.by) if question.by else None
        answer = _answer(question, logged, policy, segments, versions)
        ended = run.ended(
            outcome="done",
            # The fingerprint covers only what estimates depend on; `report` compares it to tell
            # whether the data is still the same.
            fingerprint=fingerprint(logged.rows.drop("policy_version", "time")),
            metrics=asdict(answer),
        )
        append(db, "runs", ended)
    return answer


def _answer(
    question: Question,
    logged: LoggedChoices,
    policy: Candidate,
    segments: pl.DataFrame | None,
    versions: Mapping[str, Mapping[str, float]],
) -> Answer:
    rows = logged.rows
    choices = as_choices(rows, policy.arms)
    cross_fit = cross_fitted(choices, policy.probabilities, policy.features)
    shares = policy.probabilities.mean(axis=0)
    rewards = reward_range(choices.rewards, question.reward_range)
    weights = per_task(cross_fit.weights, choices.tasks)
    estimates = tuple(
        estimate_value(method, cross_fit, choices.tasks, rewards.range, question.seed)
        for method in off_policy.METHODS
    )
    by_segment: dict[str, ValueEstimate] = {}
    if segments is not None:
        names = _segment_of_each(rows, segments)
        by_segment = _by_segment(names, cross_fit, choices.tasks, rewards.range, question.seed)
    values = {estimate.method: estimate.value for estimate in estimates}
    values |= {f"segment {name}": estimate.value for name, estimate in by_segment.items()}
    reasons = [*(refusal.text for refusal in unusual_weights(weights)), *rewards.refusals]
    notes = [
        *_guessed_arms(choices, shares),
        *map(_sentence, reasons),
        *drift(rows),
        *mismatched(rows, versions),
        *([str(logged.missing)] if logged.missing.count else []),
        *logged.exceptions,
        *_outside(values, rewards),
    ]
    return Answer(
        policy=policy.label,
        rollouts=rows.height,
        tasks=len(np.unique(choices.tasks)),
        mean_reward=float(choices.rewards.mean()),
        effective_sample_size=effective_sample_size(cross_fit.weights),
        mean_weight=float(weights.mean()),
        estimates=estimates,
        overlap=_overlap(choices, shares, cross_fit),
        segments=by_segment,
        rewards=rewards,
        notes=tuple(notes),
        weights=tuple(np.quantile(cross_fit.weights, np.linspace(0, 1, 101)).tolist()),
        history=_history(rows),
    )


def _guessed_arms(choices: Choices, shares: Floats) -> list[str]:
    """Warn of arms of the policy that were never logged, as sentences."""
    return [
        f"Arm '{arm}' has {share:.2%} of the policy and no logged rollout: its part of the value "
        "is a guess (the worst arm's mean)."
        for arm, share, count in zip(choices.arms, shares, choices.tried, strict=True)
        if share > 0 and count == 0
    ]


def _outside(values: Mapping[str, float], rewards: Rewards) -> list[str]:
    """Warn of values that no policy can have, as a list of no sentence or one."""
    limits = rewards.range
    outside = outside_range(values, limits)
    if not outside or rewards.refusals:  # then nobody knows the range
        return []
    text = (
        f"Outside of the rewards' range [{limits[0]:g}, {limits[1]:g}]: the value of "
        f"{', '.join(outside)}. No policy is worth that: few rollouts carry large weights, "
        "or the propensities are wrong. It is not clipped, which would bias it. Go by the betting "
        "interval, or by snips, whose value is always inside."
    )
    return [text]


def _overlap(choices: Choices, probabilities: Floats, logged: Logged) -> tuple[Overlap, ...]:
    overlaps = []
    for i, arm in enumerate(choices.arms):
        of_arm = choices.taken == i
        smallest = float(choices.propensities[of_arm].min()) if of_arm.any() else float("nan")
        largest = float(logged.weights[of_arm].max()) if of_arm.any() else float("nan")
        overlaps.append(Overlap(arm, float(probabilities[i]), int(of_arm.sum()), smallest, largest))
    return tuple(overlaps)


def _history(rows: pl.DataFrame) -> tuple[Part, ...]:
    """Compute the mean reward of each arm in each tenth of the rollouts."""
    timed = rows.drop_nulls("time").sort("time", "rollout_id").with_row_index("place")
    # Tenths of equal numbers of rollouts, not of equal time.
    tenth = (pl.col("place") * TENTHS // max(timed.height, 1) + 1).cast(pl.Int64)
    parts = timed.group_by("arm", tenth.alias("part")).agg(
        rollouts=pl.len(), mean=pl.mean("outcome")
    )
    return tuple(Part(**row) for row in parts.sort("arm", "part").iter_rows(named=True))


def _segments(store: Store, by: str, at_most: int | None = None) -> pl.DataFrame:
    try:
        return read(store, __package__, "segments", by=Sql(by), at_most=at_most)
    except StoreError as error:
        raise DataError(
            f"--by '{by}' does not work: {error} It is an expression over the columns of the view "
            "rollouts."
        ) from error


def _segment_of_each(rows: pl.DataFrame, segments: pl.DataFrame) -> pl.Series:
    """Return the segment of each logged rollout, in the order of the rows."""
    joined = rows.join(segments, on="rollout_id", how="left", maintain_order="left")
    return joined["segment"].fill_null("(none)")


def _by_segment(
    names: pl.Series, logged: Logged, tasks: Integers, limits: Range, seed: int
) -> dict[str, ValueEstimate]:
    estimates = {}
    for name in names.unique().sort():
        of_segment = (names == name).to_numpy()
        estimates[name] = estimate_value(
            SEGMENT_METHOD, logged.take(of_segment), tasks[of_segment], limits, seed
        )
    return estimates


def _config(question: Question) -> dict[str, Any]:
    window = asdict(question.window)
    window |= {name: str(window[name]) for name in ("since", "until") if window[name]}
    return asdict(question) | {"window": window, "flags": str(question.flags or "") or None}


def _sentence(reason: str) -> str:
    return f"{reason[0].upper()}{reason[1:]}."
