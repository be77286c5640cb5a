"""The short form of time bounds: never later than the long form, and less than a second earlier."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_lightning.collector.refresh.time_ranges.older_traces import SECOND_NS, OlderTraces
from otel_lightning.collector.refresh.time_ranges.time_bounds import TIMES, TimeBounds

NOW_NS = 1_795_872_000 * SECOND_NS
TIMED = {table for table, column in TIMES.items() if column}
times_ns = st.integers(NOW_NS, NOW_NS + 9 * SECOND_NS)
"""Times of usual rows."""
any_time_ns = st.none() | st.integers(-(2**62), 2**63 - 1) | times_ns
bounds = st.builds(
    TimeBounds,
    received_ns=times_ns,
    derived=st.dictionaries(st.sampled_from([*TIMES]), any_time_ns),
    keys_ns=st.none() | times_ns,
    late_ns=st.none(),
)


@given(st.dictionaries(st.text(), bounds))
def test_bounds_are_never_later(remembered: dict[str, TimeBounds]) -> None:
    older = OlderTraces()
    older.add(remembered)
    restored = OlderTraces()
    restored.restore(older.to_bytes())
    asked = [*remembered, "no such trace"]
    found = restored.find(asked)
    assert older.find(asked) == found
    assert found.keys() == remembered.keys()
    for trace_id, one in remembered.items():
        assert 0 <= one.received_ns - found[trace_id].received_ns < SECOND_NS
        assert (found[trace_id].keys_ns is None) == (one.keys_ns is None)
        assert (found[trace_id].keys_ns or 0) <= (one.keys_ns or 0)
        assert found[trace_id].derived.keys() == one.derived.keys()
        for table, time_ns in one.derived.items():
            short_ns = found[trace_id].derived[table]
            # None stands for rows of any time.
            assert short_ns is None or (time_ns is not None and short_ns <= time_ns)


@given(st.dictionaries(st.sampled_from([*TIMED]), times_ns, min_size=1))
def test_bounds_of_usual_rows_are_less_than_a_second_earlier(earliest: dict[str, int]) -> None:
    older = OlderTraces()
    older.add({"a": TimeBounds(NOW_NS, {**earliest})})
    for short_ns in older.find(["a"])["a"].derived.values():
        assert short_ns is not None
        assert min(earliest.values()) - short_ns < SECOND_NS


def test_the_last_bounds_of_a_trace_count_and_the_oldest_part_is_forgotten() -> None:
    older = OlderTraces(most_parts=2)
    older.add({"a": TimeBounds(NOW_NS, {}), "b": TimeBounds(NOW_NS, {})})
    older.add({"b": TimeBounds(NOW_NS - SECOND_NS, {})})
    assert older.find(["b"])["b"].received_ns == NOW_NS - SECOND_NS
    older.add({})
    assert older.find(["a"])
    older.add({"c": TimeBounds(NOW_NS, {})})
    assert older.find(["a", "b", "c"]).keys() == {"b", "c"}


def test_a_part_that_was_cut_off_is_not_used() -> None:
    older = OlderTraces()
    older.add({"a": TimeBounds(NOW_NS, {})})
    with pytest.raises(ValueError, match="buffer is smaller"):
        OlderTraces().restore(older.to_bytes()[:-1])
