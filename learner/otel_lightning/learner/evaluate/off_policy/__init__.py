"""Off-policy estimators, one file each: the value of a policy from the actions of another policy.

`logged.py` has the input and the result of every estimator. To add one, write its file, which ends
with its `METHOD`, and put its name into `NAMES`.
`docs/explanation/off-policy.md` compares them.
"""

from importlib import import_module

from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Fit, Logged
from otel_lightning.learner.evaluate.off_policy.method import Method

NAMES = (
    "ips",
    "snips",
    "clipped_ips",
    "direct_method",
    "doubly_robust",
    "switch_dr",
    "dr_os",
)
"""Names of the estimators and of their files, in the order of the tables of `evaluate`."""

METHODS: dict[str, Method] = {name: import_module(f"{__package__}.{name}").METHOD for name in NAMES}

__all__ = ["METHODS", "NAMES", "Estimate", "Fit", "Logged", "Method"]
