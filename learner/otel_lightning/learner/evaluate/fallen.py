"""Refuse a gain that is over: it was earned by the older rollouts, and the newer ones lost it."""

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.evaluate.confidence import NORMAL_95
from otel_lightning.learner.evaluate.gains import Compared, robust_gains, task_numbers
from otel_lightning.learner.evaluate.refusals import Cause, Refusal

NEWEST = {0.5: NORMAL_95, 0.25: NORMAL_95, 0.125: 0.0, 0.0625: 0.0}
"""Shares of the rollouts that are compared with all older ones, and by how many standard errors
their gain must be positive to be confirmed. Small shares confirm little, so only a loss counts."""
FALLEN = 2.50
"""Threshold of a fall, in standard errors: 99.4 % quantile of the normal distribution, since there
are four comparisons."""
MIN_ROLLOUTS = 30
"""Smallest number of rollouts in each part of a comparison."""

SINCE = "leave out with --since what no longer holds"


def fallen(compared: Compared, least_gain: float, remedy: str = SINCE) -> list[Refusal]:
    """Return a refusal if the gain fell with time, and the newer rollouts alone do not confirm it.

    The value of a policy on the whole log is its value in the past. After a change of the agent's
    world the newest rollouts tell the future best. This can only refuse, so rollouts that the
    policy was learned from may be compared as well.

    Args:
        compared: Logged rollouts, the oldest first.
        least_gain: The newer rollouts must show a gain above this.
        remedy: What to do, as the end of a sentence.
    """
    scores = robust_gains(compared)
    for share, confirmed in NEWEST.items():
        # Rollouts are in time order, so the newest ones are the last ones.
        place = round(len(scores) * (1 - share))
        if min(place, len(scores) - place) < MIN_ROLLOUTS:
            continue
        older, old_error = _mean(scores[:place], compared.tasks[:place])
        newer, error = _mean(scores[place:], compared.tasks[place:])
        has_fallen = older - newer > FALLEN * (error**2 + old_error**2) ** 0.5
        # Both must hold: a gain that fell and is still surely above the least gain is no reason to
        # refuse.
        if has_fallen and newer - confirmed * error <= least_gain:
            text = (
                f"the gain fell from {older:+.4g} in the older rollouts to {newer:+.4g} in the "
                f"newest {len(scores) - place}: {remedy}"
            )
            return [Refusal(Cause.FALLEN, text)]
    return []


def _mean(scores: Floats, tasks: Integers) -> tuple[float, float]:
    """Compute a mean and its standard error; rollouts of one task are correlated."""
    mean = float(scores.mean())
    # Cluster-robust standard error: deviations are added up within a task before they are squared.
    sums = np.bincount(task_numbers(tasks), scores - mean)
    return mean, float((sums**2).sum()) ** 0.5 / len(scores)
