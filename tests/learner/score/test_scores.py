from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from support import running

from otel_lightning.collector.store import Store, open_store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.table import replace_scores

if TYPE_CHECKING:
    from conftest import Traces


@pytest.fixture(params=["file", "ingester"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Open a store directly, and one that a running ingester holds."""
    path = tmp_path / "scored.duckdb"
    if request.param == "file":
        with open_store(path) as opened:
            yield opened
        return
    ingester = running.start(path)
    try:
        with open_store(path, create=False) as opened:
            yield opened
    finally:
        ingester.stop()


def scored(source: str, values: dict[str, float | None], **columns: Any) -> pl.DataFrame:
    rows = [
        {"rollout_id": rollout, "name": "helpful", "value": value, "source": source, **columns}
        for rollout, value in values.items()
    ]
    return pl.DataFrame(rows, schema_overrides={"value": pl.Float64})


def test_scoring_again_replaces_only_the_scores_of_the_same_rule(store: Store) -> None:
    replace_scores(store, "rule:a", scored("rule:a@1", {"x": 1.0, "y": 0.5}))
    replace_scores(store, "rule:ab", scored("rule:ab@1", {"x": 0.25}))
    replace_scores(store, "judge:a", scored("judge:a@1", {"x": None}, label="error"))
    replace_scores(store, "rule:a", scored("rule:a@2", {"x": 0.0}))
    kept = store.query("SELECT source, rollout_id, value, label FROM scores ORDER BY source")
    assert [tuple(row.values()) for row in kept.to_pylist()] == [
        ("judge:a@1", "x", None, "error"),
        ("rule:a@2", "x", 0.0, None),
        ("rule:ab@1", "x", 0.25, None),
    ]


def test_the_same_score_has_the_same_id_and_another_has_another(traces: "Traces") -> None:
    with open_store(traces.store()) as store:
        ids = []
        for rollout in "xxy":
            replace_scores(store, "rule:a", scored("rule:a@1", {rollout: 1.0}))
            ids.append(store.query("SELECT reward_id FROM scores").to_pylist())
    assert ids[0] == ids[1] != ids[2]


def test_score_that_is_given_again_as_it_was_keeps_its_time(store: Store) -> None:
    def given(values: dict[str, float | None]) -> dict[str, Any]:
        replace_scores(store, "rule:a", scored("rule:a@1", values))
        rows = store.query('SELECT rollout_id, "time" FROM scores').to_pylist()
        return {row["rollout_id"]: row["time"] for row in rows}

    before = given({"x": 1.0, "y": 0.5, "z": None})
    after = given({"x": 1.0, "y": 0.75, "z": None})
    assert (before["x"], before["z"]) == (after["x"], after["z"])
    assert before["y"] < after["y"]


def test_scores_are_seen_as_rewards_of_what_they_judge(traces: "Traces") -> None:
    traces.call("x")
    with open_store(traces.store()) as store:
        by_response = scored("judge:a@1", {"x": 0.75}).drop("rollout_id")
        by_response = by_response.with_columns(response_id=pl.lit("response-x.0"))
        replace_scores(store, "judge:a", by_response)
        rows = store.query("SELECT rollout_id, span_id, value FROM rewards").to_pylist()
    assert rows == [{"rollout_id": "x", "span_id": "x.0", "value": 0.75}]


def test_two_scores_of_one_thing_by_one_rule_are_an_error(traces: "Traces") -> None:
    twice = pl.concat([scored("rule:a@1", {"x": 1.0}), scored("rule:a@1", {"x": 0.0})])
    with (
        open_store(traces.store()) as store,
        pytest.raises(DataError, match=r"two scores named 'helpful' to rollout_id 'x'"),
    ):
        replace_scores(store, "rule:a", twice)


def test_score_with_the_source_of_another_rule_is_an_error(traces: "Traces") -> None:
    with (
        open_store(traces.store()) as store,
        pytest.raises(DataError, match=r"'rule:b@1', which is not of 'rule:a'"),
    ):
        replace_scores(store, "rule:a", scored("rule:b@1", {"x": 1.0}))
