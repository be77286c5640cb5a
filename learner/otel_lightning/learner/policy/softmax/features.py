"""Features of a rollout's input, declared in a TOML file as SQL expressions."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from otel_lightning.collector.files.reason import reason
from otel_lightning.collector.store import Sql, Store, StoreError, statement
from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.rewards import HUGE

LEAK = 0.95
"""Threshold of the correlation with the reward, or of the correlation ratio: a feature above it
contains the outcome, or decides it alone, so that no arm matters."""
MIN_ROLLOUTS_PER_VALUE = 5
"""Smallest mean number of rollouts of each value of a feature for its correlation ratio."""


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

    @property
    def notes(self) -> list[str]:
        """Sentences about features that are often unknown, or the same for every rollout."""
        sentences = []
        for i, name in enumerate(self.names):
            column = self.values[:, i]
            known = column[~np.isnan(column)]
            if len(known) < len(column):
                sentences.append(
                    f"Feature '{name}' is NULL for {len(column) - len(known):,} of {len(column):,} "
                    f"rollouts, which count as {'false' if self.binary else 'its mean'}."
                )
            if len(known) and known.min() == known.max():
                sentences.append(
                    f"Feature '{name}' is {known[0]:g} wherever it is known, so nothing can be "
                    "learned from it."
                )
        return sentences


def read_spec(path: Path) -> dict[str, str]:
    """Read the expressions of a feature file, by name.

    Raises:
        DataError: If it is not TOML, or has no table `features` of texts.
    """
    try:
        spec = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"'{path}' is not a readable TOML file ({reason(error)}).") from error
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
        DataError: If an expression fails, is NULL for every rollout, or is infinite or beyond
            `HUGE` for one.
    """
    if not spec:
        return Features((), np.zeros((len(rollouts), 0)))
    columns = ", ".join(
        f"CAST(({text}) AS DOUBLE) AS feature_{i}" for i, text in enumerate(spec.values())
    )
    try:
        frame = pl.DataFrame(
            store.query(statement(__package__, "features", expressions=Sql(columns)))
        )
    except StoreError as error:
        raise DataError(
            f"A feature does not work: {error} A feature sees: input, messages, service_name, "
            "request_model, start_time."
        ) from error
    # A left join keeps the order of the rollouts, on which every array of shape [N] relies.
    joined = pl.DataFrame({"rollout_id": rollouts}).join(
        frame, on="rollout_id", how="left", maintain_order="left"
    )
    values = joined.drop("rollout_id").to_numpy().astype(np.float64)
    for i, name in enumerate(spec):
        huge = np.abs(values[:, i]) > HUGE  # a square must be finite
        if huge.any():
            raise DataError(
                f"Feature '{name}' is infinite, or beyond {HUGE:g}, for {huge.sum():,} of "
                f"{len(values):,} rollouts, such as '{rollouts[int(huge.argmax())]}'. Correct: "
                f"{spec[name]}"
            )
        if np.isnan(values[:, i]).all():
            raise DataError(
                f"Feature '{name}' is NULL for each of the {len(values):,} rollouts. Correct: "
                f"{spec[name]}"
            )
    return Features(tuple(spec), values)


def check_leaks(features: Features, rewards: Floats) -> None:
    """Refuse a feature that leaks the outcome.

    Raises:
        DataError: If the correlation of a feature with the reward is above `LEAK`, or the values of
            a feature with few values tell the reward as well as that, in whatever order.
    """
    for i, name in enumerate(features.names):
        is_known = ~np.isnan(features.values[:, i]) & ~np.isnan(rewards)
        column, reward = features.values[is_known, i], rewards[is_known]
        if len(column) < 3 or column.std() == 0 or reward.std() == 0:  # noqa: PLR2004 - a line fits two
            continue
        correlation = float(np.corrcoef(column, reward)[0, 1])
        ratio = _correlation_ratio(column, reward)
        text = f"its correlation with the reward is {correlation:.3f}"
        # A feature whose values tell the reward in no particular order, such as an error code, has
        # a low correlation and a high correlation ratio.
        if abs(correlation) <= LEAK < ratio:
            text = f"its values alone tell the reward (correlation ratio {ratio:.3f})"
        if max(abs(correlation), ratio) > LEAK:
            raise DataError(
                f"Feature '{name}' leaks the outcome: {text}, over {len(column):,} rollouts. Use "
                "only what is known when the arm is chosen."
            )


def _correlation_ratio(column: Floats, reward: Floats) -> float:
    """Compute the correlation of the reward with its mean for each value of a feature.

    It is 0 for a feature with too many values, since each value would have its own mean.

    Source:
        Fisher, Statistical methods for research workers (1925), section 45.
    """
    _, number, counts = np.unique(column, return_inverse=True, return_counts=True)
    # With few rollouts per value the group means follow the noise, and every feature would seem to
    # leak.
    if len(column) < MIN_ROLLOUTS_PER_VALUE * len(counts):
        return 0.0
    means = np.bincount(number, reward) / counts
    return float((means[number].var() / reward.var()) ** 0.5)
