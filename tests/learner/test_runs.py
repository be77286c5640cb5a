import json
import math

import polars as pl

from otel_lightning.learner.runs import Run, fingerprint, to_json


def test_what_is_not_finite_is_null_in_json() -> None:
    assert json.loads(to_json({"a": [math.nan, 1.5], "b": {"c": -math.inf}})) == {
        "a": [None, 1.5],
        "b": {"c": None},
    }


def test_fingerprint_tells_data_apart() -> None:
    frame = pl.DataFrame({"rollout_id": ["a", "b"], "reward": [0.0, 1.0]})
    assert fingerprint(frame) == fingerprint(frame.clone())
    assert fingerprint(frame) != fingerprint(frame.with_columns(reward=pl.lit(1.0)))


def test_run_ids_are_unique_and_sort_by_time() -> None:
    first, second = Run("policy", {}), Run("policy", {})
    assert first.run_id != second.run_id
    assert first.run_id[:15] <= second.run_id[:15]
