"""Scores and ids of rewards, in one form for all senders."""

import hashlib
import json
import math

from otel_lightning.collector.derive.rows import Attributes
from otel_lightning.collector.derive.text import json_text

UNNAMED = "primary"
"""The name given to a reward without one, which is also Agent Lightning's default."""
_WRITTEN = json.JSONEncoder(default=str).encode
"""`json.dumps(…, default=str)`, which makes a new encoder each time."""


def as_number(value: object) -> float | None:
    """Return a number or a boolean as a number, or None for any other value."""
    return float(value) if isinstance(value, int | float) else None


def number(attributes: Attributes, key: str) -> float | None:
    """Return the value of an attribute that is a number, or None for any other."""
    return as_number(json_text.parse(attributes.get(key)))


def score(attributes: Attributes, key: str) -> float | None:
    """Return the number that an attribute holds, NaN and infinity too, or None for any other.

    The learner refuses a reward of NaN by its name. As None it would count as no reward.
    """
    value = number(attributes, key)
    if value is not None:
        return value
    try:
        # A stored double has the text `NaN`; senders also write `nan`, `inf` or `-Infinity`.
        read = float(attributes.get(key) or "")
    except ValueError:
        return None
    return None if math.isfinite(read) else read


def identity(*carrier: object) -> str:
    """Return a hash as id, so that a reward delivered twice is recognised as a duplicate."""
    return hashlib.sha256(_WRITTEN(carrier).encode()).hexdigest()[:32]
