"""The order of training rows: full batches, every row equally often, the same after a resume."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.late import Late

weights: Any = Late("otel_lightning.learner.weights.trainer.row_order")  # which imports torch


def epochs(order: Any, count: int) -> list[list[int]]:
    seen = []
    for epoch in range(count):
        order.set_epoch(epoch)
        seen.append(list(order))
    return seen


@given(rows=st.integers(1, 40), batch=st.integers(1, 16), count=st.integers(1, 5))
def test_every_row_is_visited_equally_often_in_full_batches(
    rows: int, batch: int, count: int
) -> None:
    order = weights.RowOrder(rows, batch, seed=0)
    seen = epochs(order, count)
    assert all(len(epoch) == len(order) and len(epoch) % batch == 0 for epoch in seen)
    visits = Counter(row for epoch in seen for row in epoch)
    assert max(visits.values()) - min(visits[row] for row in range(rows)) <= 1


def test_epoch_is_the_same_whenever_it_is_asked_for() -> None:
    order = weights.RowOrder(10, 4, seed=3)
    first = epochs(order, 3)
    order.set_epoch(2)
    assert list(order) == first[2]
    assert first[0] != first[1]
    assert epochs(weights.RowOrder(10, 4, seed=4), 1) != first[:1]


@pytest.mark.parametrize("repeat", [1, 2])
def test_each_batch_is_repeated_as_a_whole(repeat: int) -> None:
    once, several = weights.RowOrder(6, 3, seed=0), weights.RowOrder(6, 3, seed=0, repeat=repeat)
    batches = [list(once)[:3], list(once)[3:]]
    assert list(several) == [row for batch in batches for row in batch * repeat]
