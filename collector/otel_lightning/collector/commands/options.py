"""Options that several commands of `lightning-ingest` share."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from otel_lightning.collector.files.links import followed
from otel_lightning.collector.store import LEAST_MEMORY_BYTES
from otel_lightning.collector.terminal.quantities import parse_size

if TYPE_CHECKING:
    from otel_lightning.collector.store.answering import Client

PEM = click.Path(exists=True, dir_okay=False, path_type=Path)


LINK = f"{__name__}.link"
"""Key in a context's `meta`: the link by which the user named the store, if it is one."""


def _followed(context: click.Context, _option: click.Parameter, path: Path) -> Path:
    """Follow a link to a store, unless a former version left a spool under the link's name."""
    file = followed(path)
    old_spool = path.with_name(path.name + ".spool")
    if file != path and any(segment.stat().st_size for segment in old_spool.glob("*.spool")):
        raise click.ClickException(
            f"'{path}' is a link to '{file}', and the spool '{old_spool}' is beside the link. Stop "
            f"lightning-ingest, and move the spool to '{file}.spool'."
        )
    if file != path:
        context.meta[LINK] = path.absolute()
    return file


STORE = click.option(
    "--store",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_followed,
    default=Path("traces.duckdb"),
    show_default=True,
    envvar="LIGHTNING_STORE",
    help="The DuckDB file.",
)
CLIENT_CERT = click.option(
    "--client-cert",
    type=PEM,
    envvar="LIGHTNING_CLIENT_CERT",
    help="Client certificate, if a running lightning-ingest requires one.",
)
CLIENT_KEY = click.option(
    "--client-key",
    type=PEM,
    envvar="LIGHTNING_CLIENT_KEY",
    help="Private key of --client-cert.",
)
SPANS_AT_ONCE = click.option(
    "--spans-at-once",
    type=click.IntRange(min=1),
    default=25_000,
    show_default=True,
    envvar="LIGHTNING_SPANS_AT_ONCE",
    help="Most spans to derive in one batch; a smaller batch needs less memory.",
)


def _bytes(_context: click.Context, _option: click.Parameter, text: str) -> int:
    """Convert the memory limit of DuckDB to bytes, and check that it is large enough."""
    try:
        size = parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if size < LEAST_MEMORY_BYTES:
        smallest = f"{LEAST_MEMORY_BYTES // 10**6}MB"
        raise click.BadParameter(f"must be at least {smallest}: what is stored at once has to fit.")
    return size


MEMORY = click.option(
    "--memory",
    metavar="SIZE",
    callback=_bytes,
    default="512MB",
    show_default=True,
    envvar="LIGHTNING_MEMORY",
    help="Memory limit of DuckDB, shared with SQL clients; above it DuckDB spills to disk.",
)


def _workers(_context: click.Context, _option: click.Parameter, count: int | None) -> int:
    """Choose the number of worker processes by the machine's cores if none is given."""
    from otel_lightning.collector.process import machine

    return machine.workers() if count is None else count


WORKERS = click.option(
    "--workers",
    type=click.IntRange(min=0),
    callback=_workers,
    envvar="LIGHTNING_WORKERS",
    help="Processes that derive if many spans wait; with 0 or 1 none is started."
    "  [default: cores less one, and 2 on two cores]",
)


def client_of(cert: Path | None, key: Path | None) -> "Client | None":
    """Return the client certificate that a command was given; None without one.

    Raises:
        UsageError: If one of both files is missing.
    """
    from otel_lightning.collector.store.answering import Client

    if bool(cert) != bool(key):
        raise click.UsageError("A certificate needs its key: give --client-cert and --client-key.")
    return Client(cert, key) if cert and key else None
