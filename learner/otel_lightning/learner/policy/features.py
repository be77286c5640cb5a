"""Features of a rollout's input, declared in a TOML file as SQL expressions."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from otel_lightning.collector.store import Sql, Store, StoreError, statement
from otel_lightning.learner.errors import DataError

Floats = NDArray[np.float64]
LEAK = 0.99
"""Threshold of the correlation with the reward; a feature above it must contain the outcome."""


@dataclass(frozen=True, slots=True)
class Features:
    """Values of features, one row per rollout."""

    names: tuple[str, ...]
    values: Floats
    """Shape [N, D]; NaN where unknown."""

    @property
    def binary(self) -> bool:
        """Whether every known value is 0 or 1, so that a flag's targeting rules can test it."""
        known = self.values[~np.isnan(self.values)]
        return bool(np.isin(known, (0.0, 1.0)).all())


def read_spec(path: Path) -> dict[str, str]:
    """Read the expressions of a feature file, by name.

    Raises:
        DataError: If it is not TOML, or has no table `features` of texts.
    """
    try:
        spec = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"'{path}' is not a readable TOML file ({error}).") from error
    features = spec.get("features")
    texts = isinstance(features, dict) and all(isinstance(v, str) for v in features.values())
    if not features or not texts:
        raise DataError(
            f"'{path}' has no features. Write a table [features] with lines such as: "
            "refund = \"input ILIKE '%refund%'\""
        )
    return dict(features)


def read_features(store: Store, spec: dict[str, str], rollouts: pl.Series) -> Features:
    """Compute features for rollouts, in their order.

    Args:
        store: An open store.
        spec: SQL expressions by name. They see only columns that are known when the arm is chosen:
            `input` (the user's text), `messages`, `service_name`, `request_model`, `start_time`.
        rollouts: Ids of the rollouts, shape [N].

    Raises:
        DataError: If an expression fails, or is NULL for every rollout.
    """
    if not spec:
        return Features((), np.zeros((len(rollouts), 0)))
    columns = ", ".join(
        f"CAST(({text}) AS DOUBLE) AS feature_{i}" for i, text in enumerate(spec.values())
    )
    try:
        found = pl.DataFrame(
            store.query(statement(__package__, "features", expressions=Sql(columns)))
        )
    except StoreError as error:
        raise DataError(
            f"A feature does not work: {error} A feature sees: input, messages, service_name, "
            "request_model, start_time."
        ) from error
    joined = pl.DataFrame({"rollout_id": rollouts}).join(
        found, on="rollout_id", how="left", maintain_order="left"
    )
    values = joined.drop("rollout_id").to_numpy().astype(np.float64)
    for i, name in enumerate(spec):
        if np.isnan(values[:, i]).all():
            raise DataError(
                f"Feature '{name}' is NULL for each of the {len(values)} rollouts. Correct: "
                f"{spec[name]}"
            )
    return Features(tuple(spec), values)


def check_leaks(features: Features, rewards: Floats) -> None:
    """Refuse a feature that leaks the outcome.

    Raises:
        DataError: If the correlation of a feature with the reward is above `LEAK`.
    """
    for i, name in enumerate(features.names):
        known = ~np.isnan(features.values[:, i])
        column, reward = features.values[known, i], rewards[known]
        if len(column) < 3 or column.std() == 0 or reward.std() == 0:  # noqa: PLR2004 - a line fits two
            continue
        correlation = float(np.corrcoef(column, reward)[0, 1])
        if abs(correlation) > LEAK:
            raise DataError(
                f"Feature '{name}' leaks the outcome: its correlation with the reward is "
                f"{correlation:.3f}. Use only what is known when the arm is chosen."
            )
