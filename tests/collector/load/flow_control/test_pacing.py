"""How long senders wait, by the work that waits before theirs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_lightning.collector.load.flow_control.pacing import (
    FREE_SHARE,
    LONGEST_PAUSE_SECONDS,
    STORED_WITHIN_SECONDS,
    Cost,
    Pacing,
)

MAX_LAG = 30.0
SIZE = 1_000_000


def measured(*, seconds_a_trace: float = 0.005, traces: int = 20) -> Pacing:
    """Return the pacing of a loader that stores 50 MB a second, with some traces a megabyte."""
    pacing = Pacing(MAX_LAG)
    for _ in range(20):
        pacing.stored(100 * SIZE, 100 * traces, seconds=2.0)
        pacing.derived(100_000, 100_000 * seconds_a_trace)
    return pacing


def test_before_anything_is_measured_nobody_waits() -> None:
    pacing = Pacing(MAX_LAG)
    assert pacing.expected(10**9, 10**6) == 0
    assert pacing.pause(SIZE, 10**9, 10**6) == 0


def test_a_small_backlog_slows_nobody() -> None:
    assert measured().pause(SIZE, 0, FREE_SHARE * MAX_LAG) == 0


def test_at_half_of_the_lag_senders_wait_as_long_as_storing_and_deriving_take() -> None:
    seconds = measured(seconds_a_trace=0.005, traces=20).pause(SIZE, 0, MAX_LAG / 2)
    assert seconds == pytest.approx(0.02 + 20 * 0.005, rel=0.05)


@given(st.floats(0, 100), st.floats(0, 100))
def test_more_work_that_waits_never_means_a_shorter_pause(one: float, other: float) -> None:
    pacing = measured()
    less, more = sorted((one, other))
    assert pacing.pause(SIZE, 0, less) <= pacing.pause(SIZE, 0, more) <= LONGEST_PAUSE_SECONDS


def test_a_spool_that_fills_is_held_to_the_rate_of_storing_alone() -> None:
    pacing = measured()
    limit = int(STORED_WITHIN_SECONDS * 50 * SIZE)
    assert pacing.pause(SIZE, limit // 2, 0) == 0
    assert pacing.pause(SIZE, limit * 2, 0) == pytest.approx(0.02, rel=0.05)


def test_a_first_small_batch_does_not_make_deriving_look_slow() -> None:
    pacing = Pacing(MAX_LAG)
    pacing.derived(3, seconds=0.3)
    assert pacing.expected(0, 1_000) < FREE_SHARE * MAX_LAG


def test_the_last_measurements_count_most() -> None:
    cost = Cost()
    for _ in range(100):
        cost.add(1, seconds=1.0)
    for _ in range(100):
        cost.add(1, seconds=3.0)
    assert cost.per_unit == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("accepted_each_second", [0.5, 0.9])
def test_below_the_capacity_nobody_waits(accepted_each_second: float) -> None:
    assert simulated(accepted_each_second)[1] == 0


def test_above_the_capacity_senders_are_held_to_it_and_the_lag_stays_bounded() -> None:
    work, paused = simulated(4.0)
    assert paused
    assert work < MAX_LAG


def simulated(offered: float) -> tuple[float, float]:
    """Offer so many seconds of work each second; return what waits and the pauses at the end.

    Each step of the simulation acknowledges as many megabytes as the pauses let through.
    """
    pacing = measured()
    per_megabyte = pacing.expected(SIZE, 0)
    work = paused = 0.0
    step = 0.1
    for _ in range(3_000):
        pause = pacing.pause(SIZE, 0, work)
        rate = min(offered / per_megabyte, 1 / pause if pause else float("inf"))
        work = max(work + step * (rate * per_megabyte - 1), 0.0)
        paused = pause
    return work, paused
