"""Confidence intervals of one estimator's value; intervals that are not reliable are left out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.evaluate import intervals, off_policy
from otel_lightning.learner.evaluate.betting import Scores, log_wealth
from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.gains import per_task, per_task_counts
from otel_lightning.learner.evaluate.intervals import Interval
from otel_lightning.learner.evaluate.off_policy import Logged
from otel_lightning.learner.evaluate.off_policy.clipped_ips import CLIP
from otel_lightning.learner.evaluate.off_policy.dr_os import SHRINKAGE
from otel_lightning.learner.evaluate.off_policy.switch_dr import THRESHOLD

BIASED = frozenset({"clipped_ips", "direct_method", "switch_dr", "dr_os"})
"""Biased estimators: their intervals hold the estimator's own expectation, not the true value."""
STEADY = 0.01
"""Largest share of the expected sum of squares that one possible value may have. Above it, one
value that was not drawn could change the mean, so the normal approximation and the bootstrap are
left out."""
CLUSTERED = 2.0
"""Ratio of the variance between tasks to that of independent rollouts above which the rollouts of a
task count as one value."""
STEPS = 40


@dataclass(frozen=True, slots=True)
class Estimated:
    """A value by one estimator with its intervals; None for an interval that is not reliable."""

    method: str
    value: float
    standard_error: float
    normal: Interval | None
    bootstrap: Interval | None
    bernstein: Interval | None
    betting: Interval | None
    biased: bool = False
    """Whether the intervals hold only the estimator's expectation, which may not be the value."""


def estimated(
    method: str, logged: Logged, tasks: Integers, reward_range: Interval, seed: int = 0
) -> Estimated:
    """Estimate a value by one method, with every interval that is reliable.

    The intervals of a method in `BIASED` say how precise it is, not where the value is.

    Args:
        method: A name in `off_policy.METHODS`.
        logged: Rewards and importance weights of the rollouts, shape [N].
        tasks: Number of each rollout's task, shape [N].
        reward_range: Smallest and largest possible reward.
        seed: Seed of the bootstrap.
    """
    estimate = off_policy.METHODS[method](logged)
    by_task = intervals.by_task(estimate, tasks)
    biased = method in BIASED
    if not np.isfinite(by_task.value):
        nothing = (None, None, None, None)
        return Estimated(method, by_task.value, by_task.standard_error, *nothing, biased)
    if method == "snips":
        # A ratio has no scores with known limits. So its intervals come from inverting a test of w
        # * (r - v), which has mean 0 at the true v.
        limits = snips_limits(logged, reward_range, by_task.value)
        values = per_task(estimate.numerators - by_task.value * estimate.denominators, tasks)
        bernstein, betting = (
            _by_inversion(logged, tasks, reward_range, by_task.value, by)
            for by in (_bernstein_rejects, _betting_rejects)
        )
    else:
        limits = score_limits(method, logged, reward_range)
        values = by_task.numerators + _by_model(method, logged, tasks)
        by_task = replace(by_task, numerators=values)
        bernstein = intervals.empirical_bernstein(values, limits)
        betting = intervals.betting(values, limits)
    steady = logged.unseen == 0 and _steady(method, logged, values, tasks, limits)
    # A biased estimator's own expectation may lie outside the range of the rewards, so its interval
    # is clipped to its scores' limits instead.
    possible = limits if biased and reward_range[0] < reward_range[1] else reward_range
    return Estimated(
        method=method,
        value=by_task.value,
        standard_error=by_task.standard_error,
        normal=by_task.interval if steady else None,
        bootstrap=intervals.bootstrap(by_task, seed) if steady else None,
        bernstein=_within(bernstein, logged.unseen, possible),
        betting=_within(betting, logged.unseen, possible),
        biased=biased,
    )


def outside_range(values: Mapping[str, float], reward_range: Interval) -> list[str]:
    """Return the names of values that no policy can have, beyond rounding.

    An estimate that weights rewards may leave the range of the rewards. It is not clipped: clipped
    values are biased, and the others of the same estimator would not be comparable.

    Source:
        Sutton & Barto, Reinforcement Learning (2nd ed.), section 5.5.

    Example:
        >>> outside_range({"ips": 1.2, "snips": 0.9}, (0.0, 1.0))
        ['ips']
    """
    low, high = reward_range
    rounding = 1e-9 * max(1.0, abs(low), abs(high))
    return [n for n, value in values.items() if value < low - rounding or value > high + rounding]


def _by_model(method: str, logged: Logged, tasks: Integers) -> Floats:
    """Compute how much each task moved the value by its part in the model's fit, shape [T].

    One model makes all predictions, so the spread of the scores alone is not the standard error.
    """
    if logged.fit is None or method not in logged.fit.weights:
        return np.zeros(len(per_task_counts(tasks)))
    residuals = logged.rewards - logged.fit.fitted
    moved = per_task(logged.fit.weights[method] * residuals, tasks)
    return np.asarray(moved - moved.mean(), dtype=np.float64)


def score_limits(method: str, logged: Logged, reward_range: Interval) -> Interval:
    """Compute the smallest and largest possible score of a rollout from the logged weights."""
    low, high = reward_range
    weights = used_weights(method, logged.weights)
    if method in {"ips", "clipped_ips"}:
        most = float(weights.max(initial=0.0))
        return min(0.0, most * low), max(0.0, most * high)
    by_fit, fitted = _fit_of(method, logged)
    # A score is linear in the rollout's reward, so its extremes are at the two ends of the range.
    ends = [
        logged.modelled_policy + weights * (end - logged.modelled_taken) + by_fit * (end - fitted)
        for end in reward_range
    ]
    return (
        float(np.minimum(*ends).min(initial=low)),
        float(np.maximum(*ends).max(initial=high)),
    )


