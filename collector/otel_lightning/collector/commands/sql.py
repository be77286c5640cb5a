"""`lightning-ingest sql` and `attach`."""

import os
from pathlib import Path

import click

from otel_lightning.collector.commands.options import STORE
from otel_lightning.collector.terminal.command_line import example, expected_errors, uncollected

FORMATS = ("table", "json", "csv", "parquet")


@click.command(
    epilog=example(
        'lightning-ingest sql "SELECT request_model, count(*) FROM llm_calls GROUP BY 1"'
    )
)
@STORE
@click.argument("query", required=False)
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              envvar="LIGHTNING_SQL_FILE", help="File with the query.")  # fmt: skip
@click.option("--format", "form", envvar="LIGHTNING_SQL_FORMAT", type=click.Choice(FORMATS),
              help="Format of the answer.  [default: by the name of --output, else table]",
              )  # fmt: skip
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path),
              envvar="LIGHTNING_SQL_OUTPUT",
              help="File for the answer; required for parquet.")  # fmt: skip
@click.option("--width", type=click.IntRange(min=20), envvar="LIGHTNING_SQL_WIDTH",
              help="Width of a table, in characters.  [default: the terminal's]")  # fmt: skip
@click.option("--max-rows", type=click.IntRange(min=0), default=100, show_default=True,
              envvar="LIGHTNING_SQL_MAX_ROWS",
              help="Most rows of a table to show; 0 shows all.")  # fmt: skip
@click.option("--timing", is_flag=True, envvar="LIGHTNING_SQL_TIMING",
              help="Print how long the answer took, on standard error.")  # fmt: skip
def sql(  # noqa: PLR0913  click passes each option
    *,
    query: str | None,
    file: Path | None,
    form: str | None,
    output: Path | None,
    width: int | None,
    max_rows: int,
    timing: bool,
    store: Path,
) -> None:
    """Run one SELECT, whether or not the ingester runs.

    Without QUERY and --file it opens a prompt with history and completion; in a pipe it reads the
    query from standard input.
    """
    with uncollected():
        from otel_lightning.collector.query.answer import (
            AnswerOptions,
            answer,
            check_select,
            read_query,
            table_layout,
        )

    if query is not None and file is not None:
        raise click.UsageError("Give the query or --file, not both.")
    if form is None:
        form = _format_of(output)
    if form == "parquet" and output is None:
        raise click.UsageError("Parquet is binary: say where to with --output FILE.")
    layout = table_layout(width, max_rows, in_color="NO_COLOR" not in os.environ)
    with expected_errors():
        text = query if query is not None else read_query(file)
        if text is None:
            from otel_lightning.collector.query.prompt import prompt

            prompt(store, layout)
        else:
            check_select(text)
            answer(store, text, AnswerOptions(form, output, layout, timing=timing))


def _format_of(output: Path | None) -> str:
    """Return the format that a file's name ends with; `table` for any other name."""
    suffix = output.suffix.lower().removeprefix(".") if output else ""
    return suffix if suffix in FORMATS else "table"


@click.command()
@STORE
def attach(store: Path) -> None:
    """Print the SQL that attaches the store in a DuckDB shell or notebook.

    It works whether or not the ingester runs.

    For example: duckdb -init <(lightning-ingest attach)
    """
    from otel_lightning.collector.query.attach import attach_script
    from otel_lightning.collector.store import open_store

    with expected_errors(), open_store(store, read_only=True) as opened:
        click.echo(attach_script(opened, store))
