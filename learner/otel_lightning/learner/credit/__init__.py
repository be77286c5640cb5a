"""From rewards to advantages: one pure function a file, all with one signature.

Each takes `(rewards, rollouts, groups, gamma)`, arrays of shape [N] over calls in the order of
rollout and step: the reward at each call, the number of its rollout and the number of its task.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from otel_lightning.learner.credit.group import group
from otel_lightning.learner.credit.identical import identical
from otel_lightning.learner.credit.return_to_go import return_to_go

Method = Callable[
    [NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], float], NDArray[np.float64]
]

METHODS: dict[str, Method] = {
    "identical": identical,
    "return_to_go": return_to_go,
    "group": group,
}
