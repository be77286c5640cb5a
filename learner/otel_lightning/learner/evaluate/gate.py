"""The held-out gate: is what was learned better than what was logged, beyond chance?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.evaluate.off_policy import METHODS, Logged, Method

MINIMUM_TASKS = 10
MINIMUM_EFFECTIVE = 10.0
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate saw and said; `lower` and `upper` each bound the gain with 95 % confidence."""

    estimator: str
    rollouts: int
    tasks: int
    effective_sample_size: float
    behavior_value: float
    value: float
    gain: float
    lower: float
    upper: float
    refusals: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against promoting what was learned."""
        return not self.refusals


def judge(logged: Logged, tasks: NDArray[np.int64], estimator: str, seed: int = 0) -> Verdict:
    """Compare a new policy with the behavior policy on held-out rollouts.

    The gain is the estimated value less the mean logged reward. Its bounds come from a paired
    bootstrap that draws whole tasks, since rollouts of one task resemble each other.

    Args:
        logged: The held-out rollouts as the new policy sees them, shape [N].
        tasks: Number of each rollout's task, shape [N].
        estimator: A name in `off_policy.METHODS`.
        seed: Of the bootstrap.

    Returns:
        The verdict; it refuses what it cannot measure.
    """
    estimate = METHODS[estimator]
    count, effective = len(np.unique(tasks)), effective_sample_size(logged.weights)
    value, behavior = (np.nan, np.nan) if count == 0 else _values(logged, estimate)
    lower, upper = (np.nan, np.nan)
    if count > 0 and logged.weights.any():
        lower, upper = paired_bootstrap(logged, tasks, estimate, seed)
    return Verdict(
        estimator=estimator,
        rollouts=len(logged.rewards),
        tasks=count,
        effective_sample_size=effective,
        behavior_value=behavior,
        value=value,
        gain=value - behavior,
        lower=lower,
        upper=upper,
        refusals=tuple(_refusals(count, effective, lower)),
    )


def effective_sample_size(weights: NDArray[np.float64]) -> float:
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


def paired_bootstrap(
    logged: Logged, tasks: NDArray[np.int64], estimate: Method, seed: int
) -> tuple[float, float]:
    """Bound the gain by resampling tasks: both values come from the same draw.

    Returns:
        The lower and the upper 95 % confidence bound: the 5 % and 95 % quantiles of the gain.

    Source:
        Efron & Tibshirani, An introduction to the bootstrap (1993), chapter 13.
    """
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(tasks == task) for task in np.unique(tasks)]
    gains = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        drawn = rng.integers(len(members), size=len(members))
        value, behavior = _values(
            logged.take(np.concatenate([members[j] for j in drawn])), estimate
        )
        gains[i] = value - behavior
    # A draw without any weight says nothing; counting it as a loss keeps the bound honest.
    gains[np.isnan(gains)] = -np.inf
    lower, upper = np.quantile(gains, [0.05, 0.95], method="inverted_cdf")
    return float(lower), float(upper)


def importance_weights(
    logprobs: NDArray[np.float64], behavior_logprobs: NDArray[np.float64], clip: float
) -> NDArray[np.float64]:
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
    return np.exp(np.minimum(logprobs - behavior_logprobs, np.log(clip)))


def _values(logged: Logged, estimate: Method) -> tuple[float, float]:
    return estimate(logged).value, float(logged.rewards.mean())


def _refusals(tasks: int, effective: float, lower: float) -> list[str]:
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
    if not lower > 0:
        refusals.append(f"the gain may be chance: its lower 95 % bound is {lower:.4g}, not above 0")
    return refusals
