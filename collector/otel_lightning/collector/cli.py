"""The command line of `lightning-ingest`: it parses and reports, nothing more."""

import logging
from pathlib import Path
from typing import Any, Literal

import click

from otel_lightning.collector.command_line import (
    PEM,
    STORE,
    CommandGroup,
    client_of,
    expected_errors,
    uncollected,
)
from otel_lightning.collector.commands.open_command import open_command
from otel_lightning.collector.commands.show_command import show_command
from otel_lightning.collector.commands.sql_command import sql_command
from otel_lightning.collector.quantities import number_of, parse_size
from otel_lightning.collector.store import LEAST_MEMORY_BYTES

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
        least = f"{LEAST_MEMORY_BYTES // 10**6}MB"
        raise click.BadParameter(f"must be at least {least}: what is stored at once has to fit.")
    return size


MEMORY = click.option(
    "--memory",
    callback=_bytes,
    default="512MB",
    show_default=True,
    envvar="LIGHTNING_MEMORY",
    help="Memory limit of DuckDB, shared with SQL clients; above it DuckDB spills to disk.",
)


def _workers(_context: click.Context, _option: click.Parameter, count: int | None) -> int:
    """Choose the number of worker processes by the machine's cores if none is given."""
    from otel_lightning.collector import machine

    return machine.workers() if count is None else count


WORKERS = click.option(
    "--workers",
    type=click.IntRange(min=0),
    callback=_workers,
    envvar="LIGHTNING_WORKERS",
    help="Processes that derive under load; with 0 or 1 none is started."
    "  [default: cores less one, and 2 on two cores]",
)


