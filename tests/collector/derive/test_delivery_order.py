"""Rows do not depend on the order or the number of deliveries of a span."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.spans import (
    ANSWER,
    QUESTION,
    chat,
    span,
    tool_loop,
)

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Derived, Event, Span

EVALUATION = "gen_ai.evaluation.result"


def response(response_id: str) -> dict[str, Any]:
    return {"gen_ai.response.id": response_id}


def judged(value: float, **more: Any) -> Event:
    said_ = {"gen_ai.evaluation.name": "solved", "gen_ai.evaluation.score.value": str(value)}
    return Event(EVALUATION, 7, {**said_, **more})


def episode() -> tuple[list[Span], Derived]:
    """Return spans of several traces that touch every rule, and their rows."""
    spans = [
        *tool_loop(**{"gen_ai.tool.call.id": "c1"}),
        span(chat([QUESTION], ANSWER, response("r1")), trace="a", id="a1", events=(judged(1.0),)),
        span(chat([QUESTION], ANSWER, response("r1")), trace="b", id="b1"),
        *(one._replace(trace_id="c", start_ns=0, end_ns=0) for one in tool_loop()),
    ]
    return spans, derive(spans, [])


EPISODE, ROWS = episode()


@examples(60)
@given(st.permutations(EPISODE), st.integers(0, len(EPISODE) - 1))
def test_rows_depend_on_neither_the_order_nor_the_count_of_deliveries(
    order: list[Span], repeated: int
) -> None:
    assert derive([*order, order[repeated]], []) == ROWS
