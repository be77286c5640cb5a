"""Estimate a policy's value with confidence intervals; unreliable intervals are left out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.evaluate import intervals, off_policy
from otel_lightning.learner.evaluate.betting import Scores, log_wealth
from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.gains import per_task, per_task_counts
from otel_lightning.learner.evaluate.intervals import Interval
from otel_lightning.learner.evaluate.off_policy import Logged, Method

MAX_SHARE_OF_ONE_VALUE = 0.01
"""Largest share of the expected sum of squares that one possible value may have. Above it, one
value that was not drawn could change the mean, so the normal approximation and the bootstrap are
left out."""
CLUSTERED = 2.0
"""Ratio of the variance between tasks to that of independent rollouts above which the rollouts of a
task count as one value."""
BISECTION_STEPS = 40


@dataclass(frozen=True, slots=True)
class ValueEstimate:
    """A value by one estimator with its intervals; None for an interval that is not reliable."""

    method: str
    """Name of the estimator."""
    value: float
    standard_error: float
    normal: Interval | None
    bootstrap: Interval | None
    bernstein: Interval | None
    betting: Interval | None
    biased: bool = False
    """Whether the intervals hold only the estimator's expectation, which may not be the value."""


def estimate_value(
    name: str, logged: Logged, tasks: Integers, reward_range: Interval, seed: int = 0
) -> ValueEstimate:
    """Estimate a value by one estimator, with every interval that is reliable.

    The intervals of a biased estimator say how precise it is, not where the value is.

    Args:
        name: A name in `off_policy.METHODS`.
        logged: Rewards and importance weights of the rollouts, shape [N].
        tasks: Number of each rollout's task, shape [N].
        reward_range: Smallest and largest possible reward.
        seed: Seed of the bootstrap.
    """
    method = off_policy.METHODS[name]
    estimate = method(logged)
    by_task = intervals.by_task(estimate, tasks)
    if not np.isfinite(by_task.value):
        no_intervals = (None, None, None, None)
        return ValueEstimate(
            name, by_task.value, by_task.standard_error, *no_intervals, method.biased
        )
    if method.is_ratio:
        # A ratio has no scores with known limits. So its intervals come from inverting a test of
        # w * (r - v), which has mean 0 at the true v.
        limits = ratio_limits(logged, reward_range, by_task.value)
        values = per_task(estimate.numerators - by_task.value * estimate.denominators, tasks)
        bernstein, betting = (
            _interval_by_inversion(logged, tasks, reward_range, by_task.value, rejects)
            for rejects in (_bernstein_rejects, _betting_rejects)
        )
    else:
        limits = score_limits(method, logged, reward_range)
        values = by_task.numerators + _influence_on_model(method, logged, tasks)
        by_task = replace(by_task, numerators=values)
        bernstein = intervals.empirical_bernstein(values, limits)
        betting = intervals.betting(values, limits)
    is_normal = logged.unseen == 0 and _is_normal(method, logged, values, tasks, limits)
    # A biased estimator's own expectation may lie outside the range of the rewards, so its interval
    # is clipped to its scores' limits instead.
    clips_to_scores = method.biased and reward_range[0] < reward_range[1]
    possible = limits if clips_to_scores else reward_range
    return ValueEstimate(
        method=name,
        value=by_task.value,
        standard_error=by_task.standard_error,
        normal=by_task.interval if is_normal else None,
        bootstrap=intervals.bootstrap(by_task, seed) if is_normal else None,
        bernstein=_within_possible(bernstein, logged.unseen, possible),
        betting=_within_possible(betting, logged.unseen, possible),
        biased=method.biased,
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


def _influence_on_model(method: Method, logged: Logged, tasks: Integers) -> Floats:
    """Compute how much each task moved the value by its part in the model's fit, shape [T].

    One model makes all predictions, so the spread of the scores alone is not the standard error.
    """
    if logged.fit is None or method.name not in logged.fit.weights:
        return np.zeros(len(per_task_counts(tasks)))
    residuals = logged.rewards - logged.fit.fitted
    moved = per_task(logged.fit.weights[method.name] * residuals, tasks)
    return np.asarray(moved - moved.mean(), dtype=np.float64)


def score_limits(method: Method, logged: Logged, reward_range: Interval) -> Interval:
    """Compute the smallest and largest possible score of a rollout from the logged weights."""
    low, high = reward_range
    weights = method.weights(logged.weights)
    if not method.uses_model:
        largest = float(weights.max(initial=0.0))
        return min(0.0, largest * low), max(0.0, largest * high)
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


def _fit_of(method: Method, logged: Logged) -> tuple[Floats, Floats]:
    """Return each rollout's weight in the model's fit, and the fitted reward, both shape [N]."""
    if logged.fit is None or method.name not in logged.fit.weights:
        return np.zeros_like(logged.rewards), logged.rewards
    return logged.fit.weights[method.name], logged.fit.fitted


def ratio_limits(logged: Logged, reward_range: Interval, value: float) -> Interval:
    """Compute the limits of w * (r - value), whose mean is 0 if `value` is the true value."""
    largest = float(logged.weights.max(initial=0.0))
    return largest * min(0.0, reward_range[0] - value), largest * max(0.0, reward_range[1] - value)


def _is_normal(
    method: Method, logged: Logged, values: Floats, tasks: Integers, limits: Interval
) -> bool:
    """Return whether the mean of the values is about normal: no possible value can decide it.

    The sum of squares is the expected one: weights by the propensities, and the variance of the
    rewards over all arms. The squares that were drawn go up and down with the value itself, so they
    would let an interval through exactly where the value happens to be too high.

    Args:
        method: The estimator.
        logged: The rollouts, shape [N].
        values: Score of each task, shape [T].
        tasks: Number of each rollout's task, shape [N].
        limits: Smallest and largest possible score of a rollout.
    """
    counts = per_task_counts(tasks)
    expected_squares = float(_expected_variance(method, logged) * (1 / counts).sum())
    furthest = max(abs(limits[0]), abs(limits[1]))
    # If the rollouts of a task move together, one task can deviate by the whole distance. If they
    # are independent, one rollout moves the mean of its task only by its share.
    drawn_squares = float(((values - values.mean()) ** 2).sum())
    move_together = drawn_squares > CLUSTERED * expected_squares
    largest = furthest if move_together else furthest / float(counts.min())
    return expected_squares > 0 and largest**2 <= MAX_SHARE_OF_ONE_VALUE * expected_squares


def _expected_variance(method: Method, logged: Logged) -> float:
    """Compute the expected variance of a rollout's score."""
    expected = 1.0 if logged.expected is None else logged.expected
    weights = method.weights(logged.weights) + _fit_of(method, logged)[0]
    mean_square = float((expected * weights**2).mean())
    mean = float(logged.rewards.mean())
    if method.is_ratio:
        return mean_square * float(((logged.rewards - mean) ** 2).mean())
    if method.uses_model:
        return mean_square * float(((logged.rewards - logged.modelled_taken) ** 2).mean())
    # Var(w * r) = E[w^2] * E[r^2] - E[r]^2, if weights and rewards are independent and E[w] = 1.
    return mean_square * float((logged.rewards**2).mean()) - mean**2


Rejects = Callable[[Floats, Interval], bool]
"""Test whether values between limits have a mean above 0, with error probability ALPHA / 2."""


def _bernstein_rejects(means: Floats, limits: Interval) -> bool:
    return intervals.empirical_bernstein(means, limits)[0] > 0


def _betting_rejects(means: Floats, limits: Interval) -> bool:
    return log_wealth(Scores(means, limits[0]), 0.0) >= -float(np.log(ALPHA / 2))


def _interval_by_inversion(
    logged: Logged,
    tasks: Integers,
    reward_range: Interval,
    value: float,
    rejects: Rejects,
) -> Interval:
    """Bound a self-normalized value by inverting a test: v is too low if E[w * (r - v)] > 0."""

    def too_far(bound: float, side: float) -> bool:
        means = per_task(side * logged.weights * (logged.rewards - bound), tasks)
        low, high = ratio_limits(logged, reward_range, bound)
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
        for _ in range(BISECTION_STEPS):
            # Invariant of the bisection: `outer` is rejected, `inner` is not. The bound returned is
            # the rejected side, so rounding never makes the interval too narrow.
            middle = (outer + inner) / 2
            outer, inner = (middle, inner) if too_far(middle, side) else (outer, middle)
        ends.append(outer)
    return ends[0], ends[1]


def _nudged(outer: float, inner: float) -> float:
    return outer + (inner - outer) * 1e-6


def _within_possible(interval: Interval, unseen: float, limits: Interval) -> Interval | None:
    """Widen an interval by the possible value of unseen actions, and clip it to possible values.

    Returns:
        The interval. None if no possible value is in it, because the propensities are wrong, or if
        there is one possible value only, because nobody gave the range of the rewards.
    """
    unknown = unseen * (limits[1] - limits[0])
    low, high = max(interval[0] - unknown, limits[0]), min(interval[1] + unknown, limits[1])
    return (low, high) if low <= high and limits[0] < limits[1] else None
