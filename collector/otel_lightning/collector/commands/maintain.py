"""`lightning-ingest backup`, `copy`, `forget` and `prices`."""

from pathlib import Path
from typing import Any

import click

from otel_lightning.collector.commands.options import MEMORY, SPANS_AT_ONCE, STORE, WORKERS
from otel_lightning.collector.terminal.command_line import example, expected_errors
from otel_lightning.collector.terminal.quantities import number_of


@click.command(epilog=example("lightning-ingest backup copies/traces.duckdb"))
@STORE
@click.argument("dest", type=click.Path(path_type=Path))
def backup(dest: Path, store: Path) -> None:
    """Back up the store to the file DEST, also while the ingester runs.

    Requests that are not stored yet go to DEST.spool, judges' answers to DEST.judge.
    """
    from otel_lightning.collector.maintain.backup import back_up_by_path
    from otel_lightning.collector.store import keep_files_private

    keep_files_private()
    with expected_errors():
        back_up_by_path(store, dest)
    click.echo(f"'{dest}' is a complete copy of '{store}'.")


@click.command(epilog=example("lightning-ingest copy old.duckdb new.duckdb"))
@click.argument("old", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@SPANS_AT_ONCE
@WORKERS
@MEMORY
def copy(old: Path, new: Path, spans_at_once: int, workers: int, memory: int) -> None:
    """Copy spans and logs from the store OLD into a NEW one, and derive them there.

    OLD may have any schema, also of an unreleased version. Scores, runs, policies and judges'
    answers are copied too; run `lightning-learn transitions` for transitions.
    """
    from otel_lightning.collector.load.from_files import derive_all
    from otel_lightning.collector.maintain.copy_store import copy_store
    from otel_lightning.collector.process.allocator import share_memory
    from otel_lightning.collector.store import keep_files_private, open_store

    share_memory()
    keep_files_private()
    with expected_errors():
        copy_store(old, new, click.echo)
        with open_store(new, create=False) as opened:
            opened.limit(memory)
            derive_all(opened, new, spans_at_once, workers)
    click.echo(f"'{new}' has the spans and logs of '{old}', derived again.")


@click.command(epilog=example("lightning-ingest forget --conversation c-17"))
@STORE
@click.option("--trace", "traces", multiple=True, metavar="ID", envvar="LIGHTNING_FORGET_TRACE",
              help="Id of a trace; may be repeated.")  # fmt: skip
@click.option("--rollout", "rollouts", multiple=True, metavar="ID",
              envvar="LIGHTNING_FORGET_ROLLOUT",
              help="Id of a rollout, whose traces are erased; may be repeated.")  # fmt: skip
@click.option("--conversation", "conversations", multiple=True, metavar="ID",
              envvar="LIGHTNING_FORGET_CONVERSATION",
              help="Id of a conversation or session; may be repeated.")  # fmt: skip
@click.option("--where", metavar="SQL", envvar="LIGHTNING_FORGET_WHERE",
              help="SQL condition on spans, such as \"attributes['user.id'] = 'u1'\".")  # fmt: skip
@MEMORY
def forget(store: Path, memory: int, **selected: Any) -> None:
    """Erase traces from the store, its spool and judges' answers, down to the bytes on disk.

    A trace is always erased as a whole. If the ingester runs, it erases, and goes on receiving.
    """
    from otel_lightning.collector.maintain.erase import Selection
    from otel_lightning.collector.maintain.erase_served import erase_by_path
    from otel_lightning.collector.store import keep_files_private

    keep_files_private()
    with expected_errors():
        erased = erase_by_path(store, Selection(**selected), memory)
    if erased.has_finished:
        click.echo("Erased what an interrupted forget had left in the file.")
    if not erased.rows:
        if erased.has_finished:
            return
        raise click.ClickException(
            "No trace or rollout in the store matches the options; nothing was erased."
        )
    click.echo(
        f"Erased {number_of(erased.traces, 'trace')} and {number_of(erased.rollouts, 'rollout')}: "
        f"{number_of(erased.rows, 'row')}. "
        f"Backups, exports and what was learned are not touched."
    )


@click.command(epilog=example("lightning-ingest prices prices.csv"))
@STORE
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def prices(file: Path, store: Path) -> None:
    """Replace the prices that the view `costs` uses.

    FILE is CSV or JSON, with prices per million tokens: model, input, output, and optionally
    provider, cached_input and cache_creation_input. LiteLLM's price list works too.
    """
    from otel_lightning.collector.maintain.prices import set_prices
    from otel_lightning.collector.store import open_store

    with expected_errors(), open_store(store, create=False) as opened:
        click.echo(f"{number_of(set_prices(opened, file), 'price')} per million tokens.")
