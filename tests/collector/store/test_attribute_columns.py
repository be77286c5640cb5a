"""Promoted attributes: a column beside the map that answers in its place, and says the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.store import Store, attribute_columns, open_store

MODEL = "attributes['gen_ai.request.model']"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Three spans: of two models and of none; the last one with an event of its own model."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number, model in enumerate(("a", "b", None), start=1):
        span = spans.add(name=f"s{number}", trace_id=b"t" * 16, span_id=number.to_bytes(8))
        if model:
            span.attributes.add(key="gen_ai.request.model").value.string_value = model
        span.attributes.add(key="gen_ai.usage.input_tokens").value.int_value = number
    event = spans[2].events.add(name="e")
    event.attributes.add(key="gen_ai.request.model").value.string_value = "in the event"
    with open_store(tmp_path / "t.duckdb") as opened:
        requests = [Request("traces", 1, request.SerializeToString())]
        load(opened, requests, dead_letters=tmp_path)
        yield opened


def test_each_promoted_column_equals_the_value_in_the_map(store: Store) -> None:
    for key in attribute_columns.KEYS:
        rows = store.query(f'SELECT attributes AS map, "{key}" AS promoted FROM spans').to_pylist()
        assert [row["promoted"] for row in rows] == [dict(row["map"]).get(key) for row in rows]


@pytest.mark.parametrize(
    ("sql", "names", "rows"),
    [
        (f"SELECT name FROM spans WHERE {MODEL} = 'b'", ["name"], [("s2",)]),
        (f"SELECT {MODEL} FROM spans ORDER BY name", [MODEL], [("a",), ("b",), (None,)]),
        (f"SELECT upper(s.{MODEL}) FROM spans s LIMIT 1", [f"upper(s.{MODEL})"], [("A",)]),
        (f"SELECT {MODEL} AS m, count(*) AS n FROM spans GROUP BY {MODEL} ORDER BY m", ["m", "n"],
         [("a", 1), ("b", 1), (None, 1)]),
        ("SELECT sum(attributes['gen_ai.usage.input_tokens']::BIGINT) AS n FROM spans", ["n"],
         [(6,)]),
        (f"SELECT e.{MODEL} AS m FROM (SELECT unnest(events) AS e FROM spans)", ["m"],
         [("in the event",)]),
        (f"SELECT {MODEL} AS m FROM (SELECT MAP {{'gen_ai.request.model': 'x'}} AS attributes)",
         ["m"], [("x",)]),
        (f"SELECT {MODEL} AS m FROM (SELECT * REPLACE (MAP {{}} AS attributes) FROM spans LIMIT 1)",
         ["m"], [(None,)]),
        (f"SELECT {MODEL} AS m FROM logs", ["m"], []),
        ("SELECT attributes['no such key'] AS m FROM spans LIMIT 1", ["m"], [(None,)]),
    ],
)  # fmt: skip
def test_an_attribute_reads_the_same_wherever_it_stands(
    store: Store, sql: str, names: list[str], rows: list[tuple[object, ...]]
) -> None:
    answer = store.query(sql)
    assert answer.column_names == names
    assert [tuple(row.values()) for row in answer.to_pylist()] == rows


def test_a_promoted_attribute_is_read_from_its_column_alone(store: Store) -> None:
    plan = attribute_columns.rewrite(
        f"SELECT name FROM spans WHERE {MODEL} = 'b'",
        store._connection,
    )
    assert "attributes" not in plan
    assert '"gen_ai.request.model"' in plan
