"""What is kept of large traces: whole, in copies, each span once, and within its limits."""

from dataclasses import fields

import pytest

from otel_lightning.collector.derive.batches import large_traces
from otel_lightning.collector.derive.batches.copied_rows import copied, share_out
from otel_lightning.collector.derive.batches.large_traces import LargeTraces, large
from otel_lightning.collector.derive.batches.rows_by_trace import rows_by_key
from otel_lightning.collector.derive.parse import BY_SPAN, ParsedRows
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Arm,
    LlmCall,
    Retrieval,
    Reward,
    ToolCall,
)
from otel_lightning.collector.derive.span_tree import Node

OF_SPANS = ("calls", "tools", "requests", "agents", "retrievals")
"""The lists of rows that are read from a span again when it comes late."""
ROWS = (*OF_SPANS, "arms")
TEXT = "four"


def span_of(trace_id: str, span_id: str, said: str = TEXT) -> ParsedRows:
    """Return a reading of one span that has a row of every kind."""
    place = (trace_id, span_id)
    call = LlmCall(*place, None, 1, 2, "semconv")
    call.input_messages = [{"role": "user", "parts": [{"type": "text", "content": said}]}]
    reward = f"reward of {span_id}"
    return ParsedRows(
        nodes={place: Node((trace_id, ""), said, 1, {})},
        rollout_ids={place: said},
        conversation_ids={place: said},
        task_ids={place: said},
        calls=[call],
        tools=[ToolCall(said, *place)],
        requests=[ToolCall(said, *place)],
        agents=[AgentRun(*place, said, "agent", None, 1, 2)],
        retrievals=[Retrieval(*place, None, "retrieval", said, 1, 2)],
        rewards={reward: Reward(reward, said, 1.0, trace_id=trace_id)},
        sources={reward: trace_id},
        arms=[Arm(*place, "key", said)],
        unread={place: said},
    )


def together(*some: ParsedRows) -> ParsedRows:
    whole = ParsedRows()
    for one in some:
        whole.add(copied(one))
    return whole


def test_a_copy_has_equal_rows_that_are_others() -> None:
    found = together(span_of("t", "a"), span_of("t", "b"))
    same = copied(found)
    assert same == found
    for each in fields(ParsedRows):
        if each.name != "memory":
            assert getattr(same, each.name) is not getattr(found, each.name)
    for name in ROWS:
        pairs = zip(getattr(same, name), getattr(found, name), strict=True)
        assert all(one is not other for one, other in pairs)
    assert all(same.rewards[one] is not found.rewards[one] for one in found.rewards)


def test_each_trace_gets_all_of_its_rows_and_no_others() -> None:
    first, second = span_of("first", "a"), span_of("second", "b")
    own = {"first": ParsedRows(), "second": ParsedRows()}
    share_out(together(first, second, span_of("third", "c")), own)
    assert own == {"first": first, "second": second}


def test_only_traces_of_many_spans_are_kept_and_in_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_traces, "LARGE_SPANS", 2)
    many = together(span_of("many", "a"), span_of("many", "b"))
    found = together(many, span_of("few", "c"))
    kept = large(found)
    assert kept == {"many": many}
    assert kept["many"].calls[0] is not found.calls[0]


def test_a_span_that_is_read_again_replaces_its_rows_and_no_others() -> None:
    kept = LargeTraces()
    kept.keep("t", together(span_of("t", "a", "old"), span_of("t", "b", "old")))
    late, other = span_of("t", "a", "new"), span_of("t", "b", "old")
    bare = ParsedRows(nodes=late.nodes)  # such as a span that says nothing more by itself
    for again, expected in ((late, together(other, late)), (bare, together(other, bare))):
        lent = kept.with_late("t", again)
        for name in OF_SPANS:
            assert getattr(lent, name) == getattr(expected, name)
        for name in BY_SPAN:
            assert getattr(lent, name) == getattr(expected, name)
        assert lent.rewards.keys() == {"reward of a", "reward of b"}
    kept.add("t", bare)
    assert kept.with_late("t", ParsedRows()).calls == other.calls


def test_neither_what_is_kept_nor_what_came_late_is_lent_itself() -> None:
    kept, first, late = LargeTraces(), span_of("t", "a"), span_of("t", "b")
    kept.keep("t", first)
    lent = kept.with_late("t", late)
    for call in lent.calls:
        call.rollout_id = "changed"
    assert (first.calls[0].rollout_id, late.calls[0].rollout_id) == (None, None)
    assert kept.with_late("t", ParsedRows()) == first


def test_the_text_of_kept_traces_is_that_of_their_present_spans() -> None:
    kept = LargeTraces(most_text=4 * length_of(TEXT))
    for _ in range(10):  # the same trace and span again and again
        kept.keep("t", span_of("t", "a"))
        kept.add("t", span_of("t", "a"))
    assert "t" in kept
    for span_id in "bcd":
        kept.add("t", span_of("t", span_id))
    assert "t" in kept
    kept.add("t", span_of("t", "e"))  # one more than there is room for
    assert "t" not in kept
    for _ in range(10):
        kept.keep("t", span_of("t", "a"))
        kept.drop(["t"])
    for trace_id in "wxyz":
        kept.keep(trace_id, span_of(trace_id, "a"))
    assert len(kept) == len("wxyz")


def length_of(text: str) -> int:
    kept, most = LargeTraces(most_text=0), 0
    while "t" not in kept:
        most += 1
        kept = LargeTraces(most_text=most)
        kept.keep("t", span_of("t", "a", text))
    return most


def test_rows_that_were_written_are_known_only_of_a_trace_that_is_kept() -> None:
    kept, rows = LargeTraces(), rows_by_key({})
    kept.note_stored("t", rows)
    assert kept.written("t") is None
    for forget in (lambda: kept.drop(["t"]), kept.clear, lambda: kept.keep("t", ParsedRows())):
        kept.keep("t", ParsedRows())
        kept.note_stored("t", rows)
        kept.add("t", ParsedRows())
        assert kept.written("t") is rows
        forget()
        kept.keep("t", ParsedRows())
        assert kept.written("t") is None
