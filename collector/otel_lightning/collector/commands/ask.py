"""`lightning-ingest sql` and `attach`: two ways to query the store."""

import sys
from pathlib import Path
from shutil import get_terminal_size

from otel_lightning.collector.commands.attach import attach_script
from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.print_rows import Layout, write


def layout(width: int | None, max_rows: int, *, in_color: bool) -> Layout:
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


def answer(store: Path, query: str, form: str, output: Path | None, chosen: Layout) -> None:
    """Run one SELECT and write its answer."""
    with open_store(store, read_only=True) as opened:
        rows = opened.query(query)
    write(rows, form, output, echo=_echo, layout=PLAIN_FILE if output else chosen)


def attach_text(store: Path) -> str:
    """Return the SQL with which another DuckDB reads the store."""
    with open_store(store, read_only=True) as opened:
        return attach_script(opened, store)


PLAIN_FILE = Layout()


def _echo(text: str) -> None:
    # Not click.echo, which removes escape sequences outside a terminal: they may be data.
    sys.stdout.write(text + "\n")
