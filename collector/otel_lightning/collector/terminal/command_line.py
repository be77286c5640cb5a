"""Shared by `lightning-ingest` and `lightning-learn`: command groups, options, variables.

Each option has an environment variable, and each variable has one meaning. An option that means the
same in every command, such as `--store`, has one variable for all of them. An option whose meaning
depends on its command, such as `--output`, gets the command's name into its variable.
"""

import gc
import os
import re
import select
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from click.exceptions import NoSuchCommand, NoSuchOption

from otel_lightning.instrumentation import variables

DEFAULT_IN_WORDS = re.compile(r"\s*\[default: (?P<words>[^\]]*)\]$")
SUMMARY_CHARACTERS = 200  # click's default of 45 truncates summaries; the formatter wraps them

Command = Callable[..., Any]


@contextmanager
def expected_errors(*others: type[Exception]) -> Iterator[None]:
    """Report an error of the store, of a file or of another kind without a traceback."""
    from otel_lightning.collector.files.reason import NO_SPACE, named_reason
    from otel_lightning.collector.store import StoreError
    from otel_lightning.collector.store.print_rows import printable

    expected: tuple[type[Exception], ...] = (StoreError, OSError, *others)
    try:
        yield
    except expected as error:
        if isinstance(error, BrokenPipeError) and _reader_of_stdout_has_ended():
            raise  # such as `| head`, which has read enough: click ends the command without a word
        text = named_reason(error)
        if text.endswith(NO_SPACE):
            text += ". Make room on that disk, and give the command again."
        # DuckDB's errors quote stored values, whose control characters must not reach a terminal.
        raise click.ClickException("\n".join(map(printable, text.split("\n")))) from error
    except RuntimeError as error:
        # DuckDB raises this after Ctrl-C during a statement.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise click.Abort from error
        raise


def _reader_of_stdout_has_ended() -> bool:
    """Return whether standard output is a pipe or socket that nobody reads any more.

    A connection to the ingester breaks with the same exception, and that is an error to report.
    """
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return bool(poll.poll(0))  # without events asked for, only errors and hang-ups are reported
    except (OSError, ValueError):  # standard output is closed, or no file of the system
        return False


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause Python's cycle collector during imports.

    It would visit what is already imported again and again, and imports leave hardly any garbage.
    What was imported is kept out of its later visits, too: it lives as long as the process. A start
    of `lightning-ingest serve` takes a fifth less CPU so.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()
            gc.enable()


def example(command: str) -> str:
    """Return the last lines of a command's help: one call that can be copied."""
    return f"\b\nExample:\n  {command}"  # after \b click keeps the lines


class CommandGroup(click.Group):
    """A group whose commands accept `-h`, show variables in help, and keep whole summaries."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **kwargs)

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command; its options show their variables, and its summary is not truncated."""
        for parameter in cmd.params:
            if isinstance(parameter, click.Option):
                parameter.show_envvar = True
                _move_default(parameter)
        cmd.short_help = cmd.short_help or cmd.get_short_help_str(SUMMARY_CHARACTERS)
        super().add_command(cmd, name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options of the group; say so if a command comes after its own options."""
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except NoSuchOption:
            self.refuse_command_after_options(ctx, given, among=given)
            raise

    def refuse_command_after_options(
        self, ctx: click.Context, args: list[str], among: list[str]
    ) -> None:
        """Raise the error that names the right order if one of some arguments is a command.

        Args:
            ctx: The context of the group.
            args: All arguments of the command line.
            among: The arguments that may be the command.

        Raises:
            click.UsageError: With the command line to give instead.
        """
        if name := next((one for one in among if one in self.list_commands(ctx)), None):
            place = args.index(name)
            right = shlex.join([name, *args[:place], *args[place + 1 :]])
            message = f"The command comes before its options: {ctx.command_path} {right}"
            raise click.UsageError(message, ctx) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for an unknown one names the nearest, loaded or not."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except NoSuchCommand as error:  # click looks only among the commands that are loaded
            names = self.list_commands(ctx)
            raise NoSuchCommand(error.command_name, possibilities=names, ctx=ctx) from None
        if not ctx.resilient_parsing:  # a shell that completes a command shows its standard error
            # Before the options are parsed: a misspelt variable may be the one that is missing.
            for set_name, meant in variables.corrections(os.environ, name or ""):
                click.echo(f"Warning: {variables.warning(set_name, meant)}", err=True)
        return name, command, rest


def _move_default(option: click.Option) -> None:
    """Move a default that is given in words, `[default: never]`, beside the variable in the help.

    Click would show two pairs of brackets.
    """
    match = DEFAULT_IN_WORDS.search(option.help or "")
    if match and option.help:
        option.help = option.help[: match.start()]
        option.show_default = match["words"]


def option(name: str, *, command: str = "", **attributes: Any) -> Callable[[Command], Command]:
    """Declare an option with an environment variable, `LIGHTNING_…`.

    Args:
        name: Its name, such as `--output`; further names may follow in `attributes`.
        command: Name of the command, if the option has another meaning in another command.
        attributes: Further arguments for `click.option`.
    """
    words = f"{command} {name.removeprefix('--')}".strip()
    variable = variables.PREFIX + words.replace(" ", "_").replace("-", "_").upper()
    return click.option(name, envvar=variable, show_envvar=True, show_default=True, **attributes)
