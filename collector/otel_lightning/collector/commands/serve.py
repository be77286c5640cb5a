"""`lightning-ingest serve`."""

import logging
from pathlib import Path
from typing import Any, Literal

import click

from otel_lightning.collector.commands.options import (
    LINK,
    MEMORY,
    PEM,
    SPANS_AT_ONCE,
    STORE,
    WORKERS,
)
from otel_lightning.collector.terminal.command_line import example, expected_errors, uncollected


@click.command(epilog=example("lightning-ingest serve --store traces.duckdb --retain 30d"))
@STORE
@click.option("--grpc", metavar="ADDRESS", default="127.0.0.1:4317", show_default=True,
              envvar="LIGHTNING_GRPC",
              help="Address for OTLP over gRPC, for exporters with protocol grpc; 'none' for an"
              " ingester that receives over HTTP only.")  # fmt: skip
@click.option("--http", metavar="ADDRESS", default="127.0.0.1:4318", show_default=True,
              envvar="LIGHTNING_HTTP",
              help="Address for OTLP over HTTP, for http/protobuf and http/json; fd://3 takes a"
              " listening socket that this process has inherited.")  # fmt: skip
@click.option("--token", metavar="TOKEN", envvar="LIGHTNING_TOKEN",
              help="Bearer token that every request must carry.")  # fmt: skip
@click.option("--tls-cert", type=PEM, envvar="LIGHTNING_TLS_CERT",
              help="TLS certificate (PEM) of this server; replaced files are read.")  # fmt: skip
@click.option("--tls-key", type=PEM, envvar="LIGHTNING_TLS_KEY",
              help="Private key of --tls-cert, not encrypted.")  # fmt: skip
@click.option("--tls-client-ca", type=PEM, envvar="LIGHTNING_TLS_CLIENT_CA",
              help="Accept only clients with a certificate of this authority.")  # fmt: skip
@click.option("--insecure", is_flag=True, envvar="LIGHTNING_INSECURE",
              help="Accept other machines without a token or a client certificate.")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="HOST",
              envvar="LIGHTNING_ALLOWED_HOST",
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
@click.option("--retain", metavar="DURATION", envvar="LIGHTNING_RETAIN",
              help="Delete traces this long after their last span, such as 30d."
              "  [default: never]")  # fmt: skip
@click.option("--max-size", metavar="SIZE", envvar="LIGHTNING_MAX_SIZE",
              help="Delete the oldest traces when the store is larger, such as 20GB."
              "  [default: no limit]")  # fmt: skip
@MEMORY
@click.option("--reader-seconds", type=click.FloatRange(min=0, min_open=True), default=120,
              show_default=True, envvar="LIGHTNING_READER_SECONDS",
              help="Timeout in seconds of a statement with the read-only token.")  # fmt: skip
@click.option("--reader-rows", type=click.IntRange(min=1), default=10_000_000, show_default=True,
              envvar="LIGHTNING_READER_ROWS",
              help="Most rows in the answer to the read-only token.")  # fmt: skip
@click.option("--reader-memory", metavar="SIZE", default="512MB", show_default=True,
              envvar="LIGHTNING_READER_MEMORY",
              help="Memory limit of a statement with the read-only token whose need is unbounded,"
              " such as repeat().")  # fmt: skip
@SPANS_AT_ONCE
@WORKERS
@click.option("--no-derive", is_flag=True, envvar="LIGHTNING_NO_DERIVE",
              help="Store without deriving; run `lightning-ingest derive` later.")  # fmt: skip
@click.option("--max-lag", metavar="DURATION", default="30s", show_default=True,
              envvar="LIGHTNING_MAX_LAG",
              help="Slow senders, so that rows are derived within this time.")  # fmt: skip
@click.option("--refuse-after", metavar="DURATION", default="1m", show_default=True,
              envvar="LIGHTNING_REFUSE_AFTER",
              help="Answer 503 once storing or deriving has failed for this time.")  # fmt: skip
@click.option("--page/--no-page", default=None, envvar="LIGHTNING_PAGE",
              help="Serve the web page under /ui; sign in by `lightning-ingest open`."
              "  [default: only on loopback]")  # fmt: skip
@click.option("--page-sql", is_flag=True, envvar="LIGHTNING_PAGE_SQL",
              help="Offer the page's SQL console to other machines, too.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text",
              show_default=True, envvar="LIGHTNING_LOG_FORMAT",
              help="Format of the log lines.")  # fmt: skip
def serve(store: Path, log_format: Literal["text", "json"], **options: Any) -> None:
    """Receive OTLP until stopped (the default command).

    Exporters with OTEL_EXPORTER_OTLP_PROTOCOL=grpc send to port 4317, those with http/protobuf or
    http/json to port 4318.
    """
    from otel_lightning.collector.process.light_imports import leave_out_unused
    from otel_lightning.collector.process.standard_streams import drop_unwritten, never_wait

    # Before anything that loads Arrow.
    leave_out_unused()
    with uncollected():
        from otel_lightning.collector.serve.logs import log_to_stderr, say_with
        from otel_lightning.collector.serve.run import serve as receive
        from otel_lightning.collector.serve.settings import settings
        from otel_lightning.collector.store import keep_files_private

    keep_files_private()
    try:
        link = click.get_current_context().meta.get(LINK)
        chosen = settings(store, options, link)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    never_wait()
    log_to_stderr(log_format)
    try:
        with expected_errors():
            receive(chosen, echo=say_with(log_format))
    except click.ClickException as error:
        if log_format == "text":
            raise
        logging.getLogger(__name__).critical("%s", error.format_message())
        raise SystemExit(error.exit_code) from error
    finally:
        drop_unwritten()
