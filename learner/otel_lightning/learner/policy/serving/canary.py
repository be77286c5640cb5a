"""The shares of a policy that is served alone, or as a canary beside the live policy."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from otel_lightning.collector.store import Store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving import flag_document, flag_rules
from otel_lightning.learner.policy.serving.served import features_of
from otel_lightning.learner.policy.serving.versions import promotions_of
from otel_lightning.learner.policy.softmax import contextual
from otel_lightning.learner.promotions import Row

Shares = dict[str, float]
"""Share of the traffic of each arm."""


class Mixture(NamedTuple):
    """A policy mixed with the live one, as it is written and as it is recorded."""

    weights: flag_document.Weights
    """Weights to write into the flag file."""
    arms: Shares
    """Shares to record, also of the arms that are served to nobody."""
    after: Shares
    """Shares to print."""


def stable_document(store: Store, key: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the flag file; during a canary, as it was before the canary.

    This is the policy to beat: a canary itself was not judged by the data so far.
    """
    part = flag_document.flag_part(document, key)
    # A larger canary may follow a smaller one, so go back to the first of them.
    for row in reversed(promotions_of(store, key)):
        version = flag_document.served_version(part) or ""
        if "@" in version and row["served_version"] == version and row["action"] == "canary":
            part = dict(row["before"])
    return flag_document.with_flag_part(document, key, part)


def mix_with_live(
    policy: Row, stable: dict[str, Any], key: str, share: float, retired: dict[str, int]
) -> Mixture:
    """Give a policy a share of the traffic, and leave the rest to the live policy.

    Args:
        policy: The policy.
        stable: Content of the flag file with the live policy, as `stable_document` returns it.
        key: The flag.
        share: Share of the policy, in (0, 1].
        retired: Weight 0 for each retired variant. Without its line a variant would count as never
            retired.

    Raises:
        DataError: If both policies see the input, and no rule can mix them.
    """
    weights = _weights(policy, stable, key, share, retired)
    if isinstance(weights, dict):
        # In whole weights, as they are written, and not as they were computed.
        arms = {arm: weight / flag_document.WHOLE for arm, weight in weights.items()}
        return Mixture(weights, arms, {arm: part for arm, part in arms.items() if part > 0})
    arms = _mixed(flag_document.live_shares(stable, key), policy["arms"], share)
    return Mixture(weights, arms, arms)


def _mixed(live: Shares, new: Shares, share: float) -> Shares:
    return {arm: share * new.get(arm, 0.0) + (1 - share) * live.get(arm, 0.0) for arm in live | new}


def _weights(
    policy: Row, document: dict[str, Any], key: str, share: float, retired: dict[str, int]
) -> flag_document.Weights:
    """Mix a policy with the live one: weights, rules, or a policy for our OpenFeature provider."""
    if "contextual" not in policy["learned"]:
        live = flag_document.live_shares(document, key)
        return retired | flag_document.integer_weights(_mixed(live, policy["arms"], share))
    learned = contextual.from_parameters(policy["learned"]["contextual"])
    if not _for_flagd(policy):
        return _of_provider(policy, document, key, share)

    def of_cell(cell: Mapping[str, bool]) -> dict[str, int]:
        values = np.array([[float(cell[name]) for name in learned.features]])
        new = dict(zip(learned.arms, learned.probabilities(values)[0].tolist(), strict=True))
        served = {arm: p for arm, p in new.items() if p > 0}
        mixed = _mixed(flag_document.live_shares(document, key, cell), served, share)
        return retired | flag_document.integer_weights(mixed)

    return learned.features, of_cell


def _for_flagd(policy: Row) -> bool:
    """Return whether flagd's rules can express a policy with features."""
    learned = policy["learned"]
    few = len(learned["contextual"]["features"]) <= flag_rules.MAX_FEATURES
    return bool(learned["servable"]) and few


def _of_provider(
    policy: Row, document: dict[str, Any], key: str, share: float
) -> flag_document.ProviderPolicy:
    part = flag_document.flag_part(document, key)
    if share < 1 and features_of(part):
        raise DataError(
            f"Policy {policy['version']} and the live policy of flag '{key}' both see the input, "
            "and a canary cannot mix them. Promote without --canary, or roll back first."
        )
    base = flag_document.live_shares(document, key)
    mean = {arm: p for arm, p in _mixed(base, policy["arms"], share).items() if p > 0}
    parameters = dict(policy["learned"]["contextual"])
    binary = bool(policy["learned"]["servable"])
    mixture = {"share": share, "base": base if share < 1 else {}, "mean_shares": mean}
    return flag_document.ProviderPolicy(parameters | mixture | {"binary": binary})
