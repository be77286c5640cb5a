"""The held-out gate: is the new policy significantly better than the live one?"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.betting import (
    FRACTIONS,
    PORTFOLIO,
    Scores,
    lower_bound,
    p_value,
)
from otel_lightning.learner.evaluate.confidence import ALPHA, NORMAL_99
from otel_lightning.learner.evaluate.gains import (
    Compared,
    centred,
    from_limits,
    per_task,
    within_tasks,
)
from otel_lightning.learner.evaluate.refusals import Cause, Refusal, recorded_refusals
from otel_lightning.learner.evaluate.reward_range import Range, Rewards

# The bounds hold for any number of tasks. These two limits keep a handful of odd tasks or rollouts
# from deciding alone.
MIN_TASKS = 10
MIN_EFFECTIVE_SAMPLE = 10.0
MIN_MEAN_WEIGHT = 0.95
"""Smallest mean importance weight. The expected mean is 1; if it is lower, the new policy chooses
actions that were never logged."""
MIN_SHARE_AFTER_CLIPPING = 0.9
"""Smallest share of the importance weights that must be left after clipping."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements on a new policy."""

    rewards: Rewards
    """Range of the rewards; the bounds allow for rewards in it that were never logged."""
    least_gain: float = 0.0
    """The lower bound of the gain must exceed this, in units of reward."""
    alpha: float = ALPHA
    """Error probability of each one-sided bound: the true gain is beyond it at most this often.
    Smaller if there are several gates."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The measurements of the gate, and its reasons to refuse.

    `lower` and `upper` each bound the gain one-sided, with the error probability
    `Requirements.alpha`: 95 % confidence, unless a user or a loop sets another one.
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
    reasons: tuple[Refusal, ...]
    p_value: float = math.nan
    """Smallest error probability with which `lower` would be above `least_gain`; NaN if it was not
    computed."""
    mean_weight: float = 1.0
    """Mean importance weight after clipping; near 1 if the log covers the new policy."""
    least_gain: float = 0.0
    reward_range: Range = (0.0, 1.0)
    tasks_needed: float | None = None
    """Number of held-out tasks at which the gate probably passes; None if no number suffices."""
    rollouts_needed: dict[str, int] = field(default_factory=dict)
    """Further rollouts of each arm with which the gate probably passes; empty if not known."""

    @property
    def passed(self) -> bool:
        """Whether there is no reason to refuse the new policy."""
        return not self.reasons

    @property
    def is_weighted(self) -> bool:
        """Whether rollouts have importance weights; the pairs of a reward model have none."""
        return not math.isnan(self.effective_sample_size)

    @property
    def refusals(self) -> tuple[str, ...]:
        """The texts of the reasons to refuse."""
        return tuple(reason.text for reason in self.reasons)


def held_out_verdict(
    compared: Compared, requirements: Requirements, logged: Compared | None = None
) -> Verdict:
    """Compare a new policy with the live one on held-out rollouts.

    The gain is the mean of the first scores of `_scores` over tasks. Its bounds come from betting,
    which uses the range of the rewards, so the bounds allow for rare losses that were not logged.

    Args:
        compared: Held-out rollouts, which were not used for learning.
        requirements: Range of the rewards, the least gain and the error probability.
        logged: All logged rollouts, whose weights limit the scores; None uses the held-out ones.

    Returns:
        The verdict. A policy that cannot be measured is refused.
    """
    # The smallest possible score must not depend on the held-out rewards (see `betting.Scores`). It
    # comes from the weights and the model, so all rollouts may be used for it.
    logged = logged or compared
    weights = compared.weights
    tasks = len(np.unique(compared.tasks))
    if tasks == 0:
        return _without_tasks(requirements)
    scores = _scores(compared, logged, requirements.rewards.range)
    gains = scores[0].values
    lower, upper = _bounds(compared, logged, requirements, scores)
    live = _live_value(compared)
    mean_weight = float(per_task(weights, compared.tasks).mean())
    effective = effective_sample_size(weights)
    reasons = [
        *_too_few(tasks, effective),
        *_clipped_away(compared),
        *unusual_weights(per_task(weights, compared.tasks)),
        *_chance(lower, requirements),
        *_unknown_range(requirements),
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
        reasons=tuple(reasons),
        p_value=p_value(scores, requirements.least_gain),
        mean_weight=mean_weight,
        least_gain=requirements.least_gain,
        reward_range=requirements.rewards.range,
        tasks_needed=_tasks_needed(scores, requirements, effective),
    )


def as_recorded(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as the column `gate` of a run holds it.

    `refusals` are the texts, and `causes` the cause of each.
    """
    gate = asdict(verdict)
    reasons = gate.pop("reasons")
    gate["refusals"] = [reason["text"] for reason in reasons]
    gate["causes"] = [reason["cause"] for reason in reasons]
    return gate | {"passed": verdict.passed}


