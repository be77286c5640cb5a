"""`lightning-ingest load` and `derive`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from otel_lightning.collector.commands.options import (
    CLIENT_CERT,
    CLIENT_KEY,
    MEMORY,
    SPANS_AT_ONCE,
    STORE,
    WORKERS,
    client_of,
)
from otel_lightning.collector.terminal.command_line import example, expected_errors
from otel_lightning.collector.terminal.quantities import number_of

if TYPE_CHECKING:
    from otel_lightning.collector.load.from_files import Loaded
    from otel_lightning.collector.store import Store
    from otel_lightning.collector.store.answering import Client
    from otel_lightning.collector.store.deduplication.seen_ids import SeenIds


@click.command(epilog=example("lightning-ingest load traces.jsonl exported/"))
@STORE
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@CLIENT_CERT
@CLIENT_KEY
@WORKERS
@MEMORY
def load(
    files: tuple[Path, ...], store: Path, workers: int, memory: int, **certificate: Path | None
) -> None:
    """Load files of OTLP, or what another trace store exported.

    FILES are files or folders: OTLP as protobuf, JSON or JSON lines, or JSON, CSV or Parquet of
    Amazon Bedrock, ClickHouse, Jaeger, Langfuse, LangSmith, MLflow, Phoenix or Tempo; plain, gzip
    or zstd. Scores and annotations become rewards. Loading a file again changes nothing.
    """
    from otel_lightning.collector.process.light_imports import leave_out_unused

    leave_out_unused()  # before anything that loads Arrow
    from otel_lightning.collector.load.from_files import derive_all, expand, load_judgements
    from otel_lightning.collector.process.allocator import share_memory
    from otel_lightning.collector.store import keep_files_private, open_store
    from otel_lightning.collector.store.deduplication.seen_ids import SeenIds

    client = client_of(certificate["client_cert"], certificate["client_key"])
    paths = expand(files)
    if not paths:
        folders = ", ".join(f"'{folder}'" for folder in files)
        raise click.ClickException(f"No file is in {folders}, nor in a folder below.")
    share_memory()
    keep_files_private()
    with expected_errors(), open_store(store) as opened:
        opened.limit(memory)
        seen_ids = SeenIds(opened)
        loaded, broken = _load_each(opened, paths, seen_ids, client)
        derive_all(opened, store, workers=workers)
        if judgements := [one for file in loaded for one in file.judgements]:
            loaded.append(load_judgements(opened, judgements, seen_ids, client))
            derive_all(opened, store, workers=workers)
        is_served = opened.server is not None
    _report(loaded, number_of(len(paths) - len(broken), "file"), is_served=is_served)
    if broken:
        raise click.ClickException("\n".join(broken))


def _load_each(
    store: "Store", paths: Sequence[Path], seen_ids: "SeenIds", client: "Client | None"
) -> "tuple[list[Loaded], list[str]]":
    """Load files; return what was loaded, and why each other file cannot be loaded."""
    from otel_lightning.collector.files.reason import named_reason
    from otel_lightning.collector.load.from_files import load_file
    from otel_lightning.collector.terminal.progress import Progress

    loaded, broken = [], []
    progress = Progress("Loading", len(paths))
    for done, path in enumerate(paths, start=1):
        try:
            loaded.append(load_file(store, path, seen_ids, client))
        except (ValueError, OSError) as error:
            broken.append(named_reason(error))
        progress.report(done, "files")
    return loaded, broken


def _report(loaded: "Sequence[Loaded]", files: str, *, is_served: bool) -> None:
    new = sum(one.new or 0 for one in loaded)
    fresh = "stored by the running lightning-ingest" if is_served else f"{new:,} new"
    records = sum(one.records for one in loaded)
    records_in_words = number_of(records, "span or log record", "spans and log records")
    click.echo(f"{files}, {records_in_words}, {fresh}.")
    for reason, count in Counter(reason for one in loaded for reason in one.left_out).items():
        click.echo(f"Not loaded: {count:,} times {reason}.", err=True)


@click.command()
@STORE
@click.option(
    "--rebuild",
    is_flag=True,
    envvar="LIGHTNING_DERIVE_REBUILD",
    help="Derive all rows again from the stored spans and logs.",
)
@SPANS_AT_ONCE
@WORKERS
@MEMORY
def derive(*, rebuild: bool, spans_at_once: int, workers: int, memory: int, store: Path) -> None:
    """Update llm_calls, tool_calls and the other derived tables."""
    from otel_lightning.collector.process.light_imports import leave_out_unused

    leave_out_unused()  # before anything that loads Arrow
    from otel_lightning.collector.load.from_files import derive_all, start_anew
    from otel_lightning.collector.process.allocator import share_memory
    from otel_lightning.collector.store import keep_files_private, open_store

    share_memory()
    keep_files_private()
    with expected_errors(), open_store(store, create=False) as opened:
        opened.limit(memory)
        if rebuild:
            start_anew(opened)
        derive_all(opened, store, spans_at_once, workers)
    click.echo("The derived tables are up to date.")
