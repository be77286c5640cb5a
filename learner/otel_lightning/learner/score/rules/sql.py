"""A rule in SQL: one SELECT on the store that returns scores."""

import polars as pl

from otel_lightning.collector.store import Store, StoreError, is_select
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.rules.outcome import SCORE_COLUMNS, Scored
from otel_lightning.learner.score.rules.results import as_scores
from otel_lightning.learner.score.rules.spec import Rule


def run(store: Store, rule: Rule) -> Scored:
    """Run the SELECT of a rule.

    Raises:
        DataError: If the file is not one SELECT, DuckDB refuses it, or a column is unknown.
    """
    try:
        # Checked before it is run: a rule that deletes would already have done so.
        if not is_select(rule.text):
            raise DataError(f"{rule.spec}: not one SELECT, and a rule only reads. Write one.")
        answer = pl.DataFrame(store.query(rule.text.strip().removesuffix(";")))
    except StoreError as error:
        raise DataError(f"{rule.spec}: DuckDB says: {error}") from error
    if "rollout_id" not in answer.columns:
        raise DataError(
            f"{rule.spec}: gives no column 'rollout_id', but: {', '.join(answer.columns)}. "
            f"Select rollout_id and value, and any of: {', '.join(SCORE_COLUMNS)}."
        )
    return Scored(as_scores(rule, answer))