def recorded_verdict(gate: Mapping[str, Any]) -> Verdict:
    """Return the verdict that `as_recorded` wrote, after it was stored as JSON."""
    # JSON has no NaN, so `runs.to_json` wrote null. None as `tasks_needed` is no number of tasks.
    names = [name for name in Verdict.__dataclass_fields__ if name in gate]
    values: dict[str, Any] = {
        name: math.nan if gate[name] is None else gate[name] for name in names
    }
    values |= {"tasks_needed": gate.get("tasks_needed"), "reasons": recorded_refusals(gate)}
    return Verdict(**values)


def effective_sample_size(weights: Floats) -> float:
    """Compute the number of equally weighted rollouts that carry the same information.

    ESS = (sum of w)^2 / sum of w^2.

    Source:
        Owen, Monte Carlo theory, methods and examples, eq. 9.13.

    Example:
        >>> effective_sample_size(np.array([1.0, 1.0, 0.0, 0.0]))
        2.0
    """
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def importance_weights(logprobs: Floats, behavior_logprobs: Floats) -> Floats:
    """Compute rho = exp(logprob - behavior_logprob), shape [N].

    Args:
        logprobs: Logprob of each rollout under the new policy, summed over its tokens, shape [N].
        behavior_logprobs: The same under the behavior policy, shape [N].
    """
    # exp(710) overflows a 64-bit float.
    return np.exp(np.minimum(logprobs - behavior_logprobs, 700.0))


def _scores(compared: Compared, logged: Compared, reward_range: Range) -> list[Scores]:
    """Score each task's gain by every estimator whose mean is the gain; report the first one.

    Without a reward model, rollouts are compared with others of their task. `from_limits` is valid
    only if the weights of each task average 1, that is, with exact propensities. Propensities of
    arms are exact; those of sampled tokens are not, so they are compared within tasks instead.
    """
    if compared.modelled and not compared.sampled:
        robust = centred(compared, logged, reward_range)
        return [robust, from_limits(compared, reward_range)]
    within = within_tasks(compared, reward_range)
    if not compared.modelled:
        return [within or centred(compared, logged, reward_range)]
    robust = centred(compared, logged, reward_range)
    return [robust, within] if within else [robust]


def _bounds(
    compared: Compared, logged: Compared, requirements: Requirements, scores: list[Scores]
) -> tuple[float, float]:
    """Bound the gain from both sides; the upper bound is a lower bound with swapped policies."""
    low, high = requirements.rewards.range
    # The gain of the live policy over the new one is minus the gain. So its lower bound, with the
    # sign turned, bounds the gain from above.
    losses = _scores(compared.swapped(), logged.swapped(), requirements.rewards.range)
    if compared.sampled:
        losses = losses[:1]  # differences within tasks underestimate a gain: no bound from above
    upper = -lower_bound(losses, requirements.alpha)
    return max(lower_bound(scores, requirements.alpha), low - high), min(upper, high - low)


def _live_value(compared: Compared) -> float:
    """Estimate the value of the live policy, doubly robustly: a mean over tasks."""
    live = compared.live
    scores = live.modelled_policy + live.weights * (live.rewards - live.modelled_taken)
    return float(per_task(scores, compared.tasks).mean())


