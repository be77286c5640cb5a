from datetime import datetime, timedelta

import polars as pl
import pytest

from otel_lightning.learner.policy.drift import live_at_once

NOON = datetime(2026, 11, 1, hour=12)  # noqa: DTZ001 - the store's UTC has no zone


def choices(versions: str, seconds: float) -> pl.DataFrame:
    """One choice a letter, the letter its policy, so many seconds apart from noon on."""
    return pl.DataFrame(
        {
            "rollout_id": [f"r{i:03}" for i in range(len(versions))],
            "policy_version": list(versions),
            "time": [NOON + timedelta(seconds=i * seconds) for i in range(len(versions))],
        },
        schema_overrides={"time": pl.Datetime("ns")},
    )


def test_processes_that_reload_the_file_late_are_not_two_policies_live_at_once() -> None:
    rows = choices("abababab" + "b" * 20, seconds=5)
    assert live_at_once(rows, [(NOON, "promote")]) is None
    told = live_at_once(rows, [])
    assert told is not None
    assert told.startswith("Policies a and b were live at the same time: they took turns 6 times")


def test_processes_that_still_serve_the_former_policy_after_a_minute_are_noticed() -> None:
    told = live_at_once(choices("ab" * 20, seconds=5), [(NOON, "promote")])
    assert told is not None
    assert told.endswith("the last time at 2026-11-01 12:03:15 UTC.")


@pytest.mark.parametrize("rollbacks", [0, 4])
def test_each_recorded_rollback_explains_one_return(rollbacks: int) -> None:
    rows = choices("a" * 9 + "b" * 9 + "a" * 9 + "b" * 9 + "a" * 9 + "b" * 9, seconds=600)
    changes = [(NOON - timedelta(days=1), "rollback")] * rollbacks
    assert (live_at_once(rows, changes) is None) == (rollbacks == 4)


def test_choices_without_a_version_or_a_time_say_nothing() -> None:
    rows = choices("ab" * 20, seconds=5).with_columns(policy_version=pl.lit(None, pl.String))
    assert live_at_once(rows, []) is None
