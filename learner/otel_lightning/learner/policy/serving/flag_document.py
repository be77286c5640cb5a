"""Read and change the content of a flag file in memory: which arms a flag serves, and how often.

A document is the parsed JSON of a flagd flag file. `flag_file.py` reads and writes the file.
"""

import copy
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from otel_lightning.instrumentation.attributes import POLICY, POLICY_VERSION, PROPENSITY
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving import flag_rules, joint

WHOLE = 10_000
"""Sum of a flag's weights."""
SHARE_UNIT = 1 / WHOLE
"""Smallest share of the traffic that a weight can express; shares closer than this are equal."""


class ProviderPolicy(NamedTuple):
    """A policy that only our OpenFeature provider can serve."""

    policy: Mapping[str, Any]
    """The JSON of `lightning.policy`, without the version."""


InContext = tuple[Sequence[str], Callable[[Mapping[str, bool]], Mapping[str, int]]]
"""Names of features, and a function from a combination of their values to the arms' weights."""
Weights = Mapping[str, int] | InContext | ProviderPolicy


def variants(document: Mapping[str, Any], key: str) -> list[str]:
    """List the variants of a flag, in the order of the file."""
    return list(document["flags"][key].get("variants") or {})


def retired(document: Mapping[str, Any], key: str) -> set[str]:
    """Find retired variants: the targeting gives them weight 0, so they are never served."""
    targeting = document["flags"][key].get("targeting") or {}
    if not targeting:  # the default variant gets all traffic
        return set()
    names = flag_rules.features_of(targeting)
    listed = [flag_rules.shares_of_cell(targeting, cell) for cell in flag_rules.cells(names)]
    named = {arm for shares in listed for arm in shares}
    return {arm for arm in named if all(shares.get(arm, 0.0) == 0 for shares in listed)}


def live_shares(
    document: Mapping[str, Any], key: str, cell: Mapping[str, bool] | None = None
) -> dict[str, float]:
    """Compute the share of traffic that each variant gets now, by the flag's targeting.

    Args:
        document: The content of the file.
        key: The flag.
        cell: The features of an input; None averages over all combinations of features.

    Returns:
        Shares that add up to 1. Without targeting, the default variant has all traffic.
    """
    flag = document["flags"][key]
    if policy := provider_policy(flag):
        return dict(policy["mean_shares"])
    targeting = flag.get("targeting") or {}
    default = flag.get("defaultVariant")
    by_default = {str(default): 1.0} if default is not None else {}
    if not targeting or flag.get("state", "ENABLED") != "ENABLED":
        return by_default
    # Without a given input every combination of features counts equally: the true frequencies are
    # not in the file.
    among = flag_rules.cells(flag_rules.features_of(targeting)) if cell is None else [dict(cell)]
    shares: dict[str, float] = {}
    for features in among:
        for arm, share in (flag_rules.shares_of_cell(targeting, features) or by_default).items():
            shares[arm] = shares.get(arm, 0.0) + share / len(among)
    return {arm: share for arm, share in shares.items() if share > 0}


def served_version(part: Mapping[str, Any]) -> str | None:
    """Return the version of the policy that a flag serves, or None."""
    policy = provider_policy(part)
    version = policy["version"] if policy else part["metadata"].get(POLICY_VERSION)
    return None if version is None else str(version)


def provider_policy(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the policy of a flag that our OpenFeature provider serves, or None."""
    text = (part.get("metadata") or {}).get(POLICY)
    policy: dict[str, Any] | None = None if text is None else json.loads(str(text))
    return policy


def check_serves(document: Mapping[str, Any], key: str, path: Path) -> None:
    """Refuse a flag that serves no variant: agents get the default in their own code then.

    Raises:
        DataError: If the flag is disabled, or has neither targeting nor a default variant.
    """
    if document["flags"][key].get("state", "ENABLED") != "ENABLED":
        raise DataError(
            f"Flag '{key}' in '{path}' is disabled, so no variant would be served. Set its state "
            "to ENABLED."
        )
    if not live_shares(document, key):
        raise DataError(
            f"Flag '{key}' in '{path}' serves nothing: it has no targeting and no default variant. "
            "Give it one of the two."
        )


def check_logged(logged: Collection[str], served: Collection[str], key: str, path: Path) -> None:
    """Refuse rollouts that are all of other variants than a flag may serve.

    Args:
        logged: Variants of the rollouts.
        served: Variants that the flag file may serve.
        key: The flag.
        path: The flag file.

    Raises:
        DataError: If none of the variants was logged.
    """
    if not set(logged) & set(served):
        raise DataError(
            f"No rollout of flag '{key}' is of a variant in '{path}', which has: "
            f"{', '.join(served)}. The rollouts are of: {', '.join(sorted(logged))}. Collect "
            "rollouts of the present variants, or give the flag file that was served."
        )


def integer_weights(probabilities: Mapping[str, float]) -> dict[str, int]:
    """Round probabilities to integer weights that add up to `WHOLE`, largest remainders first.

    Example:
        >>> integer_weights({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})
        {'a': 3334, 'b': 3333, 'c': 3333}
    """
    weights = {arm: int(WHOLE * share) for arm, share in probabilities.items()}
    # Rounded down, the weights miss at most one unit per arm. Those units go to the arms that lost
    # most by rounding (largest remainder method).
    by_remainder = sorted(probabilities, key=lambda arm: weights[arm] - WHOLE * probabilities[arm])
    for arm in by_remainder[: WHOLE - sum(weights.values())]:
        weights[arm] += 1
    return weights


def flag_part(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the part of a flag that a policy writes: its targeting and its metadata."""
    return joint.part_of(document["flags"][key])


def with_flag_part(
    document: Mapping[str, Any], key: str, part: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a copy of the document in which a flag has other targeting and metadata."""
    changed = copy.deepcopy(dict(document))
    changed["flags"][key] |= part
    return changed


def policy_part(
    document: Mapping[str, Any], key: str, weights: Weights, version: str
) -> dict[str, Any]:
    """Return a flag's targeting and metadata for a policy; arguments as of `text_with_policy`."""
    flag = document["flags"][key]
    # What users are divided by is the user's choice, and stays.
    bucketing = flag_rules.bucketing((flag.get("targeting") or {}).get("fractional"))
    # Propensities of the version before must not be logged with the new one. Beside a policy for
    # our provider they stay, since other providers go on serving that version.
    metadata = {
        name: value
        for name, value in (flag.get("metadata") or {}).items()
        if name != POLICY
        and (isinstance(weights, ProviderPolicy) or not name.startswith(f"{PROPENSITY}."))
    }
    targeting: dict[str, Any]
    if isinstance(weights, ProviderPolicy):
        # Other providers go on serving what they served, under its own version.
        policy = json.dumps({"version": version, **weights.policy})
        return {"targeting": flag.get("targeting") or {}, "metadata": metadata | {POLICY: policy}}
    if isinstance(weights, Mapping):
        metadata |= {f"{PROPENSITY}.{arm}": n / WHOLE for arm, n in weights.items()}
        targeting = {"fractional": [*bucketing, *([arm, n] for arm, n in weights.items())]}
    else:
        targeting = flag_rules.rule(*weights)
    return {"targeting": targeting, "metadata": metadata | {POLICY_VERSION: version}}
