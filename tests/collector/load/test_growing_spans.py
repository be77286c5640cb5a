"""Spans that are sent several times while they run: their last state is stored."""

import json
import random
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.deliveries import single_requests

from otel_lightning.collector.check.counts import check_store
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.store import Store, open_store

START, END = 5_000_000_000, 9_000_000_000
TOOL = {"judgment.span_kind": "tool", "judgment.input": '{"city": "Rome"}'}


def state(attributes: dict[str, str], end: int, start: int = START, span: int = 1) -> Request:
    """Return a request with a span as it was at some time: `end` is 0 if it states none."""
    message = ExportTraceServiceRequest()
    sent = message.resource_spans.add().scope_spans.add().spans.add(name="sun")
    sent.trace_id, sent.span_id = b"t" * 16, span.to_bytes(8)
    sent.start_time_unix_nano, sent.end_time_unix_nano = start, end
    for key, value in attributes.items():
        sent.attributes.add(key=key).value.string_value = value
    return Request("traces", 1, message.SerializeToString())


def update(number: int, end: int, **more: str) -> Request:
    """Return a state as judgeval sends it."""
    named = {f"judgment.{key}": value for key, value in more.items()}
    return state({**TOOL, **named, "judgment.update_id": str(number)}, end)


def stored(store: Store) -> list[dict[str, Any]]:
    return store.query("SELECT attributes, epoch_ns(end_time) AS ends FROM spans").to_pylist()


# judgeval writes the time of the start as the end of a span that runs; earlier it wrote none.
@pytest.mark.parametrize("running", [0, START])
@pytest.mark.parametrize("order", [*permutations(range(3))])
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_the_last_state_is_stored_in_whatever_order_they_come(
    running: int, order: tuple[int, ...], *, is_one_batch: bool, tmp_path: Path
) -> None:
    states = [
        update(0, running),
        update(1, running, customer_id="c"),
        update(2, END, output="It shines."),
    ]
    some = [states[number] for number in order]
    path = tmp_path / "t.duckdb"
    with open_store(path) as store:
        for batch in [some] if is_one_batch else [[one] for one in some]:
            load(store, batch, dead_letters=tmp_path)
        (span,) = stored(store)
        assert span["ends"] == END
        assert dict(span["attributes"])["judgment.output"] == "It shines."
        found = {finding.name: finding for finding in check_store(store, path)}
    assert found["repeated ids"].is_fine


@given(st.permutations([0, 1, 2]))
def test_of_a_span_that_never_ended_the_state_with_the_most_is_stored(
    tmp_path_factory: pytest.TempPathFactory, order: list[int]
) -> None:
    states = [state({str(key): "x" for key in range(size)}, 0) for size in range(3)]
    folder = tmp_path_factory.mktemp("store")
    with open_store(folder / "t.duckdb") as store:
        for number in order:
            load(store, [states[number]], dead_letters=folder)
        (span,) = stored(store)
    assert [key for key, _ in span["attributes"]] == ["0", "1"]


def test_rows_follow_the_later_state(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        found = []
        for sent in (update(0, START), update(1, END, output="It shines.")):
            assert load(store, [sent], dead_letters=tmp_path) == (not found)
            while refresh(store):
                pass
            (tool,) = store.query("SELECT result, end_time FROM tool_calls").to_pylist()
            found.append(json.loads(tool["result"] or "null"))
    assert found == [None, "It shines."]


@given(st.randoms(use_true_random=False))
def test_a_recording_of_judgments_gives_the_last_states_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random
) -> None:
    sent = list(single_requests("judgment/growing"))
    chance.shuffle(sent)
    folder, cut = tmp_path_factory.mktemp("store"), chance.randint(0, len(sent))
    with open_store(folder / "t.duckdb") as store:
        for batch in (sent[:cut], sent[cut:]):
            load(store, batch, dead_letters=folder)
            while refresh(store):
                pass
        assert store.count("spans") < len(sent)
        assert store.count("rejected") == 0
        ran = "SELECT name, result, error_type FROM tool_calls WHERE span_id IS NOT NULL"
        rows = store.query(ran).to_pylist()
    assert sorted((one["name"], json.loads(one["result"] or "null")) for one in rows) == [
        ("rain", "It rains in Ostia until noon."),
        ("rain", "It rains in Rome until noon."),
        ("sun", "Error: no such city: Atlantis"),
        ("sun", "The sun shines in Ostia."),
        ("sun", "The sun shines in Rome."),
    ]


@pytest.mark.parametrize(
    ("end", "start"), [(END, START), (END, START + 1), (0, START + 1)], ids=["same", "run", "open"]
)
def test_another_span_with_the_same_ids_is_rejected_and_takes_no_place(
    end: int, start: int, tmp_path: Path
) -> None:
    """It has another start, or ended at the same time with other attributes."""
    with open_store(tmp_path / "t.duckdb") as store:
        for sent in (state({"a": "1"}, END), state({"b": "2"}, end, start)):
            load(store, [sent], dead_letters=tmp_path)
        assert [dict(span["attributes"]) for span in stored(store)] == [{"a": "1"}]
        assert store.column("SELECT starts_with(reason, 'repeated ids:') FROM rejected") == [True]


def test_only_the_span_itself_is_replaced(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        others = [state({"a": str(number)}, START, span=number) for number in (2, 3)]
        load(store, [*others, state({}, START)], dead_letters=tmp_path)
        load(store, [state({"b": "1"}, END)], dead_letters=tmp_path)
        rows = store.query("SELECT span_id, attributes FROM spans ORDER BY span_id").to_pylist()
    assert [dict(span["attributes"]) for span in rows] == [{"b": "1"}, {"a": "2"}, {"a": "3"}]
