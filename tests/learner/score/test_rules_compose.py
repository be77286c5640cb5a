"""The composed reward against its definition, rollout by rollout."""

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from otel_lightning.learner.score.rules.composition import Composition, Measure, Term
from otel_lightning.learner.score.rules.shaping import compose

MEASURES = (
    Measure("intent_resolution", 0.1, 1, 5),
    Measure("task_adherence", 0.2, 0, 1),
    Measure("task_completion", 0.5, 0, 1),
)
LABELS = {("routing", "right"): 0.2, ("routing", "wrong"): -0.3}
TERMS = (
    Term("tool_error", -0.05, 1, 0),
    Term("tokens", -0.01, 1000, 500),
    Term("latency", -0.1, None, 15),
)
COMPOSITION = Composition(MEASURES, LABELS, TERMS, (-1, 1))

rollouts = st.fixed_dictionaries(
    {
        "intent_resolution": st.none() | st.integers(1, 5),
        "task_adherence": st.none() | st.floats(0, 1),
        "task_completion": st.none() | st.integers(0, 1),
        "routing": st.none() | st.sampled_from(["right", "wrong", "unsure"]),
        "tool_errors": st.integers(0, 9),
        "tokens": st.none() | st.integers(0, 50_000),
        "seconds": st.none() | st.floats(0, 60),
    }
)


def by_definition(rollout: dict[str, Any]) -> float | None:
    there = [one for one in MEASURES if rollout[one.name] is not None]
    if not there:
        return None
    scale = (0.1 + 0.2 + 0.5) / sum(one.weight for one in there)
    reward = 0.0
    for one in there:
        middle, half = (one.low + one.high) / 2, (one.high - one.low) / 2
        reward += one.weight * scale * (rollout[one.name] - middle) / half
    reward += {"right": 0.2, "wrong": -0.3}.get(rollout["routing"], 0.0)
    reward -= 0.05 * rollout["tool_errors"]
    reward -= 0.01 * max(0, (rollout["tokens"] or 0) - 500) / 1000
    reward -= 0.1 if (rollout["seconds"] or 0) > 15 else 0.0
    return min(1.0, max(-1.0, reward))


def judgements(logged: list[dict[str, Any]]) -> pl.DataFrame:
    rows = [
        {"rollout_id": str(number), "name": one.name, "value": rollout[one.name]}
        for number, rollout in enumerate(logged)
        for one in MEASURES
    ]
    rows += [
        {"rollout_id": str(number), "name": "routing", "label": rollout["routing"]}
        for number, rollout in enumerate(logged)
    ]
    text = dict.fromkeys(("rollout_id", "span_id", "name", "label"), pl.String)
    return pl.DataFrame(rows, schema={**text, "value": pl.Float64})


@examples(50)
@given(st.lists(rollouts, min_size=1, max_size=8))
def test_composed_reward_is_the_clamped_sum_of_its_parts(logged: list[dict[str, Any]]) -> None:
    ids = pl.Series("rollout_id", map(str, range(len(logged))), pl.String)
    counts = pl.DataFrame(
        logged, schema={"tool_errors": pl.Int64, "tokens": pl.Int64, "seconds": pl.Float64}
    )
    scored = compose(COMPOSITION, counts.with_columns(ids), judgements(logged), "quality")
    given_ = dict(scored.scores.filter(name="quality").select("rollout_id", "value").rows())
    expected = {str(number): by_definition(rollout) for number, rollout in enumerate(logged)}
    assert given_ == pytest.approx({key: r for key, r in expected.items() if r is not None})
    parts = scored.scores.filter(pl.col("name") != "quality")
    for rollout, group in parts.group_by("rollout_id"):
        total = math.fsum(group["value"])
        assert given_[str(rollout[0])] == pytest.approx(min(1.0, max(-1.0, total)))
    left_out = {name for exclusion in scored.left_out for name in exclusion.ids}
    assert left_out == {key for key, r in expected.items() if r is None}
