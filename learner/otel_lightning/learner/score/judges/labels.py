"""Read two ratings of the same rollouts: a judge's scores, and labels from the store or CSV."""

from pathlib import Path
from typing import NamedTuple

import polars as pl

from otel_lightning.collector.store import StoreLike, opened
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.learner.errors import DataError, MissingFileError
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.score.judges.judging import SPREAD
from otel_lightning.learner.score.rewards import JUDGE

RATING = {"rollout_id": pl.String(), "value": pl.Float64(), "label": pl.String()}


class Pairs(NamedTuple):
    """The rollouts with both ratings, as numbers of the same kind."""

    judge: list[float]
    labels: list[float]
    by: str
    """`value`, or `label` if one rating has no values; then only kappa is meaningful."""
    judged: int
    labelled: int


def read_pairs(store: StoreLike, judge: str, labels: str) -> Pairs:
    """Read both ratings of the rollouts that have two.

    Args:
        store: Location of the store.
        judge: Name of a judge's scores, or a prefix of their source.
        labels: Name of rewards that no judge gave, or a CSV file with the column rollout_id, and
            value, label or both.

    Raises:
        DataError: If no score or label is found, or no rollout has both.
        StoreError: If the store cannot be read.
    """
    given = read_csv(Path(labels)) if labels.endswith(".csv") else None
    with opened(store, read_only=True) as db:
        rewards = read(db, __package__, "labels")
    by_judges = pl.col("source").str.starts_with(JUDGE).fill_null(value=False)
    is_error = (pl.col("label") == "error").fill_null(value=False)
    judging = next_command("lightning-learn judge", store, endpoint="URL", model="NAME")
    first = f"It has no scores of a judge yet. Make some with: {judging}"
    scores = _chosen(rewards.filter(by_judges & ~is_error), judge, "--judge", first)
    if given is not None:
        return pair(scores, given)
    first = "It has no labels yet. Send some to /v1/feedback, or give a CSV file."
    return pair(scores, _chosen(rewards.filter(~by_judges), labels, "--labels", first))


def read_csv(path: Path) -> pl.DataFrame:
    """Read labels from a file.

    Raises:
        DataError: If there is no such file, it is not CSV, or it lacks a required column.
        OSError: If the file cannot be read.
    """
    try:
        # As text at first: ids such as 007 must not become numbers.
        rows = pl.read_csv(path.read_bytes(), infer_schema=False)
        if "rollout_id" not in rows.columns or not {"value", "label"} & set(rows.columns):
            raise DataError(
                f"{path}: has the columns {', '.join(rows.columns)}. It needs rollout_id, and "
                "value or label."
            )
        return rows.select(
            (pl.col(name) if name in rows.columns else pl.lit(None)).cast(kind).alias(name)
            for name, kind in RATING.items()
        )
    except FileNotFoundError as error:
        raise MissingFileError(f"There is no file '{path}' with labels.") from error
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: cannot be read as labels ({error}). Correct the file.") from error


def pair(scores: pl.DataFrame, labels: pl.DataFrame) -> Pairs:
    """Join two ratings by rollout; the last rating of each rollout counts.

    Raises:
        DataError: If no rollout has both.
    """
    joined = _last(scores).join(_last(labels), on="rollout_id", suffix="_given")
    values = joined.drop_nulls(["value", "value_given"])
    if values.height:
        return _pairs(values["value"], values["value_given"], "value", scores, labels)
    # Without numbers, labels are compared as names: their codes have no order.
    named = joined.drop_nulls(["label", "label_given"])
    if named.is_empty():
        raise DataError(
            f"None of {scores.height} judged and {labels.height} labelled rollouts has both a "
            "score and a label. Do the ids in rollout_id agree?"
        )
    codes = pl.Enum(sorted({*named["label"], *named["label_given"]}))
    coded = [named[column].cast(codes).to_physical() for column in ("label", "label_given")]
    return _pairs(coded[0], coded[1], "label", scores, labels)


def _pairs(
    judge: pl.Series, labels: pl.Series, by: str, scores: pl.DataFrame, labelled: pl.DataFrame
) -> Pairs:
    counts = (frame["rollout_id"].n_unique() for frame in (scores, labelled))
    return Pairs(judge.to_list(), labels.to_list(), by, *counts)


def _last(ratings: pl.DataFrame) -> pl.DataFrame:
    finite = pl.when(pl.col("value").is_finite()).then("value").alias("value")
    return ratings.select("rollout_id", finite, "label").unique(
        "rollout_id", keep="last", maintain_order=True
    )


def _chosen(rewards: pl.DataFrame, name: str, option: str, first: str) -> pl.DataFrame:
    """Choose ratings by their name or source; `first` is the remedy if there is nothing yet."""
    # A source has a fingerprint at its end, so a user names it by its beginning.
    by_source = pl.col("source").str.starts_with(name).fill_null(value=False)
    is_spread = pl.col("name").str.ends_with(SPREAD)
    chosen = rewards.filter((pl.col("name") == name) | (by_source & ~is_spread))
    if chosen.is_empty():
        names = ", ".join(sorted(set(rewards["name"])))
        next_step = f"Known: {names}." if names else first
        raise DataError(f"{option} '{name}' names nothing in the store. {next_step}")
    return chosen
