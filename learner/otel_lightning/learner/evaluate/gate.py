"""The held-out gate: is the new policy better than the live one, beyond chance?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.evaluate.betting import (
    FRACTIONS,
    PORTFOLIO,
    Scores,
    lower_bound,
)
from otel_lightning.learner.evaluate.gains import (
    Compared,
    centred,
    from_limits,
    per_task,
    within_tasks,
)

MINIMUM_TASKS = 10
MINIMUM_EFFECTIVE = 10.0
ALPHA = 0.05
"""Each bound is one-sided: the true gain is beyond it with at most this probability."""
LEAST_MEAN_WEIGHT = 0.95
"""Importance weights average 1; below this, too much of the new policy is unseen."""
LEAST_KEPT = 0.9
"""Share of the importance weights that `clip` must leave."""
NORMAL_99 = 2.326
"""99 % quantile of the standard normal distribution."""

Floats = NDArray[np.float64]
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Demands:
    """What a new policy must show."""

    reward_range: Range
    """The least and the greatest possible reward: what was not drawn must be thinkable."""
    least_gain: float = 0.0
    """Gain that the lower bound must exceed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The measurements of the gate, and its reasons to refuse.

    `lower` and `upper` each bound the gain with 95 % confidence, one-sided.
    """

    estimator: str
    rollouts: int
    tasks: int
    effective_sample_size: float
    behavior_value: float
    """Value of the live policy, on the same held-out rollouts."""
    value: float
    gain: float
    lower: float
    upper: float
    refusals: tuple[str, ...]
    mean_weight: float = 1.0
    """Mean importance weight after clipping; near 1 if all of the new policy is seen."""
    least_gain: float = 0.0
    reward_range: Range = (0.0, 1.0)
    tasks_needed: float | None = None
    """Held-out tasks at which the gate would be expected to pass; None: no number would do."""

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against promoting the new policy."""
        return not self.refusals


def held_out_verdict(
    compared: Compared, demands: Demands, logged: Compared | None = None
) -> Verdict:
    """Compare a new policy with the live one on held-out rollouts.

    The gain is the mean over tasks of `gains.centred`. Its bounds come from betting, which knows
    the range of the rewards, so that rare losses that were not drawn cannot be forgotten.

    Args:
        compared: Held-out rollouts, none of which was learned from.
        demands: Range of the rewards, and the least gain.
        logged: All logged rollouts, whose weights limit the scores; None takes the held-out ones.

    Returns:
        The verdict; it refuses what it cannot measure.
    """
    logged = logged or compared
    weights = compared.weights
    tasks = len(np.unique(compared.tasks))
    if tasks == 0:
        return _nothing(demands)
    scores = _scores(compared, logged, demands.reward_range)
    gains = scores[0].values
    lower, upper = _bounds(compared, logged, demands.reward_range, scores)
    live = _live_value(compared)
    mean_weight = float(per_task(weights, compared.tasks).mean())
    effective = effective_sample_size(weights)
    refusals = [
        *_too_few(tasks, effective),
        *_clipped_away(compared),
        *_unseen(per_task(weights, compared.tasks)),
        *_chance(lower, demands.least_gain),
    ]
    return Verdict(
        estimator="doubly_robust" if compared.modelled else "within_tasks",
        rollouts=len(weights),
        tasks=tasks,
        effective_sample_size=effective,
        behavior_value=live,
        value=live + float(gains.mean()),
        gain=float(gains.mean()),
        lower=lower,
        upper=upper,
        refusals=tuple(refusals),
        mean_weight=mean_weight,
        least_gain=demands.least_gain,
        reward_range=demands.reward_range,
        tasks_needed=_tasks_needed(scores, demands.least_gain),
    )


def effective_sample_size(weights: Floats) -> float:
    """Count the rollouts that the weights are worth.

    ESS = (sum of w)^2 / sum of w^2.

    Source:
        Owen, Monte Carlo theory, methods and examples, eq. 9.13.

    Example:
        >>> effective_sample_size(np.array([1.0, 1.0, 0.0, 0.0]))
        2.0
    """
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def importance_weights(
    logprobs: Floats, behavior_logprobs: Floats, clip: float | None = None
) -> Floats:
    """Compute rho = exp(logprob - behavior_logprob), at most `clip`.

    Args:
        logprobs: Of each rollout under the new policy, summed over its tokens, shape [N].
        behavior_logprobs: The same under the behavior policy, shape [N].
        clip: Largest weight; it trades variance for a bias towards the behavior policy.

    Returns:
        The importance weights, shape [N].

    Source:
        Ionides, Truncated importance sampling (2008).
    """
    # exp(700) is the largest power that is a float.
    most = 700.0 if clip is None else float(np.log(clip))
    return np.exp(np.minimum(logprobs - behavior_logprobs, most))


