"""The value of a policy, estimated from what another policy did: one pure function a file."""

from collections.abc import Callable

from otel_lightning.learner.evaluate.off_policy.doubly_robust import doubly_robust
from otel_lightning.learner.evaluate.off_policy.ips import ips
from otel_lightning.learner.evaluate.off_policy.logged import Estimate, Logged
from otel_lightning.learner.evaluate.off_policy.snips import snips

Method = Callable[[Logged], Estimate]

METHODS: dict[str, Method] = {"ips": ips, "snips": snips, "doubly_robust": doubly_robust}

__all__ = ["METHODS", "Estimate", "Logged", "Method"]
