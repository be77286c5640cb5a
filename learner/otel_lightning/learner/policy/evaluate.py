"""`lightning-learn evaluate`: estimate a policy's value from choices of another policy."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from otel_lightning.collector.store import Sql, Store, StoreLike, opened
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate import off_policy
from otel_lightning.learner.evaluate.estimates import Estimated, estimated
from otel_lightning.learner.evaluate.gate import effective_sample_size
from otel_lightning.learner.evaluate.off_policy import Logged
from otel_lightning.learner.named_sql import append, read
from otel_lightning.learner.policy import flag_file
from otel_lightning.learner.policy.choices import LoggedChoices, Window, read_choices
from otel_lightning.learner.policy.drift import drift, mismatched
from otel_lightning.learner.policy.reward_range import Range, Rewards, reward_range
from otel_lightning.learner.policy.softmax import Choices, reward_model, seen_by
from otel_lightning.learner.policy.versions import known_versions
from otel_lightning.learner.runs import Run, fingerprint, recorded_in
from otel_lightning.learner.score import rules

Floats = NDArray[np.float64]
SEGMENT_METHOD = "doubly_robust"


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
class Answer:
    """The value of a policy by every estimator, and statistics that tell how reliable it is."""

    policy: str
    rollouts: int
    tasks: int
    mean_reward: float
    effective_sample_size: float
    estimates: tuple[Estimated, ...]
    overlap: tuple[Overlap, ...]
    segments: dict[str, Estimated]
    rewards: Rewards
    notes: tuple[str, ...]


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
    with recorded_in(store, run), opened(store) as found:
        name, _ = rules.chosen(found, question.window.reward)
        versions = known_versions(found, question.window.key)
        logged = read_choices(found, replace(question.window, reward=name), versions)
        label, shares = _shares(question, versions)
        segments = _segments(found, question.by) if question.by else None
        answer = _answer(question, logged, (label, shares), segments, versions)
        ended = run.ended(
            outcome="done",
            fingerprint=fingerprint(logged.rows.drop("policy_version", "time")),
            metrics=asdict(answer),
        )
        append(found, "runs", ended)
    return answer


def _shares(
    question: Question, versions: Mapping[str, Mapping[str, float]]
) -> tuple[str, Mapping[str, float]]:
    key = question.window.key
    if question.arm is not None:
        return f"arm '{question.arm}'", {question.arm: 1.0}
    if question.version is not None:
        if question.version not in versions:
            known = ", ".join(list(versions)[-5:]) or "none"
            raise DataError(f"Flag '{key}' has no policy '{question.version}'. It has: {known}.")
        return f"policy {question.version}", versions[question.version]
    if question.flags is None:
        raise DataError("Name what to evaluate: --flags FILE, --version VERSION or --arm ARM.")
    document = flag_file.read_flag_file(question.flags, key)
    return f"'{question.flags}'", flag_file.live_shares(document, key)


def _answer(
    question: Question,
    logged: LoggedChoices,
    policy: tuple[str, Mapping[str, float]],
    segments: pl.DataFrame | None,
    versions: Mapping[str, Mapping[str, float]],
) -> Answer:
    label, shares = policy
    rows = logged.rows
    choices = _choices(rows, shares)
    probabilities = np.array([shares.get(arm, 0.0) for arm in choices.arms])
    seen = cross_fitted(choices, probabilities)
    gaining = {
        arm: int((choices.taken == i).sum())
        for i, arm in enumerate(choices.arms)
        if probabilities[i] > 0
    }
    rewards = reward_range(choices.rewards, question.reward_range, gaining)
    unknown = [
        f"Arm '{arm}' has {shares[arm]:.2%} of the policy and no logged rollout: its part of the "
        "value is a guess (the worst arm's mean)."
        for arm, count in gaining.items()
        if count == 0
    ]
    notes = [*unknown, *rewards.refusals, *drift(rows), *mismatched(rows, versions)]
    if logged.missing.count:
        notes.append(str(logged.missing))
    return Answer(
        policy=label,
        rollouts=rows.height,
        tasks=len(np.unique(choices.tasks)),
        mean_reward=float(choices.rewards.mean()),
        effective_sample_size=effective_sample_size(seen.weights),
        estimates=tuple(
            estimated(method, seen, choices.tasks, rewards.range, question.seed)
            for method in off_policy.METHODS
        ),
        overlap=_overlap(choices, probabilities, seen),
        segments=_by_segment(question, rows, segments, (choices, seen), rewards.range),
        rewards=rewards,
        notes=tuple(notes),
    )


def cross_fitted(choices: Choices, probabilities: Floats) -> Logged:
    """Weigh choices by a policy; a reward model of each half of the tasks predicts the other half.

    Source:
        Chernozhukov et al., Double/debiased machine learning (2018), definition 3.1, with K = 2.
    """
    half = choices.tasks % 2 == 0
    if half.all() or not half.any():
        return seen_by(choices, probabilities, reward_model(choices))
    parts = [Logged(*(np.zeros(len(half)) for _ in range(4)))]
    for kept in (half, ~half):
        part = seen_by(choices.where(kept), probabilities, reward_model(choices.where(~kept)))
        for name in ("rewards", "weights", "modelled_taken", "modelled_policy"):
            getattr(parts[0], name)[kept] = getattr(part, name)
    return parts[0]


def _choices(rows: pl.DataFrame, shares: Mapping[str, float]) -> Choices:
    arms = sorted(set(rows["arm"]) | set(shares))
    number = {arm: i for i, arm in enumerate(arms)}
    return Choices(
        arms=tuple(arms),
        taken=rows["arm"].replace_strict(number, return_dtype=pl.Int64).to_numpy(),
        propensities=rows["propensity"].to_numpy(),
        rewards=rows["outcome"].to_numpy(),
        tasks=(rows["task"].rank("dense").to_numpy() - 1).astype(np.int64),
    )


def _overlap(choices: Choices, probabilities: Floats, seen: Logged) -> tuple[Overlap, ...]:
    found = []
    for i, arm in enumerate(choices.arms):
        of_arm = choices.taken == i
        least = float(choices.propensities[of_arm].min()) if of_arm.any() else float("nan")
        greatest = float(seen.weights[of_arm].max()) if of_arm.any() else float("nan")
        found.append(Overlap(arm, float(probabilities[i]), int(of_arm.sum()), least, greatest))
    return tuple(found)


def _segments(store: Store, by: str) -> pl.DataFrame:
    return read(store, __package__, "segments", by=Sql(by))


def _by_segment(
    question: Question,
    rows: pl.DataFrame,
    segments: pl.DataFrame | None,
    seen: tuple[Choices, Logged],
    limits: Range,
) -> dict[str, Estimated]:
    if segments is None:
        return {}
    choices, logged = seen
    names = rows.join(segments, on="rollout_id", how="left", maintain_order="left")["segment"]
    found = {}
    for name in names.fill_null("(none)").unique().sort():
        kept = (names.fill_null("(none)") == name).to_numpy()
        found[name] = estimated(
            SEGMENT_METHOD, logged.take(kept), choices.tasks[kept], limits, question.seed
        )
    return found


def _config(question: Question) -> dict[str, Any]:
    window = asdict(question.window)
    window |= {name: str(window[name]) for name in ("since", "until") if window[name]}
    return asdict(question) | {"window": window, "flags": str(question.flags or "") or None}
