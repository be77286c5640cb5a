"""Answers as a table for people."""

import sys
import unicodedata
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from support.page_source import DirectSource
from support.running import finish

from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.print_rows import Layout, as_table, write

NANOSECONDS = pa.timestamp("ns")


def test_times_keep_their_nanoseconds_at_any_depth() -> None:
    event = pa.struct([("time", NANOSECONDS), ("seen", pa.map_(pa.string(), NANOSECONDS))])
    rows = pa.table(
        {
            "at": pa.array([1_700_000_000_123_456_789, None], NANOSECONDS),
            "events": pa.array([[{"time": 1, "seen": {"k": 2}}], None], pa.list_(event)),
        }
    )
    text = as_table(rows)
    assert "2023-11-14 22:13:20.123456789" in text
    assert "1970-01-01 00:00:00.000000001" in text


@pytest.mark.parametrize("layout", [Layout(), Layout(60)])
def test_numbers_are_at_the_right_also_sums_of_whole_numbers(
    tmp_path: Path, layout: Layout
) -> None:
    asked = (
        "SELECT sum(range) AS of_whole, sum(range / 2) AS of_real, 1.5::DECIMAL(3, 1) AS decimal, "
        "'x' AS text FROM range(4)"
    )
    with open_store(tmp_path / "t.duckdb") as store:
        lines = as_table(store.query(asked), layout).splitlines()
        page = DirectSource(store).get(f"/ui/sql?q={quote(asked)}").body.decode()
    assert lines[0].rstrip() == "of_whole  of_real  decimal  text"
    assert lines[-1].rstrip() == "       6        3      1.5  x"
    assert page.count('<td class="n">') == 3


def test_no_cell_is_cut_where_no_width_is_asked_for() -> None:
    text = as_table(pa.table({"a": ["x" * 500], "b": ["y" * 500]}))
    assert "x" * 500 + "  " + "y" * 500 in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_asked_for(width: int) -> None:
    rows = pa.table({f"column_{n}": ["word " * 30, "kurz"] for n in range(3)})
    lines = as_table(rows, Layout(width)).splitlines()
    assert max(map(len, lines)) <= width
    assert any("…" in line for line in lines)


def test_many_columns_become_a_block_for_each_row() -> None:
    rows = pa.table({f"c{n}": [f"v{n}", "w"] for n in range(30)})
    first, second = as_table(rows, Layout(80)).split("\n\n")
    assert [line.split() for line in first.splitlines()] == [[f"c{n}", f"v{n}"] for n in range(30)]
    assert len(second.splitlines()) == 30


def test_rows_beyond_the_limit_are_counted() -> None:
    rows = pa.table({"n": list(range(1234))})
    lines = as_table(rows, Layout(most_rows=100)).splitlines()
    assert lines[-1] == "… and 1,134 more rows; --max-rows 0 shows all."
    assert len(lines) == 2 + 100 + 1
    assert len(as_table(rows).splitlines()) == 2 + 1234


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_no_control_character_reaches_a_terminal(form: str) -> None:
    every = "".join(map(chr, [*range(1, 32), *range(127, 160), 0x202E, 0x2066, 0xFEFF]))
    rows = pa.table({f"name{every}": [f"a{every}b", "[red]markup[/red]"]})
    said: list[str] = []
    write(rows, form, None, echo=said.append, layout=Layout(2000, is_terminal=True))
    found = {c for c in said[0] if unicodedata.category(c).startswith("C")} - {"\n"}
    assert found == set()
    assert "[red]markup[/red]" in said[0]


def test_times_are_as_short_as_they_can_be() -> None:
    rows = pa.table(
        {"at": pa.array([1_700_000_000_120_000_000, 1_700_000_000 * 10**9], NANOSECONDS)}
    )
    assert as_table(rows).splitlines()[2:] == ["2023-11-14 22:13:20.12", "2023-11-14 22:13:20"]


def test_colours_are_written_only_where_asked_for() -> None:
    rows = pa.table({"n": [1]})
    assert "\x1b[" in as_table(rows, Layout(80, in_color=True))
    assert "\x1b" not in as_table(rows, Layout(80))


def test_an_answer_of_many_rows_looks_as_in_a_terminal_that_is_wide_enough() -> None:
    columns = {
        "text": ["x", "漢字 und", "\x1b[2J", None, "e\u0301 é 👍"],
        "名前": [1, None, 300, 4, 5],
        "share": [1.5, 2, None, 1e9, 0.1],
        "time": pa.array([0, 1, 2, 3, None], pa.timestamp("ns")),
        "list": [[1, 2], None, [], [3], [4]],
    }
    rows = pa.table(columns)
    assert as_table(rows) == as_table(rows, Layout(width=200))
    assert as_table(rows.slice(0, 0)) == as_table(rows.slice(0, 0), Layout(width=200))


def test_plain_table_is_printed_without_rich_and_compute() -> None:
    program = (
        "import duckdb, sys; from otel_lightning.collector.store import print_rows; "
        "print_rows.as_table(duckdb.sql('SELECT 1').to_arrow_table()); "
        "sys.exit(bool({'rich', 'pyarrow.compute'} & set(sys.modules)))"
    )
    finish(sys.executable, "-c", program, check=True)
