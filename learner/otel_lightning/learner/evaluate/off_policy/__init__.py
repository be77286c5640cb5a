"""Estimators of a policy's value from the actions of another policy: one function per file."""

from collections.abc import Callable

from otel_lightning.learner.evaluate.off_policy.clipped_ips import clipped_ips
from otel_lightning.learner.evaluate.off_policy.direct_method import direct_method
from otel_lightning.learner.evaluate.off_policy.doubly_robust import doubly_robust
from otel_lightning.learner.evaluate.off_policy.dr_os import dr_os
from otel_lightning.learner.evaluate.off_policy.ips import ips
from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Fit, Logged
from otel_lightning.learner.evaluate.off_policy.snips import snips
from otel_lightning.learner.evaluate.off_policy.switch_dr import switch_dr

Method = Callable[[Logged], Estimate]

METHODS: dict[str, Method] = {
    "ips": ips,
    "snips": snips,
    "clipped_ips": clipped_ips,
    "direct_method": direct_method,
    "doubly_robust": doubly_robust,
    "switch_dr": switch_dr,
    "dr_os": dr_os,
}

__all__ = ["METHODS", "Estimate", "Fit", "Logged", "Method"]
