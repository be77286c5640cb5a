"""Print the answers of `lightning-ingest sql`: a table for people; json, csv, parquet for programs.

Stored texts come from outside and are not trusted. Their control characters could move the cursor
of a terminal, change its title or hide text, so they are escaped before they reach a terminal.
"""

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import pyarrow as pa

from otel_lightning.collector.store.errors import as_store_error
from otel_lightning.collector.store.sql_text import quote_literal
from otel_lightning.collector.store.times_as_text import all_times_as_text
from otel_lightning.collector.terminal.quantities import number_of

if TYPE_CHECKING:
    from rich.console import RenderableType

NARROWEST = 10  # characters of a column with its gap; if columns are narrower, print rows as blocks
UNLIMITED = 1_000_000  # characters of a line that does not go to a terminal


class Layout(NamedTuple):
    """Settings for printing a table."""

    width: int | None = None
    """Width of a line in characters; None cuts nothing."""
    most_rows: int | None = None
    """Largest number of rows to print; None prints all."""
    in_color: bool = False
    is_terminal: bool = False
    """Whether the output is a terminal: then control characters in csv and json are escaped too."""


PLAIN = Layout()


def write(
    rows: pa.Table,
    form: str,
    output: Path | None,
    *,
    echo: Callable[[str], None],
    layout: Layout = PLAIN,
) -> None:
    """Write an answer as a table, csv, json or parquet, to a file or through `echo`."""
    if form == "table":
        text = as_table(rows, layout)
    elif output:
        copy_to(rows, form, output)
        return
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "answer"
            copy_to(rows, form, file)
            text = file.read_text().rstrip("\n")
        if layout.is_terminal:
            text = "\n".join(map(printable, text.split("\n")))
    if output:
        output.write_text(text + "\n")
    else:
        echo(text)


def printable(text: str) -> str:
    r"""Escape every character that is not printable, such as the escape character.

    Example:
        >>> print(printable("a\x1b[2Jb"))
        a\x1b[2Jb
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def as_table(rows: pa.Table, layout: Layout = PLAIN) -> str:
    """Print rows as aligned columns, numbers to the right.

    If a line is too narrow, cells are cut and end with an ellipsis. If there are too many columns
    for the width, each row becomes a block with one line per column.
    """
    shown_rows = rows if layout.most_rows is None else rows.slice(0, layout.most_rows)
    width = layout.width or UNLIMITED
    if layout.width is None and not layout.in_color:
        text = _aligned(shown_rows)
    elif len(rows.column_names) * NARROWEST <= width:
        text = _rendered(_columns(shown_rows), width, in_color=layout.in_color)
    else:
        blocks = (_block(shown_rows.column_names, cells) for cells in _cells(shown_rows))
        text = "\n\n".join(
            _rendered(block, width, in_color=layout.in_color).rstrip() for block in blocks
        )
    lines = [line.rstrip() for line in text.rstrip("\n").split("\n")]
    if (hidden := len(rows) - len(shown_rows)) > 0:
        lines.append(f"… and {number_of(hidden, 'more row')}; --max-rows 0 shows all.")
    return "\n".join(lines)


def _aligned(rows: pa.Table) -> str:
    """Return the same text as `_columns` gives without a width, in 1 % of the time.

    An answer that goes to a file or a pipe may have many rows, and `rich` takes 0.7 ms for each.
    """
    lines = [[printable(name) for name in rows.column_names]]
    lines += [["-" * len(name) for name in lines[0]], *_cells(rows)]
    columns = []
    for field, cells in zip(rows.schema, zip(*lines, strict=True), strict=True):
        widths = [_width(cell) for cell in cells]
        widest = max(widths)
        gaps = [" " * (widest - width) for width in widths]
        is_right = is_number(field.type)
        columns.append(
            [gap + cell if is_right else cell + gap for cell, gap in zip(cells, gaps, strict=True)]
        )
    return "\n".join("  ".join(line) for line in zip(*columns, strict=True))


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes: Chinese characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def is_number(kind: pa.DataType) -> bool:
    """Return whether values are numbers, to align them right; DuckDB's sums of them are decimal."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _columns(rows: pa.Table) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for field in rows.schema:
        name = Text(printable(field.name))
        align = "right" if is_number(field.type) else "left"
        table.add_column(name, justify=align, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    table.add_row(*(Text("-" * len(printable(name)), style="dim") for name in rows.column_names))
    for cells in _cells(rows):
        table.add_row(*map(Text, cells))
    return table


def _block(names: Iterable[str], cells: Iterable[str]) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, cell in zip(names, cells, strict=True):
        table.add_row(Text(printable(name)), Text(cell))
    return table


def _rendered(table: "RenderableType", width: int, *, in_color: bool) -> str:
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=in_color,
        no_color=not in_color,
        color_system="standard" if in_color else None,
        highlight=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def _cells(rows: pa.Table) -> Iterator[list[str]]:
    """Yield the cells of each row as text without control characters."""
    times = [pa.types.is_timestamp(field.type) for field in rows.schema]
    columns = all_times_as_text(rows).columns
    for row in zip(*(c.to_pylist(maps_as_pydicts="lossy") for c in columns), strict=True):
        yield [_cell(value, is_time=time) for value, time in zip(row, times, strict=True)]


def copy_to(rows: pa.Table, form: str, file: Path) -> None:
    """Write rows as csv, json or parquet with DuckDB's own writers."""
    options = "FORMAT json, ARRAY true" if form == "json" else f"FORMAT {form}"
    with as_store_error(), duckdb.connect() as connection:
        connection.register("answer", rows)
        connection.execute(f"COPY answer TO {quote_literal(str(file))} ({options})")


def _cell(value: Any, *, is_time: bool) -> str:
    if value is None:
        return ""
    text = f"{value:,.6g}" if isinstance(value, float) else str(value)
    if is_time and "." in text:
        text = text.rstrip("0").rstrip(".")
    return printable(" ".join(text.split()))
