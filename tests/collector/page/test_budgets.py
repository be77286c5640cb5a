"""What a page may cost, in bytes and in rows read: numbers that no loaded machine changes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.page_source import DirectSource, Page

from otel_lightning.collector.page.statements import sql_text, with_values
from otel_lightning.collector.store import open_store

STEPS, SPANS, OTHERS = 5_000, 100_000, 60_000
MOST_BYTES = 200_000
MOST_ROWS_ANSWERED = 1_000
ROW_GROUP = 6 * 2048
"""DuckDB reads or skips whole row groups, by the least and largest time in each."""
LONG = Path(__file__).parents[2] / "support" / "long_store.sql"
FILL = """
    INSERT INTO llm_calls BY NAME
    SELECT md5('t' || range // 5) AS trace_id, printf('%016x', range) AS span_id,
        'r' || md5('t' || range // 5) AS rollout_id, (range % 5)::INTEGER AS step,
        make_timestamp_ns(1800000000000000000 + range * 1000000000) AS start_time,
        make_timestamp_ns(1800000000500000000 + range * 1000000000) AS end_time,
        '[]' AS input_messages, '[]' AS output_messages, md5('s' || range) AS state_hash
    FROM range({calls});
    INSERT INTO rollout_rows BY NAME
    SELECT rollout_id, min(trace_id) AS trace_id, min(start_time) AS start_time,
        max(end_time) AS end_time, 5 AS llm_calls, 0 AS tool_calls, 0 AS failed_calls,
        0 AS failed_tools, 'open' AS outcome
    FROM llm_calls GROUP BY rollout_id ORDER BY start_time
"""


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectSource]:
    """A store with many rollouts, a long one, and a wide trace."""
    with open_store(tmp_path_factory.mktemp("big") / "t.duckdb") as store:
        store.execute(FILL.format(calls=OTHERS))
        store.execute(with_values(LONG.read_text(), {"steps": STEPS, "spans": SPANS}))
        store.checkpoint()
        yield DirectSource(store)


def at(source: DirectSource, rollout: str) -> str:
    """The address of a rollout, as a list links to it."""
    rows = source.store.query(
        f"SELECT epoch_ns(start_time) AS ns FROM rollout_rows WHERE rollout_id = '{rollout}'"
    )
    return f"/ui/rollouts/{rollout}?at={rows['ns'][0]}"


def scanned(node: dict[str, Any]) -> int:
    """Rows that the scans of an analyzed plan read."""
    own = int(node.get("operator_rows_scanned") or 0)
    return own + sum(scanned(child) for child in node.get("children", []))


def rows_read(source: DirectSource, name: str, parameters: dict[str, Any]) -> int:
    text = with_values(sql_text(name, parameters), parameters)
    cursor = source.store._connection.cursor()
    rows = cursor.execute(f"EXPLAIN (ANALYZE, FORMAT json) {text}").fetchall()
    return scanned(json.loads(rows[0][1]))


@pytest.mark.slow
def test_a_long_rollout_and_a_wide_trace_are_no_larger_than_small_ones(big: DirectSource) -> None:
    big.asked.clear()
    addresses = ["/ui", "/ui/rollouts", at(big, "long"), f"{at(big, 'long')}&step=4200",
                 f"{at(big, 'long')}&first=100&fragment=1", "/ui/traces/wide",
                 "/ui/rollouts/long/steps/3", "/ui/data", "/ui/rewards"]  # fmt: skip
    for address in addresses:
        reply = big.get(address)
        assert (reply.status, len(reply.body) < MOST_BYTES) == (200, True), address
    assert max(rows for _, _, rows in big.asked) <= MOST_ROWS_ANSWERED


def test_a_link_far_into_a_rollout_opens_there(big: DirectSource) -> None:
    page = Page(big.get(f"{at(big, 'long')}&step=4200"))
    assert 'id="s4200"' in page.html
    assert 'id="s4000"' not in page.html


def test_the_windows_of_a_rollout_have_each_step_once(big: DirectSource) -> None:
    address: str | None = f"{at(big, 'long')}&first=4700"
    steps: list[int] = []
    while address:
        page = Page(big.get(address + "&fragment=1"))
        steps += [int(v[1:]) for n, v in page.attributes if n == "id" and v[1:].isdigit()]
        following = [link for link in page.links if "first=" in link]
        address = following[0] if following else None
    assert steps == list(range(4700, STEPS))


def test_the_windows_of_a_trace_have_each_span_once(big: DirectSource) -> None:
    address: str | None = "/ui/traces/wide"
    names: list[str] = []
    for _ in range(3):
        page = Page(big.get(f"{address}{'&' if '?' in address else '?'}fragment=1"))  # type: ignore[operator]
        names += [link.rpartition("/")[2] for link in page.links if "/spans/" in link]
        address = next(link for link in page.links if "after=" in link)
    assert len(names) == len(set(names)) == 600


def test_a_list_reads_only_the_tables_that_its_filter_needs(big: DirectSource) -> None:
    rollouts = big.store.query("SELECT count(*) AS n FROM rollout_rows")["n"][0].as_py()
    for filtered in ("", "?outcome=open&reward=none", "?sort=-calls&calls=2"):
        big.asked.clear()
        assert big.get(f"/ui/rollouts{filtered}").status == 200
        ((name, parameters),) = [(n, p) for n, p, _ in big.asked if n.startswith("rollouts_")
                                 and n != "rollouts_choices"]  # fmt: skip
        assert rows_read(big, name, parameters) <= rollouts
        assert "transition_rollouts" not in sql_text(name, parameters)


@pytest.mark.parametrize("filtered", ["", "&sort=-reward&reward=any"])
def test_a_page_reads_only_the_row_groups_of_its_time(big: DirectSource, filtered: str) -> None:
    total = big.store.query("SELECT count(*) AS n FROM llm_calls")["n"][0].as_py()
    assert total > 5 * ROW_GROUP
    first = big.store.query("SELECT rollout_id FROM rollout_rows ORDER BY start_time LIMIT 1")
    big.asked.clear()
    assert big.get(at(big, str(first["rollout_id"][0])) + filtered).status == 200
    narrow = {"rollout_calls", "rollout_errors", "rollout_traces"}
    of_calls = [(n, p) for n, p, _ in big.asked if n in narrow]
    assert {name for name, _ in of_calls} == narrow
    for name, parameters in of_calls:
        assert rows_read(big, name, parameters) <= 2 * ROW_GROUP, name
