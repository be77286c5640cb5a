"""A batch is divided by what its records hold."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_lightning.instrumentation import batches
from otel_lightning.instrumentation.batches import LARGEST, divided


def span(*texts: str, event: str = "") -> Any:
    events = [SimpleNamespace(attributes={"text": event})] if event else []
    return SimpleNamespace(attributes={"texts": texts, "count": 1}, events=events)


def log(text: str) -> Any:
    return SimpleNamespace(log_record=SimpleNamespace(attributes=None, body={"parts": [text]}))


@given(st.lists(st.integers(0, 12), max_size=20))
def test_parts_hold_every_record_once_and_none_is_larger_than_it_must_be(sizes: list[int]) -> None:
    share = LARGEST // 10
    texts = ["x" * (size * share) for size in range(13)]
    records = [span(texts[size]) for size in sizes]
    parts = [list(part) for part in divided(records)]
    assert [record for part in parts for record in part] == records
    for part in parts:
        assert len(part) <= 1 or sum(map(batches._characters, part)) <= LARGEST


def test_events_and_bodies_of_logs_count_too() -> None:
    half = "x" * (LARGEST // 2 + 1)
    for record in (span(event=half), span("", half), log(half)):
        assert len(list(divided([record, record]))) == 2


def test_an_empty_batch_stays_one_part() -> None:
    assert list(divided([])) == [[]]