def _scores(compared: Compared, logged: Compared, reward_range: Range) -> list[Scores]:
    """Score each task's gain in every way whose mean is the gain; the first one is reported.

    Without a model of the reward, rollouts are compared with others of their task. `from_limits`
    lets tasks gain weight from each other, so it is right only where the weights of each task
    average 1: where propensities are exact, as those of arms are.
    """
    if not compared.modelled:
        within = within_tasks(compared, reward_range)
        return [within or centred(compared, logged, reward_range)]
    return [
        centred(compared, logged, reward_range),
        from_limits(compared, reward_range),
    ]


def _bounds(
    compared: Compared, logged: Compared, reward_range: Range, scores: list[Scores]
) -> tuple[float, float]:
    """Bound the gain from below, and the loss of going back from below, which is the other side."""
    low, high = reward_range
    back, back_logged = compared.swapped(), logged.swapped()
    upper = -lower_bound(_scores(back, back_logged, reward_range), ALPHA)
    return max(lower_bound(scores, ALPHA), low - high), min(upper, high - low)


def _live_value(compared: Compared) -> float:
    live = compared.live
    scores = live.modelled_policy + live.weights * (live.rewards - live.modelled_taken)
    return float(per_task(scores, compared.tasks).mean())


def _tasks_needed(scores: list[Scores], least_gain: float) -> float | None:
    """Extrapolate the growth of the wealth to the number of tasks at which it would suffice."""
    best: float | None = None
    for values, lowest in scores:
        gains = (values - least_gain) / (least_gain - lowest)
        growth: Floats = np.log1p(np.multiply.outer(FRACTIONS, gains)).mean(axis=1)
        wanted = -np.log(ALPHA) - np.log(PORTFOLIO / len(scores))
        needed = wanted[growth > 0] / growth[growth > 0]
        if needed.size and (best is None or needed.min() < best):
            best = float(needed.min())
    return best


def _nothing(demands: Demands) -> Verdict:
    nan = float("nan")
    return Verdict(
        estimator="none",
        rollouts=0,
        tasks=0,
        effective_sample_size=0.0,
        behavior_value=nan,
        value=nan,
        gain=nan,
        lower=nan,
        upper=nan,
        refusals=tuple(_too_few(0, 0.0)),
        least_gain=demands.least_gain,
        reward_range=demands.reward_range,
    )


def _too_few(tasks: int, effective: float) -> list[str]:
    refusals = []
    if tasks < MINIMUM_TASKS:
        refusals.append(
            f"{tasks} held-out tasks are too few to judge by "
            f"({MINIMUM_TASKS} needed: collect more, or raise --held-out)"
        )
    if effective < MINIMUM_EFFECTIVE:
        refusals.append(
            f"the importance weights leave an effective sample of {effective:.1f} rollouts "
            f"({MINIMUM_EFFECTIVE:.0f} needed: collect more, or learn less at once)"
        )
    return refusals


def _clipped_away(compared: Compared) -> list[str]:
    """Refuse where `clip` hides a good part of the new policy, and with it perhaps a loss."""
    kept = float(compared.weights.sum()) / max(float(compared.new.weights.sum()), 1e-300)
    if not compared.clipped or kept >= LEAST_KEPT:
        return []
    cut = f"--clip cut away {1 - kept:.0%} of the importance weights"
    return [f"{cut}, so that part was not judged: learn less at once, or raise --clip"]


def _unseen(weights: Floats) -> list[str]:
    """Refuse weights whose mean is not 1: much is unseen, or the propensities are wrong."""
    mean = float(weights.mean())
    error = float(weights.std(ddof=1)) / len(weights) ** 0.5 if len(weights) > 1 else 0.0
    if mean + NORMAL_99 * error < LEAST_MEAN_WEIGHT:
        reason = "the new policy does what was hardly logged, or the propensities are wrong"
        return [f"the importance weights average {mean:.2f} and not 1: {reason}"]
    if mean - NORMAL_99 * error > 1 / LEAST_MEAN_WEIGHT:
        reason = "the propensities do not say how often each choice was made"
        return [f"the importance weights average {mean:.2f} and not 1: {reason}"]
    return []


def _chance(lower: float, least_gain: float) -> list[str]:
    if lower > least_gain:
        return []
    above = "0" if least_gain == 0 else f"the least gain of {least_gain:g}"
    bound = f"with 95 % confidence (one-sided) it is at least {lower:+.4g}"
    return [f"the gain may be chance: {bound}, which is not above {above}"]
