"""The command line `lightning-ingest`: its commands are in the folder `commands`."""

import click
from click.exceptions import NoSuchCommand

from otel_lightning.collector.commands.check import check, doctor
from otel_lightning.collector.commands.load import derive, load
from otel_lightning.collector.commands.maintain import backup, copy, forget, prices
from otel_lightning.collector.commands.open import open_page
from otel_lightning.collector.commands.serve import serve
from otel_lightning.collector.commands.show import show
from otel_lightning.collector.commands.sql import attach, sql
from otel_lightning.collector.terminal.command_line import CommandGroup

COMMANDS = (
    attach, backup, check, copy, derive, doctor, forget, load, open_page, prices, serve, show, sql,
)  # fmt: skip
STATUS = (
    "`lightning-ingest check` counts what is stored and checks it, and `lightning-ingest doctor` "
    "finds faults in the data."
)
"""Said to those who look for a command with one of the names in `LIKE_STATUS`."""
LIKE_STATUS = ("health", "info", "stats", "status")


class _ServeByDefault(CommandGroup):
    """`lightning-ingest --http …` means `lightning-ingest serve --http …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {*ctx.help_option_names, "--version"}
        is_completing = ctx.resilient_parsing  # a shell asks for the names of the commands
        if args[0].startswith("-") and args[0] not in own if args else not is_completing:
            self.refuse_command_after_options(ctx, args, among=_no_options(ctx, args))
            args = ["serve", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for `status`, name the commands that show it."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            if error.command_name not in LIKE_STATUS:
                raise
            raise click.UsageError(f"{error.message} {STATUS}", ctx) from None


def _no_options(ctx: click.Context, args: list[str]) -> list[str]:
    """Return the arguments that are neither options of `serve` nor values of these."""
    parser = serve.make_parser(ctx)
    parser.ignore_unknown_options = True  # it may be an option of another command
    try:
        return parser.parse_args([*args])[1]
    except click.UsageError:  # such as a missing value; `serve` reports it
        return []


@click.group(cls=_ServeByDefault)
@click.version_option(package_name="otel-lightning")
def main() -> None:
    """Receive OpenTelemetry traces of LLM agents, keep them in DuckDB, answer SQL.

    Without a command it serves. OTLP over gRPC goes to port 4317, OTLP over HTTP to port 4318.
    Then, in another terminal: `open` and `show` show what agents did, `sql` answers queries, and
    `doctor` says what is wrong with the traces, or why none arrive.
    """


for command in COMMANDS:
    main.add_command(command)
