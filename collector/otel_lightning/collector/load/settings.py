"""Settings of the loader: retention, attribute limits, and how it derives."""

from dataclasses import dataclass

from otel_lightning.collector.load.decoding.attribute_limits import NO_LIMITS, Limits
from otel_lightning.collector.refresh.refresh import SPANS_AT_ONCE

MAX_LAG_SECONDS = 30.0
"""Lag in seconds, from receiving to derived rows, near which senders are slowed."""


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """Settings of the loader beside storing: retention, limits and deriving."""

    retain_seconds: float | None = None
    """Age at which a trace is deleted; None keeps traces of any age."""
    max_bytes: int | None = None
    """Size at which the oldest traces are deleted; None does not limit the size."""
    derive: bool = True
    """Whether to derive new spans and logs after they are stored."""
    spans_at_once: int = SPANS_AT_ONCE
    """Number of spans that one refresh derives."""
    workers: int = 1
    """Processes that derive; with 0 or 1 the loader's thread derives."""
    limits: Limits = NO_LIMITS
    """Limits on the length and the number of stored attributes."""
    max_lag_seconds: float = MAX_LAG_SECONDS
    """Lag near which senders are slowed."""
