"""Convert the result of a rule's function or SELECT to scores."""

from typing import Any

import polars as pl

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.rules.outcome import SCORE_COLUMNS
from otel_lightning.learner.score.rules.spec import Rule


def aligned(rule: Rule, result: Any, ids: pl.LazyFrame) -> pl.DataFrame:
    """Add the ids of the judged rows to a result that lacks them.

    Args:
        rule: The rule, for error texts.
        result: A Series or a frame with as many rows as `ids`, or a frame with its own rollout_id.
        ids: Ids of the rows that the rule was given: rollout_id, and span_id if it took calls.

    Raises:
        DataError: If the result has another type or another length.
    """
    if isinstance(result, pl.Series):
        result = result.rename("value").to_frame()
    if not isinstance(result, pl.DataFrame):
        raise DataError(
            f"{rule.spec}: returns {type(result).__name__}. Return a polars Series of one value a "
            "row, or a frame with the column 'value'."
        )
    if "rollout_id" in result.columns:
        return result
    judged = ids.collect()
    if result.height != judged.height:
        raise DataError(
            f"{rule.spec}: returns {number_of(result.height, 'value')} for "
            f"{number_of(judged.height, 'row')}. Return one value per row (null where there is no "
            "score), or a frame with the column 'rollout_id'."
        )
    return result.with_columns(judged)


def as_scores(rule: Rule, frame: pl.DataFrame) -> pl.DataFrame:
    """Convert scores to the columns of `SCORE_COLUMNS`, under the rule's name.

    A score with another name is a part of the reward: its name becomes `<rule>.<name>`.

    Raises:
        DataError: If a column is unknown, the column `value` is missing, or it has no numbers.
    """
    unknown = [name for name in frame.columns if name not in SCORE_COLUMNS]
    if unknown or "value" not in frame.columns:
        problem = f"gives the unknown column '{unknown[0]}'" if unknown else "gives no 'value'"
        raise DataError(f"{rule.spec}: {problem}. Known columns: {', '.join(SCORE_COLUMNS)}.")
    kind = frame.schema["value"]
    if not (kind.is_numeric() or kind in (pl.Boolean, pl.Null)):
        raise DataError(f"{rule.spec}: gives values of type {kind}. Give numbers.")
    completed = frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in SCORE_COLUMNS.items()
    )
    is_whole = pl.col("name").fill_null(rule.name) == rule.name
    part = pl.format(f"{rule.name}.{{}}", "name")
    return completed.with_columns(name=pl.when(is_whole).then(pl.lit(rule.name)).otherwise(part))
