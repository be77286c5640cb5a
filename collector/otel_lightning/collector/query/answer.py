"""`lightning-ingest sql`: run one SELECT and write its answer."""

import sys
import time
from pathlib import Path
from shutil import get_terminal_size
from typing import NamedTuple

import click

from otel_lightning.collector.store import is_select, open_store
from otel_lightning.collector.store.print_rows import Layout, write
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.collector.terminal.text_input import read_stdin, read_text

PLAIN_FILE = Layout()


class AnswerOptions(NamedTuple):
    """How and where to write an answer."""

    form: str
    """Name of the format, such as `csv`."""
    output: Path | None
    """The file to write; None for standard output."""
    layout: Layout
    timing: bool = False
    """Whether to print the seconds that the answer took, on standard error."""


def table_layout(width: int | None, max_rows: int, *, in_color: bool) -> Layout:
    """Choose the layout of a table: as wide as the terminal, or without a terminal untruncated.

    Args:
        width: Characters of a line; None uses the terminal's.
        max_rows: Most rows to show; 0 shows all.
        in_color: Whether to use colours, if standard output is a terminal.
    """
    is_terminal = sys.stdout.isatty()
    if width is None and is_terminal:
        width = get_terminal_size().columns
    return Layout(width, max_rows or None, in_color and is_terminal, is_terminal)


def read_query(file: Path | None) -> str | None:
    """Read the query from a file or a pipe; return None if a user types at a terminal.

    Raises:
        OSError: If the file or the pipe cannot be read, or is not UTF-8.
    """
    if file is not None:
        return read_text(file)
    return None if sys.stdin.isatty() else read_stdin()


def check_select(query: str) -> None:
    """Refuse a text that is not one SELECT.

    Raises:
        click.UsageError: If it is not.
        StoreError: If it is not valid SQL.
    """
    if not query.strip().strip(";"):
        raise click.UsageError("There is no query. Give one SELECT, --file, or type at a prompt.")
    if not is_select(query):
        raise click.UsageError("Only one SELECT statement at a time; the store is not changed.")


def answer(store: Path, query: str, options: AnswerOptions) -> None:
    """Run one SELECT and write its answer."""
    with open_store(store, read_only=True) as opened:
        started = time.perf_counter()
        rows = opened.query(query)
        seconds = time.perf_counter() - started
        layout = PLAIN_FILE if options.output else options.layout
        write(rows, options.form, options.output, echo=_echo, layout=layout)
    if options.timing:
        click.echo(f"{number_of(len(rows), 'row')} in {seconds:.3f} s", err=True)


def _echo(text: str) -> None:
    # Not click.echo, which removes escape sequences outside a terminal: they may be data.
    sys.stdout.write(text + "\n")
