"""Batches that are derived in portions: the same rows as of the whole batch, whatever is tied."""

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.deliveries import DATA, TABLES, tables
from support.examples import examples, first_quick
from support.made_rollouts import make

from otel_lightning.collector.derive.batches import batch, large_traces
from otel_lightning.collector.derive.batches.portions import BATCHES_WHOLE, Portioning
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh import refresh as refreshing
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.store import open_store
from otel_lightning.collector.trace_files.read import read_file

COMPARED = (*TABLES, "reward_events", "rollout_tasks", "retrievals", "rollout_rows", "trace_keys")
WHOLE = 1_000_000
Compared = dict[str, list[str]]


def derived(sent: list[Request], size: int) -> Compared:
    """Derive requests in portions of `size` spans."""
    with TemporaryDirectory() as folder, open_store(Path(folder) / "t.duckdb") as store:
        load(store, sent, dead_letters=Path(folder))
        refreshing._PORTIONING[store] = Portioning(schemas(store), size)
        while refresh(store):
            pass
        return tables(store, COMPARED)


@cache
def recorded() -> list[Request]:
    """Return all recordings, mixed, so that the spans of no trace are side by side."""
    files = sorted(DATA.rglob("*.otlp.*"))
    found = [Request(one.signal, 1, one.body) for file in files for one in read_file(file).requests]
    spans = [
        (group.resource, scope.scope, span)
        for one in found
        if one.signal == "traces"
        for group in ExportTraceServiceRequest.FromString(one.body).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    random.Random(7).shuffle(spans)  # noqa: S311
    sent = ExportTraceServiceRequest()
    for resource, scope, span in spans:
        sent.resource_spans.add(resource=resource).scope_spans.add(scope=scope, spans=[span])
    logs = [one for one in found if one.signal == "logs"]
    return [Request("traces", 1, sent.SerializeToString()), *logs]


@cache
def whole() -> Compared:
    return derived(recorded(), WHOLE)


@pytest.mark.parametrize("size", first_quick([20, 1, 300]))
def test_recordings_in_portions_give_the_rows_of_the_whole_batch(size: int) -> None:
    found, expected = derived(recorded(), size), whole()
    for table in COMPARED:
        assert found[table] == expected[table], table
    assert len(expected["llm_calls"]) > 500


def test_long_traces_are_derived_beside_the_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole()
    for module in (batch, large_traces):  # of the recordings, some traces are so long
        monkeypatch.setattr(module, "LARGE_SPANS", 8)
    assert derived(recorded(), 20) == expected


def in_trace(number: int, sent: ExportTraceServiceRequest) -> ExportTraceServiceRequest:
    """Put the spans of a request into another trace."""
    for span in sent.resource_spans[0].scope_spans[0].spans:
        span.trace_id = bytes([number]) * 16
    return sent


def judging(number: int, *, judged: int, rollout: str, task: str) -> ExportTraceServiceRequest:
    """Return a trace with a reward for another trace, and one for a rollout of another trace."""
    sent = ExportTraceServiceRequest()
    spans = sent.resource_spans.add().scope_spans.add().spans
    link = spans.add(name="agentlightning.annotation", span_id=b"linkspan")
    for key, value in {
        "agentlightning.link.0.key_match": "trace_id",
        "agentlightning.link.0.value_match": (bytes([judged]) * 16).hex(),
        "agentlightning.reward.0.value": "0.5",
    }.items():
        link.attributes.add(key=key).value.string_value = value
    event = spans.add(name="judge", span_id=b"tellspan").events.add()
    event.name = "gen_ai.evaluation.result"
    for key, value in {
        "lightning.rollout.id": rollout,
        "lightning.task.id": task,
        "gen_ai.evaluation.score.value": "1",
    }.items():
        event.attributes.add(key=key).value.string_value = value
    return in_trace(number, sent)


MADE = [
    in_trace(1, make("one", task="task-1")),
    in_trace(2, make("two")),
    in_trace(3, make("one", at=100)),
    judging(4, judged=2, rollout="two", task="task-2"),
    in_trace(5, make("three")),
    judging(6, judged=9, rollout="two", task="task-other"),
    in_trace(7, make("four", task="task-4")),
]
"""Traces of which some belong together: by a rollout, a reward for a trace, or a task."""


@examples(12)
@given(st.permutations(range(len(MADE))), st.integers(1, 12))
def test_traces_that_belong_together_give_the_same_rows_in_any_portions(
    order: list[int], size: int
) -> None:
    sent = [Request("traces", 1, MADE[number].SerializeToString()) for number in order]
    assert derived(sent, size) == derived(sent, WHOLE)


def portioned(folder: Path, texts: list[str]) -> Portioning:
    """Derive rollouts whose users say these texts in one batch, each in a portion of its own."""
    asked = [make(f"r-{at}", user=text, answers=["Friday."]) for at, text in enumerate(texts)]
    sent = [in_trace(at + 1, one) for at, one in enumerate(asked)]
    with open_store(folder / "t.duckdb") as store:
        requests = [Request("traces", 1, one.SerializeToString()) for one in sent]
        load(store, requests, dead_letters=folder)
        found = refreshing._PORTIONING[store] = Portioning(schemas(store), spans=1)
        while refresh(store):
            pass
        assert store.count("llm_calls") == len(texts)
    return found


def test_traces_without_ties_stay_in_portions(tmp_path: Path) -> None:
    assert portioned(tmp_path, [f"Order {number}?" for number in range(9)]).whole == 0


def test_many_ties_between_portions_make_the_next_batches_whole(tmp_path: Path) -> None:
    found = portioned(tmp_path, ["Where is it?"] * 9)
    assert found.whole == BATCHES_WHOLE
    applied = [found.applies(100) for _ in range(BATCHES_WHOLE + 1)]
    assert applied == [*[False] * BATCHES_WHOLE, True]


def test_a_batch_of_one_portion_is_derived_whole(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        assert not Portioning(schemas(store), spans=10).applies(19)
        assert Portioning(schemas(store), spans=10).applies(20)
