"""The propensity of each logged choice: from the trace, the policy version or the frequencies."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from otel_lightning.collector.store import Store
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.instrumentation.attributes import PROPENSITY
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.assumptions.at_random import MAX_INPUTS, check_random
from otel_lightning.learner.policy.logged.staged import read_inputs
from otel_lightning.learner.policy.logged.window import Window
from otel_lightning.learner.policy.serving.served import arms_of, shares_in_context
from otel_lightning.learner.policy.serving.versions import versions_in_context
from otel_lightning.learner.policy.softmax.choice_arrays import numbered
from otel_lightning.learner.policy.softmax.features import read_features
from otel_lightning.learner.score.rewards import HUGE

DRAWN_AT_RANDOM = "frequencies of arms that were drawn at random, as --propensities random says"


def with_checked_propensities(
    store: Store,
    joined: pl.DataFrame,
    window: Window,
    versions: Mapping[str, Mapping[str, float]],
    *,
    are_combinations: bool,
) -> pl.DataFrame:
    """Add each propensity and its source; refuse those that cannot be right.

    Args:
        store: An open store with staged choices.
        joined: The choices with their outcomes.
        window: Where the propensities come from.
        versions: Probability of each arm by policy version.
        are_combinations: Whether the choices are combinations of several flags.
    """
    if window.propensities == "frequencies":
        check_random(joined, read_inputs(store, MAX_INPUTS))
    # Versions of contextual policies have no fixed propensity. They are filled in afterwards, from
    # the features of each rollout.
    choices = with_propensities(
        joined, window.propensities, versions, are_combinations=are_combinations
    )
    if window.propensities in {"auto", "version"}:
        choices = _in_context(store, window.key, choices, are_combinations=are_combinations)
    _check_propensities(choices, window.key)
    _check_finite(choices.drop_nulls(["propensity", "outcome"]))
    return choices


def with_propensities(
    joined: pl.DataFrame,
    chosen_source: str,
    versions: Mapping[str, Mapping[str, float]],
    *,
    are_combinations: bool,
) -> pl.DataFrame:
    """Add each propensity from the trace, the policy version or the frequencies, and its source.

    Where one policy chose several flags together, the trace has the share of each variant alone.
    So the version comes before the trace.

    Args:
        joined: The choices: columns arm, propensity and policy_version.
        chosen_source: The source, as `--propensities` names it.
        versions: Probability of each arm by policy version.
        are_combinations: Whether one policy chose several flags together.
    """
    if chosen_source in {"frequencies", "random"}:
        # Within a version, since each version had its own shares; pooled frequencies would be wrong
        # for both.
        shares = pl.len().over("policy_version", "arm") / pl.len().over("policy_version")
        source = "frequencies" if chosen_source == "frequencies" else DRAWN_AT_RANDOM
        return joined.with_columns(propensity=shares, source=pl.lit(source))
    complete = not are_combinations and not joined["propensity"].null_count()
    if chosen_source == "trace" or (chosen_source == "auto" and complete):
        return joined.with_columns(source=pl.lit("trace"))
    with_versions = joined.join(
        _of_versions(versions),
        on=["policy_version", "arm"],
        how="left",
        maintain_order="left",  # of time
    )
    if chosen_source == "version":
        return with_versions.with_columns(propensity="of_version", source=pl.lit("version"))
    # The source that comes first wins, and names itself in the column `source`.
    first, second = (
        ("of_version", "propensity") if are_combinations else ("propensity", "of_version")
    )
    by_trace = pl.col(first).is_null() if are_combinations else pl.col(first).is_not_null()
    trace = pl.when(by_trace).then(pl.lit("trace"))
    return with_versions.with_columns(
        propensity=pl.coalesce(first, second),
        source=trace.otherwise(pl.lit("version")),
    )


def _of_versions(versions: Mapping[str, Mapping[str, float]]) -> pl.DataFrame:
    """Return the columns policy_version, arm and of_version, its share of the traffic."""
    shares = [
        {"policy_version": version, "arm": arm, "of_version": share}
        for version, arms in versions.items()
        for arm, share in arms.items()
    ]
    schema = {"policy_version": pl.String, "arm": pl.String, "of_version": pl.Float64}
    return pl.DataFrame(shares, schema)


def _in_context(
    store: Store, key: str, choices: pl.DataFrame, *, are_combinations: bool
) -> pl.DataFrame:
    """Fill in the propensities of contextual policies from the targeting rules that were served."""
    for version, part, spec in versions_in_context(store, key):
        is_of_version = pl.col("propensity").is_null() | pl.lit(are_combinations)
        is_of_version &= pl.col("policy_version") == version
        rows = choices.filter(is_of_version)
        if rows.is_empty():
            continue
        arms = sorted(arms_of(part) | set(rows["arm"].unique()))
        features = read_features(store, spec, rows["rollout_id"])
        table = shares_in_context(part, features, arms, {})
        served_shares = table[np.arange(rows.height), numbered(rows["arm"], arms)]
        # An arm that the rules cannot serve was not chosen by them: its propensity is unknown, not
        # 0.
        shares = [share if share > 0 else None for share in served_shares.tolist()]
        in_context = pl.DataFrame({"rollout_id": rows["rollout_id"], "in_context": shares})
        choices = (
            choices.join(in_context, on="rollout_id", how="left", maintain_order="left")
            .with_columns(
                propensity=pl.coalesce("in_context", "propensity"),
                source=pl.when(is_of_version).then(pl.lit("version")).otherwise("source"),
            )
            .drop("in_context")
        )
    return choices


def _check_finite(logged: pl.DataFrame) -> None:
    """Refuse rewards whose squares are not finite numbers."""
    huge = logged.filter(pl.col("outcome").abs() > HUGE)
    if huge.height:
        row = huge.row(0, named=True)
        raise DataError(
            f"Rollout '{row['rollout_id']}' has a reward of {row['outcome']:g}, and "
            f"{huge.height:,} of {logged.height:,} rollouts have one beyond {HUGE:g}, which cannot "
            "be computed with. Send it again in another unit, or choose another with --reward."
        )


def _check_propensities(logged: pl.DataFrame, key: str) -> None:
    """Refuse an arm whose propensity is never known, because leaving it out would hide an arm.

    Single choices without a propensity are left out later. They are expected: a flag provider that
    is not ready yet returns the default.
    """
    per_arm = logged.group_by("arm", maintain_order=True).agg(
        pl.len(), known=pl.count("propensity")
    )
    unknown = per_arm.filter(known=0)
    if unknown.height:
        arm, count, _ = unknown.row(0)
        raise DataError(
            f"None of {number_of(count, 'choice')} of arm '{arm}' for flag '{key}' has a "
            f"propensity, so importance weights are undefined. Put '{PROPENSITY}.{arm}' into the "
            f"flag's metadata, set the attribute '{PROPENSITY}', or estimate them with "
            "--propensities frequencies."
        )
    # The weight of a smaller one, times a reward, has no finite square.
    impossible = logged.filter(~pl.col("propensity").is_between(1 / HUGE, 1))
    if impossible.height:
        row = impossible.row(0, named=True)
        raise DataError(
            f"Rollout '{row['rollout_id']}' has a propensity of {row['propensity']:g} for flag "
            f"'{key}', and {impossible.height:,} of {logged.height:,} choices have such a one. A "
            f"propensity is a probability, above 0 (at least {1 / HUGE:g}) and at most 1; correct "
            "the flag's metadata."
        )
