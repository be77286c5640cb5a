import json
import math
from datetime import UTC, datetime, timedelta

import polars as pl

from otel_lightning.learner.runs import (
    JudgedRun,
    Run,
    candidates_warning,
    family_error,
    fingerprint,
    other_candidates,
    to_json,
)

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC).replace(tzinfo=None)
HOUR = timedelta(hours=1)


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


def judged(data: str, hours: float = 0, command: str = "policy", **config: object) -> JudgedRun:
    """A run that began so many hours after noon."""
    settings = {"key": "prompt", "since": None, "until": None, "kl_weight": 0.1}
    return JudgedRun(command, settings | config, data, NOON + hours * HOUR)


def test_other_choices_of_the_data_are_other_candidates() -> None:
    own = judged("all")
    chosen = [
        judged("newer", since=str(NOON - 2 * HOUR)),
        judged("older", until=str(NOON - 2 * HOUR)),
        judged("by clicks", reward="clicks"),
        judged("without failures", missing="drop"),
        judged("by prompt", task_by="prompt"),
        judged("more held out", held_out=0.5),
    ]
    for count in range(len(chosen) + 1):
        assert other_candidates(own, chosen[:count]) == count
    # The newer and the older rollouts share none.
    assert [other_candidates(one, [own, *chosen]) for one in chosen] == [5, 5, 6, 6, 6, 6]


def test_the_same_choice_again_is_no_other_candidate() -> None:
    again = [
        judged("all", 1),
        judged("all", 1, since=str(NOON - 99 * HOUR)),  # which leaves nothing out
        judged("all", 1, least_gain=0.1, output="other.json", promote=True),
        judged("grown by then", 2),
    ]
    assert other_candidates(judged("grown since", 3), again) == 0
    assert other_candidates(judged("all", 3), again) == 0
    assert other_candidates(judged("all", 3), [judged("all", shuffle_rewards=1)]) == 0


def test_candidates_of_rollouts_that_no_gate_has_seen_are_not_counted() -> None:
    before = [judged("all", kl_weight=0.2), judged("old", until=str(NOON - 9 * HOUR))]
    assert other_candidates(judged("new", 8, since=str(NOON)), before) == 0
    assert other_candidates(judged("new", 8, since=str(NOON - HOUR)), before) == 1
    assert other_candidates(judged("new", 8, since=str(NOON - 10 * HOUR)), before) == 2
    assert other_candidates(judged("others", key="tools"), before) == 0


def test_candidates_of_weights_share_rollouts_of_a_log_that_has_grown() -> None:
    before = [judged("transitions", command="weights", key=None, algorithm="dpo")]
    grown = judged("more transitions", 1, "weights", key=None, algorithm="rft")
    assert other_candidates(grown, before) == 1
    assert other_candidates(grown._replace(config=grown.config | {"agent": "desk"}), before) == 0


def test_comparisons_by_running_share_rollouts_only_if_their_tasks_are_the_same() -> None:
    before = [judged("tasks", command="evaluate", seed=1)]
    assert other_candidates(judged("tasks", 1, "evaluate", seed=2), before) == 1
    assert other_candidates(judged("other tasks", 1, "evaluate", seed=2), before) == 0


def test_error_of_a_family_is_the_sum_and_at_most_1() -> None:
    assert "up to 4 x 0.05 = 0.2, and not 0.05" in family_error(4, 0.05)
    assert "the level 0.05 / 4 = 0.013" in family_error(4, 0.05)
    assert "up to 40 x 0.05 = 1, and not 0.05" in family_error(40, 0.05)


def test_warning_says_whether_a_candidate_passes_at_the_corrected_level() -> None:
    for p_value, told in ((0.02, "this one does not pass (p = 0.02)"), (0.01, "this one passes")):
        (warning,) = candidates_warning(3, 0.05, p_value, "with new rollouts")
        assert told in warning
        assert warning.endswith("Confirm one that passes with new rollouts.")
    (refused,) = candidates_warning(1, 0.05, None, "with new rollouts")
    assert refused.startswith("1 other candidate was judged by the same held-out rollouts")
    assert "At that level" not in refused
    assert candidates_warning(0, 0.05, 0.01, "with new rollouts") == []
