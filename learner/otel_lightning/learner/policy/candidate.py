"""The policy to evaluate: a single arm, a policy version, or the policy of a flag file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from otel_lightning.collector.store import Store
from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving import flag_document, flag_file
from otel_lightning.learner.policy.serving.served import arms_of, features_of, shares_in_context
from otel_lightning.learner.policy.serving.versions import policies_of, versions_in_context
from otel_lightning.learner.policy.softmax import contextual
from otel_lightning.learner.policy.softmax.features import Features, read_features

NOTHING_NAMED = "Name what to evaluate: --flags FILE, --version VERSION or --arm VARIANT."
NO_FEATURES = Features((), np.zeros((0, 0)))


class Named(NamedTuple):
    """The policy to evaluate as a user names it: the flag, and one of the others."""

    key: str
    flags: Path | None
    version: str | None
    arm: str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy on the logged rollouts."""

    label: str
    arms: tuple[str, ...]
    """The arms that were logged and those of the policy, sorted."""
    probabilities: Floats
    """Probability of each arm for each rollout, shape [N, K]."""
    features: Features
    """The features that the policy sees, for each rollout."""


def candidate(
    store: Store,
    rows: pl.DataFrame,
    versions: Mapping[str, Mapping[str, float]],
    named: Named,
) -> Candidate:
    """Find the probability of each arm for each logged rollout.

    Args:
        store: An open store.
        rows: The logged choices; columns rollout_id and arm.
        versions: Probability of each arm by policy version, of policies without features.
        named: The policy.

    Raises:
        DataError: If nothing is named, or the arm was never logged. `check_named` refuses the rest.
    """
    key, flags, version, arm = named
    if arm is not None:
        logged = sorted(rows["arm"].unique())
        if arm not in logged:
            raise DataError(
                f"Arm '{arm}' of flag '{key}' was never logged, so nothing tells its value. "
                f"Logged: {', '.join(logged)}."
            )
        return _fixed(f"arm '{arm}'", {arm: 1.0}, rows)
    if version is not None:
        return _of_version(store, rows, versions, key, version)
    if flags is None:
        raise DataError(NOTHING_NAMED)
    return _of_file(store, rows, key, flags)


def check_named(
    store: Store,
    versions: Mapping[str, Mapping[str, float]],
    named: Named,
) -> None:
    """Refuse what `candidate` would refuse, as far as that is known before the choices are read.

    Raises:
        DataError: If nothing or several are named, there is no such flag file or version.
    """
    key, flags, version, arm = named
    named_count = sum(name is not None for name in (flags, version, arm))
    if named_count > 1:
        raise DataError("Name one of --flags, --version and --arm: each is a policy to evaluate.")
    if not named_count:
        raise DataError(NOTHING_NAMED)
    if flags is not None:
        flag_document.check_serves(flag_file.read_flag_file(flags, key), key, flags)
    if version is not None:
        recorded = policies_of(store, key)
        in_context = {name for name, _, _ in versions_in_context(store, key)}
        in_context |= {row["version"] for row in recorded if "contextual" in row["learned"]}
        if version not in in_context | set(versions):
            known = ", ".join([row["version"] for row in recorded][-5:]) or "none"
            raise DataError(f"Flag '{key}' has no policy '{version}'. It has: {known}.")


def _of_version(
    store: Store,
    rows: pl.DataFrame,
    versions: Mapping[str, Mapping[str, float]],
    key: str,
    version: str,
) -> Candidate:
    label = f"policy {version}"
    for served, part, spec in versions_in_context(store, key):
        if served == version:
            return _as_served(label, part, read_features(store, spec, rows["rollout_id"]), rows)
    # A contextual policy that was never promoted has no rules in a flag file: its learned
    # parameters give the probabilities.
    for row in policies_of(store, key):
        if row["version"] == version and "contextual" in row["learned"]:
            learned = row["learned"]
            return _by_parameters(store, label, rows, learned["contextual"], learned["expressions"])
    return _fixed(label, versions[version], rows)


def _of_file(store: Store, rows: pl.DataFrame, key: str, flags: Path) -> Candidate:
    document = flag_file.read_flag_file(flags, key)
    served = flag_document.live_shares(document, key)
    flag_document.check_logged(rows["arm"].unique().to_list(), list(served), key, flags)
    label = f"'{flags}'"
    part = flag_document.flag_part(document, key)
    names = features_of(part)
    if not names:
        return _fixed(label, served, rows)
    # A canary is served as version@share; its features are declared by the policy itself.
    version = (flag_document.served_version(part) or "").split("@")[0]
    for row in policies_of(store, key):
        if row["version"] == version and row["learned"].get("expressions"):
            features = read_features(store, row["learned"]["expressions"], rows["rollout_id"])
            return _as_served(label, part, features, rows)
    raise DataError(
        f"The policy of flag '{key}' in '{flags}' sees the feature '{names[0]}', and the store has "
        f"no policy '{version}' that says how to compute it. Name a version with --version."
    )


def _fixed(label: str, shares: Mapping[str, float], rows: pl.DataFrame) -> Candidate:
    arms = _arms(rows, shares)
    one = np.array([shares.get(arm, 0.0) for arm in arms])
    return Candidate(label, arms, np.broadcast_to(one, (rows.height, len(arms))), NO_FEATURES)


def _as_served(
    label: str, part: Mapping[str, Any], features: Features, rows: pl.DataFrame
) -> Candidate:
    arms = _arms(rows, dict.fromkeys(arms_of(part), 0.0))
    return Candidate(label, arms, shares_in_context(part, features, arms, {}), features)


def _by_parameters(
    store: Store,
    label: str,
    rows: pl.DataFrame,
    parameters: dict[str, Any],
    expressions: dict[str, str],
) -> Candidate:
    policy = contextual.from_parameters(parameters)
    features = read_features(store, expressions, rows["rollout_id"])
    # As it would be served: flagd counts an absent boolean as false, and our provider an absent
    # number as the mean (`Standardisation.apply`).
    values = np.nan_to_num(features.values, nan=0.0) if features.binary else features.values
    arms = _arms(rows, dict.fromkeys(policy.arms, 0.0))
    table = np.zeros((rows.height, len(arms)))
    table[:, [arms.index(arm) for arm in policy.arms]] = policy.probabilities(values)
    return Candidate(label, arms, table, features)


def _arms(rows: pl.DataFrame, shares: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(sorted(set(rows["arm"].unique()) | set(shares)))
