"""The share of each arm that a flag serves for each logged input: by rules, or by our provider."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.policy.serving import flag_document, flag_rules
from otel_lightning.learner.policy.softmax import contextual
from otel_lightning.learner.policy.softmax.features import Features

Part = Mapping[str, Any]
"""Targeting and metadata of a flag, as `flag_document.flag_part` returns them."""


def features_of(part: Part) -> list[str]:
    """List the features that a flag's policy sees."""
    policy = flag_document.provider_policy(part)
    return list(policy["features"]) if policy else flag_rules.features_of(part["targeting"])


def arms_of(part: Part) -> set[str]:
    """Find the arms that a flag's policy may serve for some input."""
    policy = flag_document.provider_policy(part)
    if policy:
        return set(policy["arms"]) | set(policy["base"])
    names = flag_rules.features_of(part["targeting"])
    return {
        arm
        for cell in flag_rules.cells(names)
        for arm in flag_rules.shares_of_cell(part["targeting"], cell)
    }


def shares_in_context(
    part: Part, features: Features, arms: Sequence[str], by_default: Mapping[str, float]
) -> Floats:
    """Compute the share of each arm for each input, shape [N, K].

    Args:
        part: Targeting and metadata of the flag.
        features: Features of the inputs, with at least those that the policy sees.
        arms: Names of the K arms.
        by_default: Shares where the flag has no targeting.
    """
    policy = flag_document.provider_policy(part)
    if policy:
        return _by_provider(policy, features, arms)
    is_set = np.nan_to_num(features.values) > 0
    # Evaluate the rules once per distinct combination of features, not once per rollout.
    cells, number = np.unique(is_set, axis=0, return_inverse=True)
    rows = np.zeros((len(cells), len(arms)))
    for i, cell in enumerate(cells.tolist()):
        features_of_cell = dict(zip(features.names, cell, strict=True))
        targeting = part["targeting"]
        shares = (
            flag_rules.shares_of_cell(targeting, features_of_cell) if targeting else None
        ) or by_default
        rows[i] = [shares.get(arm, 0.0) for arm in arms]
    return np.asarray(rows[number.ravel()], dtype=np.float64)


def _by_provider(policy: Mapping[str, Any], features: Features, arms: Sequence[str]) -> Floats:
    learned = contextual.from_parameters(dict(policy))
    values = features.values[:, [features.names.index(name) for name in learned.features]]
    if policy["binary"]:
        values = np.nan_to_num(values, nan=0.0)
    probabilities = learned.probabilities(values)
    rows = np.zeros((len(values), len(arms)))
    for number, arm in enumerate(arms):
        if arm in learned.arms:
            rows[:, number] = policy["share"] * probabilities[:, learned.arms.index(arm)]
        # A canary of our provider draws first between the new policy and the live shares: the
        # propensity is the mixture.
        rows[:, number] += (1 - policy["share"]) * policy["base"].get(arm, 0.0)
    return rows
