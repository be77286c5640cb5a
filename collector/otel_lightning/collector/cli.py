"""The command line of `lightning-ingest`: it parses and reports, nothing more."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

STORE = click.option(
    "--store",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("traces.duckdb"),
    show_default=True,
    envvar="LIGHTNING_STORE",
    help="The DuckDB file.",
)


class _ServeByDefault(click.Group):
    """`lightning-ingest --http …` means `lightning-ingest serve --http …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "--version")):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ServeByDefault)
@click.version_option(package_name="otel-lightning")
def main() -> None:
    """Receive OpenTelemetry traces of LLM agents, keep them in DuckDB, answer SQL.

    Without a command it serves.
    """


@main.command()
@click.option("--grpc", default="127.0.0.1:4317", show_default=True, envvar="LIGHTNING_GRPC",
              help="Address for OTLP over gRPC.")  # fmt: skip
@click.option("--http", default="127.0.0.1:4318", show_default=True, envvar="LIGHTNING_HTTP",
              help="Address for OTLP over HTTP.")  # fmt: skip
@STORE
def serve(grpc: str, http: str, store: Path) -> None:
    """Receive OTLP until stopped."""
    from otel_lightning.collector.serve import Address
    from otel_lightning.collector.serve import serve as receive

    try:
        addresses = Address.parse(grpc), Address.parse(http)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with _expected_errors():
        receive(store, *addresses, say=click.echo)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@STORE
def load(files: tuple[Path, ...], store: Path) -> None:
    """Store OTLP from FILES: protobuf, JSON or JSON lines, plain, gzip or zstd.

    Loading a file again changes nothing.
    """
    from otel_lightning.collector.load import derive_all, expand, load_file
    from otel_lightning.collector.store import open_store

    broken: list[str] = []
    records = new = 0
    paths = expand(files)
    with _expected_errors(), open_store(store) as opened:
        with click.progressbar(paths, label="Loading") as progress:
            for path in progress:
                try:
                    loaded = load_file(opened, path)
                except (ValueError, OSError) as error:
                    broken.append(str(error))
                else:
                    records, new = records + loaded.records, new + (loaded.new or 0)
        derive_all(opened, store)
        fresh = "stored by the running lightning-ingest" if opened.server else f"{new:,} new"
    click.echo(f"{len(paths) - len(broken):,} files, {records:,} spans and log records, {fresh}.")
    if broken:
        raise click.ClickException("\n".join(broken))


@main.command()
@click.argument("query")
@click.option("--format", "form", default="table", show_default=True, envvar="LIGHTNING_SQL_FORMAT",
              type=click.Choice(["table", "json", "csv", "parquet"]),
              help="How to write the answer.")  # fmt: skip
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path),
              envvar="LIGHTNING_SQL_OUTPUT",
              help="Write to this file; parquet needs it.")  # fmt: skip
@STORE
def sql(query: str, form: str, output: Path | None, store: Path) -> None:
    """Answer one SELECT, whether or not the ingester runs."""
    from otel_lightning.collector.output import write
    from otel_lightning.collector.store import is_select, open_store

    if form == "parquet" and output is None:
        raise click.UsageError("Parquet is binary: say where to with --output FILE.")
    with _expected_errors():
        if not is_select(query):
            raise click.UsageError("Only one SELECT statement at a time; the store is not changed.")
        with open_store(store, read_only=True) as opened:
            write(opened.query(query), form, output, echo=click.echo)


@main.command()
@click.option(
    "--rebuild",
    is_flag=True,
    envvar="LIGHTNING_REBUILD",
    help="Derive everything anew from what was received.",
)
@STORE
def derive(rebuild: bool, store: Path) -> None:  # noqa: FBT001  click passes flags by name
    """Bring llm_calls, tool_calls and the other derived tables up to date."""
    from otel_lightning.collector.load import derive_all
    from otel_lightning.collector.refresh import rebuild as start_anew
    from otel_lightning.collector.store import open_store

    with _expected_errors(), open_store(store, create=False) as opened:
        if rebuild:
            start_anew(opened)
        derive_all(opened, store)
    click.echo("The derived tables are up to date.")


@main.command()
@STORE
def check(store: Path) -> None:
    """Say what is stored and whether all is well; exit code 1 if not."""
    from otel_lightning.collector.check import check as find
    from otel_lightning.collector.store import open_store

    with _expected_errors(), open_store(store, read_only=True) as opened:
        findings = find(opened, store)
    for finding in findings:
        mark = "" if finding.well else click.style("  <- look here", fg="red")
        click.echo(f"{finding.name:>14}  {finding.value}{mark}")
    if not all(finding.well for finding in findings):
        raise SystemExit(1)


@contextmanager
def _expected_errors() -> Iterator[None]:
    from otel_lightning.collector.store import StoreError

    try:
        yield
    except (StoreError, OSError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise click.ClickException(text) from error