def _fit_of(method: str, logged: Logged) -> tuple[Floats, Floats]:
    """Return each rollout's weight in the model's fit, and the fitted reward."""
    if logged.fit is None or method not in logged.fit.weights:
        return np.zeros_like(logged.rewards), logged.rewards
    return logged.fit.weights[method], logged.fit.fitted


def used_weights(method: str, weights: Floats) -> Floats:
    """Return the weights as a method uses them: clipped, shrunk or left out."""
    if method == "clipped_ips":
        return np.minimum(weights, CLIP)
    if method == "switch_dr":
        return np.where(weights <= THRESHOLD, weights, 0.0)
    if method == "dr_os":
        return np.asarray(SHRINKAGE * weights / (weights**2 + SHRINKAGE), dtype=np.float64)
    return np.zeros_like(weights) if method == "direct_method" else weights


def snips_limits(logged: Logged, reward_range: Interval, value: float) -> Interval:
    """Compute the limits of w * (r - value), whose mean is 0 if `value` is the true value."""
    most = float(logged.weights.max(initial=0.0))
    return most * min(0.0, reward_range[0] - value), most * max(0.0, reward_range[1] - value)


def _steady(method: str, logged: Logged, values: Floats, tasks: Integers, limits: Interval) -> bool:
    """Return whether no possible value is so extreme that a few of them would decide the mean.

    The sum of squares is the expected one: weights by the propensities, and the variance of the
    rewards over all arms. The squares that were drawn go up and down with the value itself, so they
    would let an interval through exactly where the value happens to be too high.
    """
    counts = per_task_counts(tasks)
    variance = _variance(method, logged)
    least = float(variance * (1 / counts).sum())
    furthest = max(abs(limits[0]), abs(limits[1]))
    # If the rollouts of a task move together, one task can deviate by the whole distance. If they
    # are independent, one rollout moves the mean of its task only by its share.
    together = float(((values - values.mean()) ** 2).sum()) > CLUSTERED * least
    largest = furthest if together else furthest / float(counts.min())
    return least > 0 and largest**2 <= STEADY * least


def _variance(method: str, logged: Logged) -> float:
    """Compute the expected variance of a rollout's score."""
    expected = 1.0 if logged.expected is None else logged.expected
    weights = used_weights(method, logged.weights) + _fit_of(method, logged)[0]
    square = float((expected * weights**2).mean())
    mean = float(logged.rewards.mean())
    # Var(w * r) = E[w^2] * E[r^2] - E[r]^2, if weights and rewards are independent and E[w] = 1.
    if method in {"ips", "clipped_ips"}:
        return square * float((logged.rewards**2).mean()) - mean**2
    centre = mean if method == "snips" else logged.modelled_taken
    return square * float(((logged.rewards - centre) ** 2).mean())


Rejects = Callable[[Floats, Interval], bool]
"""Test whether values between limits have a mean above 0, with error probability ALPHA / 2."""


def _bernstein_rejects(means: Floats, limits: Interval) -> bool:
    return intervals.empirical_bernstein(means, limits)[0] > 0


def _betting_rejects(means: Floats, limits: Interval) -> bool:
    return log_wealth(Scores(means, limits[0]), 0.0) >= -float(np.log(ALPHA / 2))


def _by_inversion(
    logged: Logged,
    tasks: Integers,
    reward_range: Interval,
    value: float,
    rejects: Rejects,
) -> Interval:
    """Bound a self-normalized value by inverting a test: v is too low if E[w * (r - v)] > 0."""

    def too_far(bound: float, side: float) -> bool:
        means = per_task(side * logged.weights * (logged.rewards - bound), tasks)
        low, high = snips_limits(logged, reward_range, bound)
        limits = (low, high) if side > 0 else (-high, -low)
        return limits[0] < 0 and rejects(means, limits)

    ends = []
    # Once for the lower end and once, with the sign of the scores turned, for the upper end.
    for side, end in ((1.0, reward_range[0]), (-1.0, reward_range[1])):
        outer, inner = end, value  # `inner` is never rejected: the mean there is 0
        # If even the end of the range cannot be rejected, it is the bound. It is nudged inwards,
        # because at the very end a limit of the scores is 0 and the test cannot reject.
        if not too_far(_nudged(outer, inner), side):
            ends.append(end)
            continue
        for _ in range(STEPS):
            # Invariant of the bisection: `outer` is rejected, `inner` is not. The bound returned is
            # the rejected side, so rounding never makes the interval too narrow.
            middle = (outer + inner) / 2
            outer, inner = (middle, inner) if too_far(middle, side) else (outer, middle)
        ends.append(outer)
    return ends[0], ends[1]


def _nudged(outer: float, inner: float) -> float:
    return outer + (inner - outer) * 1e-6


def _within(interval: Interval, unseen: float, limits: Interval) -> Interval | None:
    """Widen an interval by the possible value of unseen actions, and clip it to possible values.

    Returns:
        The interval. None if no possible value is in it, because the propensities are wrong, or if
        there is one possible value only, because nobody gave the range of the rewards.
    """
    unknown = unseen * (limits[1] - limits[0])
    low, high = max(interval[0] - unknown, limits[0]), min(interval[1] + unknown, limits[1])
    return (low, high) if low <= high and limits[0] < limits[1] else None