def _tasks_needed(
    scores: list[Scores], requirements: Requirements, effective: float = math.inf
) -> float | None:
    """Extrapolate the growth of the wealth to the number of tasks at which it reaches 1 / alpha.

    The number is also enough for `MIN_TASKS` and `MIN_EFFECTIVE_SAMPLE`: an effective sample
    grows in proportion to the tasks.
    """
    best: float | None = None
    least_gain = requirements.least_gain
    for values, lowest in scores:
        # Mean growth of the log wealth per task for each bet size, as in `betting._log_wealth` with
        # m = least_gain. Tasks needed = log of the wealth wanted / growth per task.
        gains = (values - least_gain) / (least_gain - lowest)
        growth: Floats = np.log1p(np.multiply.outer(FRACTIONS, gains)).mean(axis=1)
        wanted = -np.log(requirements.alpha) - np.log(PORTFOLIO / len(scores))
        needed = wanted[growth > 0] / growth[growth > 0]
        if needed.size and (best is None or needed.min() < best):
            best = float(needed.min())
    if best is None or effective <= 0:
        return best
    tasks = len(scores[0][0])
    return max(best, MIN_TASKS, tasks * MIN_EFFECTIVE_SAMPLE / effective)


def _without_tasks(requirements: Requirements) -> Verdict:
    """Refuse, since no task is held out to judge by."""
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
        reasons=(*_too_few(0, 0.0), *_unknown_range(requirements)),
        least_gain=requirements.least_gain,
        reward_range=requirements.rewards.range,
    )


def _too_few(tasks: int, effective: float) -> list[Refusal]:
    reasons = []
    if tasks < MIN_TASKS:
        text = (
            f"{number_of(tasks, 'held-out task is', 'held-out tasks are')} too few to judge by "
            f"({MIN_TASKS} needed: collect more, or raise --held-out)"
        )
        reasons.append(Refusal(Cause.FEW_TASKS, text))
    if effective < MIN_EFFECTIVE_SAMPLE:
        text = (
            f"the importance weights leave an effective sample of {effective:.1f} rollouts "
            f"({MIN_EFFECTIVE_SAMPLE:.0f} needed: collect more rollouts, or make the change "
            "smaller)"
        )
        reasons.append(Refusal(Cause.SMALL_SAMPLE, text))
    return reasons


def _clipped_away(compared: Compared) -> list[Refusal]:
    """Refuse if `clip` removes much of the importance weights, because this may hide a loss."""
    left = float(compared.weights.sum()) / max(float(compared.new.weights.sum()), 1e-300)
    if not compared.clipped or left >= MIN_SHARE_AFTER_CLIPPING:
        return []
    cut = f"--clip cut away {1 - left:.0%} of the importance weights"
    text = f"{cut}, so that part was not judged: make the change smaller, or raise --clip"
    return [Refusal(Cause.CLIPPING, text)]


def unusual_weights(weights: Floats) -> list[Refusal]:
    """Refuse weights whose mean is not 1: the log lacks actions, or the propensities are wrong."""
    if len(weights) < 2:  # noqa: PLR2004 - one value tells nothing about how weights differ
        return []
    mean = float(weights.mean())
    # One-sided 99 % tests: refuse only if the mean weight is significantly below 0.95, or above 1 /
    # 0.95.
    error = float(weights.std(ddof=1)) / len(weights) ** 0.5
    if mean + NORMAL_99 * error < MIN_MEAN_WEIGHT:
        why = "the new policy does what was hardly logged, or the propensities are wrong"
    elif mean - NORMAL_99 * error > 1 / MIN_MEAN_WEIGHT:
        why = "the propensities do not say how often each choice was made"
    else:
        return []
    text = f"the importance weights average {mean:.2f} and not 1: {why}"
    return [Refusal(Cause.MEAN_WEIGHT, text)]


def _unknown_range(requirements: Requirements) -> list[Refusal]:
    return [Refusal(Cause.REWARD_RANGE, text) for text in requirements.rewards.refusals]


def _chance(lower: float, requirements: Requirements) -> list[Refusal]:
    least_gain = requirements.least_gain
    if lower > least_gain:
        return []
    above = "0" if least_gain == 0 else f"the least gain of {least_gain:g}"
    confidence = f"{100 * (1 - requirements.alpha):.4g} %"
    bound = f"with {confidence} confidence (one-sided) it is at least {lower:+.4g}"
    text = f"the gain may be chance: {bound}, which is not above {above}"
    return [Refusal(Cause.CHANCE, text)]
