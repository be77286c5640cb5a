"""Policy versions that the store knows."""

import json

from otel_lightning.collector.store import Store
from otel_lightning.learner.named_sql import read


def known_versions(store: Store, key: str) -> dict[str, dict[str, float]]:
    """Read the probability of each arm of a flag, by policy version."""
    policies = read(store, __package__, "policies").filter(key=key)
    return {
        row["version"]: json.loads(row["arms"])
        for row in policies.iter_rows(named=True)
        if row["arms"]
    }
