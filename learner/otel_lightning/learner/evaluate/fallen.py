"""Refuse a gain that is over: it was earned by the older rollouts, and the newer ones lost it."""

import math

import numpy as np

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.evaluate.confidence import NORMAL_95
from otel_lightning.learner.evaluate.gains import Compared, robust_gains, task_numbers
from otel_lightning.learner.evaluate.refusals import Cause, Refusal

NEWEST = {0.5: NORMAL_95, 0.25: NORMAL_95, 0.125: 0.0, 0.0625: 0.0}
"""Shares of the rollouts that are compared with all older ones, and by how many standard errors
their gain must be positive to be confirmed. Small shares confirm little, so only a loss counts."""
FALLEN = 2.15
"""Threshold of a fall, in standard errors. If nothing changes, the largest of the four differences
is above it in 5 % of the logs: the 95 % quantile of their maximum, which are correlated."""
MIN_ROLLOUTS = 12
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
    scores, tasks = robust_gains(compared), compared.tasks
    for share, confirmed in NEWEST.items():
        # Rollouts are in time order, so the newest ones are the last ones.
        place = round(len(scores) * (1 - share))
        if min(place, len(scores) - place) < MIN_ROLLOUTS:
            continue
        older, newer = float(scores[:place].mean()), float(scores[place:].mean())
        spread = _spread(scores - np.repeat([older, newer], [place, len(scores) - place]), tasks)
        error = spread / (len(scores) - place) ** 0.5
        of_difference = spread * (1 / place + 1 / (len(scores) - place)) ** 0.5
        has_fallen = older - newer > FALLEN * of_difference
        # Both must hold: a gain that fell and is still surely above the least gain is no reason to
        # refuse.
        if has_fallen and newer - confirmed * error <= least_gain:
            text = (
                f"the gain fell from {older:+.4g} in the older rollouts to {newer:+.4g} in the "
                f"newest {len(scores) - place}: {remedy}"
            )
            return [Refusal(Cause.FALLEN, text)]
    return []


def _spread(deviations: Floats, tasks: Integers) -> float:
    """Estimate the standard error of the mean of one rollout; rollouts of a task are correlated.

    Both parts of a comparison have the same spread: a small part alone, of few tasks, has a spread
    that is too uncertain to see a fall by.
    """
    # Cluster-robust: deviations are added up within a task before they are squared.
    sums = np.bincount(task_numbers(tasks), deviations)
    variance = float((sums**2).sum()) / len(deviations)
    return math.sqrt(variance)
