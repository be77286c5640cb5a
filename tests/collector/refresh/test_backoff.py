"""A rollout that grows: not derived with each turn, and whole once no more comes."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.derive.batches.rollout_sizes import Size
from otel_lightning.collector.derive.text.json_text import dumps
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh.backoff import (
    ALONE_PATIENCE,
    ALONE_SECONDS,
    LARGE,
    LARGE_SPANS,
    MEMORY_SECONDS,
    PATIENCE,
    Backoff,
)
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.store import Store, open_store

TURNS = 60
CALLS = "SELECT * EXCLUDE (state_hash) FROM llm_calls ORDER BY step"


def turns(**stated: str) -> list[Request]:
    """Return the calls of a chat, each in a trace of its own, with the whole history."""
    history: list[dict[str, Any]] = []
    requests = []
    for number in range(TURNS):
        sent = ExportTraceServiceRequest()
        span = sent.resource_spans.add().scope_spans.add().spans.add(name="chat")
        span.trace_id, span.span_id = (number + 1).to_bytes(16), (number + 1).to_bytes(8)
        span.start_time_unix_nano, span.end_time_unix_nano = 10 * number + 1, 10 * number + 5
        history.append(said("user", f"question {number}"))
        answer = said("assistant", f"answer {number}")
        facts = {
            "input.messages": dumps(history).decode(),
            "output.messages": dumps([answer]).decode(),
        }
        for key, value in ({"operation.name": "chat"} | facts | stated).items():
            span.attributes.add(key=f"gen_ai.{key}").value.string_value = value
        history.append(answer)
        requests.append(Request("traces", 1, sent.SerializeToString()))
    return requests


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def ticking() -> Callable[[], float]:
    """Return a clock that goes on by a quarter of a second whenever it is looked at."""
    ticks: Iterator[int] = count()
    return lambda: next(ticks) / 4


def rows(store: Store) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.query(CALLS).to_pylist()
    return found


def derived_at_once(requests: Sequence[Request], folder: Path) -> list[dict[str, Any]]:
    with open_store(folder / "once.duckdb") as store:
        load(store, requests, dead_letters=folder)
        while refresh(store):
            pass
        return rows(store)


@pytest.mark.slow
@pytest.mark.parametrize("stated", [{}, {"conversation.id": "talk"}])
def test_a_growing_conversation_is_derived_a_few_times_and_is_whole_in_the_end(
    stated: dict[str, str], tmp_path: Path
) -> None:
    requests = turns(**stated)
    backoff = Backoff(ticking())
    with open_store(tmp_path / "t.duckdb") as store:
        times = 0
        for request in requests:
            load(store, [request], dead_letters=tmp_path)
            times += refresh(store, backoff=backoff) > 0
        while backoff.waiting():
            refresh(store, backoff=backoff)
        found = rows(store)
    # Each of the first turns, and of the others less than half.
    assert LARGE < times < LARGE + (TURNS - LARGE) // 2
    assert len(found) == TURNS
    assert found == derived_at_once(requests, tmp_path)


def test_what_belongs_to_no_rollout_that_waits_is_derived_meanwhile(tmp_path: Path) -> None:
    *talk, last = turns(**{"conversation.id": "talk"})
    other = turns(**{"conversation.id": "other"})[-1]
    backoff = Backoff(lambda: 0.0)
    backoff.note({"talk": Size(LARGE, LARGE)}, began=-10.0)
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, talk, dead_letters=tmp_path)
        assert refresh(store, backoff=backoff) == 0
        load(store, [other], dead_letters=tmp_path)
        assert refresh(store, backoff=backoff) == 1
        load(store, [last], dead_letters=tmp_path)
        assert refresh(store) > 0


def test_a_rollout_waits_for_as_long_as_all_that_grow_took() -> None:
    seconds = [0.0]
    backoff = Backoff(lambda: seconds[0])
    for _ in range(2):
        for name in ("a", "b"):
            began = seconds[0]
            seconds[0] += 5.0
            backoff.note({name: Size(LARGE, LARGE)}, began)
    assert backoff.waiting() == ["a", "b"]
    seconds[0] += 39.0
    assert backoff.waiting() == ["b"]
    seconds[0] += 1.0
    assert backoff.waiting() == []


@pytest.mark.parametrize("operation", ["chat", "execute_tool", "POST"])
def test_a_long_trace_with_few_calls_waits_for_more_late_spans(
    operation: str, tmp_path: Path
) -> None:
    """Each late span makes all of it be derived again."""

    def sent(first: int, count: int) -> Request:
        request = ExportTraceServiceRequest()
        spans = request.resource_spans.add().scope_spans.add().spans
        for number in range(first, first + count):
            spans.add(name="work", trace_id=b"t" * 16, span_id=(number + 1).to_bytes(8))
        spans[0].attributes.add(key="gen_ai.operation.name").value.string_value = operation
        return Request("traces", 1, request.SerializeToString())

    backoff = Backoff(ticking())
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, [sent(0, LARGE_SPANS)], dead_letters=tmp_path)
        assert refresh(store, backoff=backoff) == 1
        backoff.clock = lambda: 1.5
        load(store, [sent(LARGE_SPANS, 1)], dead_letters=tmp_path)
        assert refresh(store, backoff=backoff) == 0
        backoff.clock = lambda: 1_000.0
        assert refresh(store, backoff=backoff) == 1


def test_a_rollout_that_takes_long_waits_less_while_nothing_else_is_to_be_derived(
    tmp_path: Path,
) -> None:
    *talk, last = turns(**{"conversation.id": "talk"})
    other = turns(**{"conversation.id": "other"})[-1]
    took, now = 10.0, 0.0
    backoff = Backoff(lambda: now)
    backoff.note({"talk": Size(LARGE, 0)}, began=-took)
    now = ALONE_PATIENCE * took - 1
    with open_store(tmp_path / "t.duckdb") as store:
        load(store, talk, dead_letters=tmp_path)
        assert refresh(store, backoff=backoff) == 0
        now += 1
        load(store, [other], dead_letters=tmp_path)
        assert refresh(store, backoff=backoff) == 1  # the other conversation only
        assert refresh(store, backoff=backoff) >= len(talk)  # both have the same history
        load(store, [last], dead_letters=tmp_path)
        backoff.note({"talk": Size(LARGE, 0)}, began=now - took)
        assert refresh(store, backoff=backoff) == 0


@pytest.mark.parametrize("took", [0.1, ALONE_SECONDS / PATIENCE, ALONE_SECONDS / 3, 2.0, 10.0])
def test_only_a_long_delay_is_shorter_while_nothing_else_is_to_be_derived(took: float) -> None:
    now = 0.0
    backoff = Backoff(lambda: now)
    backoff.note({"talk": Size(LARGE, 0)}, began=-took)
    alone = max(ALONE_PATIENCE * took, ALONE_SECONDS)
    for now in (0.9 * took, 3.9 * took, 0.9 * ALONE_SECONDS, 1.1 * ALONE_SECONDS, 4.1 * took):
        waits = backoff.waiting()
        assert bool(waits) == (now < PATIENCE * took)
        assert backoff.waiting(alone=True) == (waits if now < alone else [])


def test_a_short_rollout_never_waits() -> None:
    backoff = Backoff(lambda: 0.0)
    backoff.note({"short": Size(LARGE - 1, LARGE_SPANS - 1)}, began=-10.0)
    assert backoff.waiting() == []


def test_a_rollout_is_put_off_until_it_had_time_to_be_derived() -> None:
    now = 0.0
    backoff = Backoff(clock=lambda: now)
    now = 10.0
    backoff.note({"long": Size(LARGE, 0), "short": Size(1, 1)}, 0.0)
    due = now + (now * PATIENCE) * LARGE / (LARGE + 2)
    now = due - 1
    assert (backoff.waiting(), backoff.put_off(30)) == (["long"], ["long"])
    now = due + 29
    assert (backoff.waiting(), backoff.put_off(30)) == ([], ["long"])
    now = due + 31
    assert backoff.put_off(30) == []
    assert backoff.put_off(1_000) == ["long"]  # as long as it is remembered
    now = due + MEMORY_SECONDS
    assert backoff.put_off(1_000) == []