class _ServeByDefault(CommandGroup):
    """`lightning-ingest --http …` means `lightning-ingest serve --http …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {*ctx.help_option_names, "--version"}
        is_completing = ctx.resilient_parsing  # a shell asks for the names of the commands
        if args[0].startswith("-") and args[0] not in own if args else not is_completing:
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ServeByDefault)
@click.version_option(package_name="otel-lightning")
def main() -> None:
    """Receive OpenTelemetry traces of LLM agents, keep them in DuckDB, answer SQL.

    Without a command it serves. OTLP over gRPC goes to port 4317, OTLP over HTTP to port 4318.
    """


@main.command()
@click.option("--grpc", default="127.0.0.1:4317", show_default=True, envvar="LIGHTNING_GRPC",
              help="Address for OTLP over gRPC, for exporters with protocol grpc; 'none' for an"
              " ingester that receives over HTTP only.")  # fmt: skip
@click.option("--http", default="127.0.0.1:4318", show_default=True, envvar="LIGHTNING_HTTP",
              help="Address for OTLP over HTTP, for http/protobuf and http/json; fd://3 takes a"
              " listening socket that this process has inherited.")  # fmt: skip
@click.option("--token", envvar="LIGHTNING_TOKEN",
              help="Bearer token that every request must carry.")  # fmt: skip
@click.option("--tls-cert", type=PEM, envvar="LIGHTNING_TLS_CERT",
              help="TLS certificate (PEM) of this server; reloaded on SIGHUP.")  # fmt: skip
@click.option("--tls-key", type=PEM, envvar="LIGHTNING_TLS_KEY",
              help="Private key of --tls-cert, not encrypted.")  # fmt: skip
@click.option("--tls-client-ca", type=PEM, envvar="LIGHTNING_TLS_CLIENT_CA",
              help="Accept only clients with a certificate of this authority.")  # fmt: skip
@click.option("--insecure", is_flag=True, envvar="LIGHTNING_INSECURE",
              help="Accept other machines without a token or a client certificate.")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, envvar="LIGHTNING_ALLOWED_HOST",
              help="Further host name allowed in Host and Origin; may be repeated.")  # fmt: skip
@click.option("--max-body", type=click.IntRange(min=1), default=64, show_default=True,
              envvar="LIGHTNING_MAX_BODY",
              help="Largest request in MiB, before and after decompression.")  # fmt: skip
@click.option("--max-value-length", type=click.IntRange(min=1),
              envvar="LIGHTNING_MAX_VALUE_LENGTH",
              help="Longest attribute value or log body, in characters; the rest is cut."
              "  [default: no limit]")  # fmt: skip
@click.option("--max-attributes", type=click.IntRange(min=1), envvar="LIGHTNING_MAX_ATTRIBUTES",
              help="Most attributes of a span, event, link or log record; others are dropped."
              "  [default: no limit]")  # fmt: skip
@click.option("--retain", envvar="LIGHTNING_RETAIN",
              help="Delete traces this long after their last span, such as 30d."
              "  [default: never]")  # fmt: skip
@click.option("--max-size", envvar="LIGHTNING_MAX_SIZE",
              help="Delete the oldest traces when the store is larger, such as 20GB."
              "  [default: no limit]")  # fmt: skip
@MEMORY
@click.option("--reader-seconds", type=click.FloatRange(min=0, min_open=True), default=120,
              show_default=True, envvar="LIGHTNING_READER_SECONDS",
              help="Timeout in seconds of a statement with the read-only token.")  # fmt: skip
@click.option("--reader-rows", type=click.IntRange(min=1), default=10_000_000, show_default=True,
              envvar="LIGHTNING_READER_ROWS",
              help="Most rows in the answer to the read-only token.")  # fmt: skip
@click.option("--reader-memory", default="512MB", show_default=True,
              envvar="LIGHTNING_READER_MEMORY",
              help="Memory limit of a statement with the read-only token whose need is unbounded,"
              " such as repeat().")  # fmt: skip
@SPANS_AT_ONCE
@WORKERS
@click.option("--no-derive", is_flag=True, envvar="LIGHTNING_NO_DERIVE",
              help="Store without deriving; run `lightning-ingest derive` later.")  # fmt: skip
@click.option("--max-lag", default="30s", show_default=True, envvar="LIGHTNING_MAX_LAG",
              help="Slow senders, so that rows are derived within this time.")  # fmt: skip
@click.option("--refuse-after", default="1m", show_default=True, envvar="LIGHTNING_REFUSE_AFTER",
              help="Answer 503 once storing or deriving has failed for this time.")  # fmt: skip
@click.option("--page/--no-page", default=None, envvar="LIGHTNING_PAGE",
              help="Serve the web page under /ui; sign in by `lightning-ingest open`."
              "  [default: only on loopback]")  # fmt: skip
@click.option("--page-sql", is_flag=True, envvar="LIGHTNING_PAGE_SQL",
              help="Offer the page's SQL console to other machines, too.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text",
              show_default=True, envvar="LIGHTNING_LOG_FORMAT",
              help="Format of the log lines.")  # fmt: skip
@STORE
def serve(store: Path, log_format: Literal["text", "json"], **options: Any) -> None:
    """Receive OTLP until stopped (the default command).

    Exporters with OTEL_EXPORTER_OTLP_PROTOCOL=grpc send to port 4317, those with http/protobuf or
    http/json to port 4318.
    """
    from otel_lightning.collector.light_imports import leave_out_unused

    # Before anything that loads Arrow.
    leave_out_unused()
    with uncollected():
        from otel_lightning.collector.serve.logs import log_to_stderr, say_with
        from otel_lightning.collector.serve.run import serve as receive
        from otel_lightning.collector.serve.settings import settings
        from otel_lightning.collector.store import keep_files_private

    keep_files_private()
    try:
        chosen = settings(store, options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    log_to_stderr(log_format)
    try:
        with expected_errors():
            receive(chosen, say=say_with(log_format, click.echo))
    except click.ClickException as error:
        if log_format == "text":
            raise
        logging.getLogger(__name__).critical("%s", error.format_message())
        raise SystemExit(error.exit_code) from error


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--client-cert", type=PEM, envvar="LIGHTNING_CLIENT_CERT",
              help="Client certificate, if a running lightning-ingest requires one.")  # fmt: skip
@click.option("--client-key", type=PEM, envvar="LIGHTNING_CLIENT_KEY",
              help="Private key of --client-cert.")  # fmt: skip
@MEMORY
@STORE
def load(
    files: tuple[Path, ...],
    store: Path,
    client_cert: Path | None,
    client_key: Path | None,
    memory: int,
) -> None:
    """Load OTLP files: protobuf, JSON or JSON lines, plain, gzip or zstd.

    FILES are files or folders. Loading a file again changes nothing.
    """
    from otel_lightning.collector.allocator import share_memory
    from otel_lightning.collector.load.from_files import derive_all, expand, load_file
    from otel_lightning.collector.progress import Progress
    from otel_lightning.collector.store import keep_files_private, open_store
    from otel_lightning.collector.store.seen_ids import SeenIds

    client = client_of(client_cert, client_key)
    broken: list[str] = []
    records = new = 0
    paths = expand(files)
    share_memory()
    keep_files_private()
    with expected_errors(), open_store(store) as opened:
        opened.limit(memory)
        known = SeenIds(opened)
        progress = Progress("Loading", len(paths))
        for done, path in enumerate(paths, start=1):
            try:
                loaded = load_file(opened, path, known, client)
            except (ValueError, OSError) as error:
                broken.append(str(error))
            else:
                records, new = records + loaded.records, new + (loaded.new or 0)
            progress.report(done, "files")
        derive_all(opened, store)
        fresh = "stored by the running lightning-ingest" if opened.server else f"{new:,} new"
    click.echo(
        f"{number_of(len(paths) - len(broken), 'file')}, "
        f"{number_of(records, 'span or log record', 'spans and log records')}, {fresh}."
    )
    if broken:
        raise click.ClickException("\n".join(broken))


@main.command()
@STORE
def attach(store: Path) -> None:
    """Print the SQL that attaches the store in a DuckDB shell or notebook.

    It works whether or not the ingester runs.

    For example: duckdb -init <(lightning-ingest attach)
    """
    from otel_lightning.collector.commands.ask import attach_text

    with expected_errors():
        click.echo(attach_text(store))


@main.command()
@click.option(
    "--rebuild",
    is_flag=True,
    envvar="LIGHTNING_DERIVE_REBUILD",
    help="Derive all rows again from the stored spans and logs.",
)
@SPANS_AT_ONCE
@WORKERS
@MEMORY
@STORE
def derive(*, rebuild: bool, spans_at_once: int, workers: int, memory: int, store: Path) -> None:
    """Update llm_calls, tool_calls and the other derived tables."""
    from otel_lightning.collector.allocator import share_memory
    from otel_lightning.collector.load.from_files import derive_all
    from otel_lightning.collector.refresh.refresh import rebuild as start_anew
    from otel_lightning.collector.store import keep_files_private, open_store

    share_memory()
    keep_files_private()
    with expected_errors(), open_store(store, create=False) as opened:
        opened.limit(memory)
        if rebuild:
            start_anew(opened)
        derive_all(opened, store, spans_at_once, workers)
    click.echo("The derived tables are up to date.")


@main.command()
@click.argument("dest", type=click.Path(path_type=Path))
@STORE
def backup(dest: Path, store: Path) -> None:
    """Back up the store to the file DEST, also while the ingester runs.

    Requests that are not stored yet go to DEST.spool, judges' answers to DEST.judge.
    """
    from otel_lightning.collector.maintain.backup import back_up_anyhow
    from otel_lightning.collector.store import keep_files_private

    keep_files_private()
    with expected_errors():
        back_up_anyhow(store, dest)
    click.echo(f"'{dest}' is a whole copy of '{store}'.")


@main.command()
@click.option("--trace", "traces", multiple=True, envvar="LIGHTNING_FORGET_TRACE",
              help="Id of a trace; may be repeated.")  # fmt: skip
@click.option("--rollout", "rollouts", multiple=True, envvar="LIGHTNING_FORGET_ROLLOUT",
              help="Id of a rollout, whose traces are erased; may be repeated.")  # fmt: skip
@click.option("--conversation", "conversations", multiple=True,
              envvar="LIGHTNING_FORGET_CONVERSATION",
              help="Id of a conversation or session; may be repeated.")  # fmt: skip
@click.option("--where", envvar="LIGHTNING_FORGET_WHERE",
              help="SQL condition on spans, such as \"attributes['user.id'] = 'u1'\".")  # fmt: skip
@MEMORY
@STORE
def forget(store: Path, memory: int, **selected: Any) -> None:
    """Erase traces from the store, its spool and judges' answers, down to the bytes on disk.

    A trace is always erased as a whole. If the ingester runs, it erases, and goes on receiving.
    """
    from otel_lightning.collector.maintain.erase import Selection
    from otel_lightning.collector.maintain.erase_served import erase_anyhow
    from otel_lightning.collector.store import keep_files_private

    keep_files_private()
    with expected_errors():
        erased = erase_anyhow(store, Selection(**selected), memory)
    if erased.has_finished:
        click.echo("Erased what an interrupted forget had left in the file.")
    if not erased.rows:
        if erased.has_finished:
            return
        raise click.ClickException("Nothing in the store is selected by that; nothing was erased.")
    click.echo(
        f"Erased {number_of(erased.traces, 'trace')} and {number_of(erased.rollouts, 'rollout')}: "
        f"{number_of(erased.rows, 'row')}. "
        f"Backups, exports and what was learned are not touched."
    )


@main.command()
@click.argument("old", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@SPANS_AT_ONCE
@MEMORY
def copy(old: Path, new: Path, spans_at_once: int, memory: int) -> None:
    """Copy spans and logs from the store OLD into a NEW one, and derive them there.

    OLD may have any schema, also of an unreleased version. Scores, runs, policies and judges'
    answers are copied too; run `lightning-learn transitions` for transitions.
    """
    from otel_lightning.collector.allocator import share_memory
    from otel_lightning.collector.load.from_files import derive_all
    from otel_lightning.collector.maintain.copy_store import copy_store
    from otel_lightning.collector.store import keep_files_private, open_store

    share_memory()
    keep_files_private()
    with expected_errors():
        copy_store(old, new, click.echo)
        with open_store(new, create=False) as opened:
            opened.limit(memory)
            derive_all(opened, new, spans_at_once)
    click.echo(f"'{new}' has what '{old}' received, derived again.")


@main.command()
@click.option("--deep", is_flag=True, envvar="LIGHTNING_CHECK_DEEP",
              help="Also read the whole spool and all ids, derive again, and compare.")  # fmt: skip
@click.option("--sample", type=click.IntRange(min=1), envvar="LIGHTNING_CHECK_SAMPLE",
              help="With --deep: number of traces to derive again.  [default: all]")  # fmt: skip
@STORE
def check(store: Path, *, deep: bool, sample: int | None) -> None:
    """Count the stored rows and check the store; exit code 1 if there is a fault."""
    from otel_lightning.collector.check.counts import check as find
    from otel_lightning.collector.check.deep import check_deep
    from otel_lightning.collector.store import open_store
    from otel_lightning.collector.store.print_rows import printable

    with expected_errors(), open_store(store, read_only=True) as opened:
        findings = find(opened, store)
        if deep:
            findings += check_deep(opened, store, sample)
    for finding in findings:
        mark = "" if finding.well else click.style("  <- look here", fg="red")
        click.echo(f"{finding.name:>22}  {printable(finding.value)}{mark}")
    if not all(finding.well for finding in findings):
        raise SystemExit(1)


@main.command()
@STORE
def doctor(store: Path) -> None:
    """Find faults in the data that harm learning; exit code 1 if there are any.

    Each is shown with its count, an example and the remedy.
    """
    from otel_lightning.collector.check.doctor import diagnose
    from otel_lightning.collector.store import open_store
    from otel_lightning.collector.store.print_rows import printable

    with expected_errors(), open_store(store, read_only=True) as opened:
        found = diagnose(opened)
    for one in found:
        # Both quote names that senders chose.
        total = number_of(one.total, one.noun)
        click.echo(f"{one.number:,} of {total} {printable(one.fault)}")
        click.echo(f"    such as  {printable(one.example)}")
        click.echo(f"    remedy   {one.remedy}")
    if found:
        raise SystemExit(1)
    click.echo("Nothing was found that hurts learning.")


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@STORE
def prices(file: Path, store: Path) -> None:
    """Replace the prices that the view `costs` uses.

    FILE is CSV or JSON, with prices per million tokens: model, input, output, and optionally
    provider, cached_input and cache_creation_input. LiteLLM's price list works too.
    """
    from otel_lightning.collector.maintain.prices import set_prices
    from otel_lightning.collector.store import open_store

    with expected_errors(), open_store(store, create=False) as opened:
        click.echo(f"{number_of(set_prices(opened, file), 'price')} per million tokens.")


main.add_command(open_command)
main.add_command(show_command)
main.add_command(sql_command)
