"""`lightning-ingest show`: print rollouts with their conversation, tools, rewards and credit."""

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, NamedTuple

import click

from otel_lightning.collector.show.find import NEWEST, find_rollout
from otel_lightning.collector.show.rollout import Rollout, Window, read_rollout
from otel_lightning.collector.show.text import TextStyle, as_text, step_lines
from otel_lightning.collector.store import StoreError, open_store
from otel_lightning.collector.store.print_rows import printable
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.collector.terminal.text_input import read_stdin

POLL_SECONDS = 1.0
FROM_PIPE = "-"
IDS = "SELECT rollout_id, start_time, llm_calls FROM rollouts ORDER BY start_time DESC LIMIT 20"
RANGE = re.compile(r"(\d+)?(-)?(\d+)?")
NO_TERMINAL_WIDTH = 100


class ShowOptions(NamedTuple):
    """Options of `lightning-ingest show`."""

    store: Path
    rollouts: tuple[str, ...]
    """Empty: the newest one, and how to find the others."""
    window: Window
    style: TextStyle
    as_json: bool
    follow: bool
    pager: bool


def parse_steps(text: str | None) -> tuple[int, int | None]:
    """Read a range of steps, from 0: `3`, `3-5`, `3-`, `-5`.

    Raises:
        ValueError: If it is none of these.

    Example:
        >>> parse_steps("3-"), parse_steps("4"), parse_steps(None)
        ((3, None), (4, 4), (0, None))
    """
    if text is None:
        return 0, None
    match = RANGE.fullmatch(text.strip())
    if not match or not any(match.groups()) or (match[1] is None and match[3] is None):
        raise ValueError(
            f"'{text}' is no range of steps. Write 3, 3-5, 3- or -5; steps start at 0."
        )
    first = int(match[1] or 0)
    last = int(match[3]) if match[3] else None if match[2] else first
    if last is not None and last < first:
        raise ValueError(f"'{text}' ends before it begins. Write the lower step first.")
    return first, last


def text_style(width: int | None, *, in_color: bool, cut: bool) -> TextStyle:
    """Choose how to print: in colour and as wide as the terminal, if there is one."""
    is_terminal = sys.stdout.isatty()
    wide = get_terminal_size().columns if is_terminal else NO_TERMINAL_WIDTH
    return TextStyle(width or wide, in_color and is_terminal, cut)


def print_rollouts(options: ShowOptions) -> None:
    """Print the rollouts.

    Raises:
        StoreError: If a name means no rollout, or several.
    """
    names = [*_names(options.rollouts or (NEWEST,))]
    if options.follow:
        if len(names) != 1 or options.as_json:
            raise click.UsageError("--follow prints one rollout as text: name one, without --json.")
        with suppress(KeyboardInterrupt):  # the way to end it
            _follow(names[0], options)
        return
    texts = [_text(name, options) for name in names]
    separator = "\n" if options.as_json else f"\n\n{'─' * min(options.style.width, 100)}\n\n"
    _print(separator.join(texts), options)
    if not options.rollouts:
        _say_which(options.store)


def _say_which(path: Path) -> None:
    """Say that there are older rollouts, and how to find one: not in what a pipe gets."""
    with open_store(path, read_only=True) as store:
        count = store.query("SELECT count(*) AS rollouts FROM rollout_rows")["rollouts"][0].as_py()
    if count > 1:
        click.echo(
            f"The newest of {count:,} rollouts. To show another one: "
            f"{next_command('lightning-ingest show ID', path)}\n"
            f"Their ids: {next_command(f'lightning-ingest sql {shlex.quote(IDS)}', path)}",
            err=True,
        )


def _text(name: str, options: ShowOptions) -> str:
    with open_store(options.store, read_only=True) as store:
        rollout = read_rollout(store, find_rollout(store, name), options.window)
    if not options.as_json:
        return as_text(rollout, options.style) + _why_no_step(rollout, options.window)
    text = json.dumps(rollout.as_dict(), ensure_ascii=False)
    return printable(text) if sys.stdout.isatty() else text


def _why_no_step(rollout: Rollout, window: Window) -> str:
    """Say why no step was printed, on lines of its own; '' if one was, or all were asked for."""
    if rollout.steps or window.is_whole:
        return ""
    steps = number_of(rollout.llm_calls, "step")
    if rollout.llm_calls <= window.first:
        numbers = f": 0 to {rollout.llm_calls - 1}" if rollout.llm_calls > 1 else ""
        return f"\n\nNo step {window.first}: this rollout has {steps}{numbers}."
    return f"\n\nNone of the steps that were asked for failed; this rollout has {steps}."


def _print(text: str, options: ShowOptions) -> None:
    is_long = text.count("\n") + 1 >= get_terminal_size().lines
    if options.pager and is_long and sys.stdout.isatty() and sys.stdin.isatty():
        os.environ.setdefault("LESS", "-RFX")
        click.echo_via_pager(text, color=options.style.in_color)
        return
    # Not click.echo, which removes escape sequences outside a terminal: they may be data of JSON.
    sys.stdout.write(text + "\n")


def _follow(name: str, options: ShowOptions) -> None:
    """Print a rollout, then each step that is new, until the user stops it."""
    style = options.style
    with open_store(options.store, read_only=True) as store:
        rollout = find_rollout(store, name)
    first: int | None = None
    while True:
        window = options.window if first is None else replace(options.window, first=first)
        with open_store(options.store, read_only=True) as store:
            current = read_rollout(store, rollout, window)
        lines = [*_new_lines(current, style)]
        if first is None:
            lines = [as_text(current, style) + _why_no_step(current, window)]
        if lines:
            click.echo("\n".join(lines), color=style.in_color)
            sys.stdout.flush()
        first = max([first or 0, *(step.step + 1 for step in current.steps)])
        time.sleep(POLL_SECONDS)


def _new_lines(rollout: Rollout, style: TextStyle) -> Iterator[str]:
    for step in rollout.steps:
        yield ""
        yield from step_lines(step, style)


def _names(arguments: Iterable[str]) -> Iterator[str]:
    for name in arguments:
        if name == FROM_PIPE:
            yield from ids_in(read_stdin())
        else:
            yield name


def ids_in(text: str) -> list[str]:
    r"""Read rollout ids from the output of another command, such as `lightning-ingest sql`.

    Args:
        text: One id per line, CSV or a table with the id as the first column, or JSON with the id
            as `rollout_id` or as the first field.

    Raises:
        StoreError: If there is no id.

    Example:
        >>> ids_in('rollout_id,llm_calls\nabc,5\n')
        ['abc']
    """
    names = _from_json(text)
    if names is None:
        firsts = (re.split(r"[,\s]", line.strip(), maxsplit=1)[0] for line in text.splitlines())
        names = [first.strip('"') for first in firsts]
    ids = [name for name in names if name and name != "rollout_id" and name.strip("-…")]
    if not ids:
        raise StoreError("The pipe holds no rollout id. Write one id per line.")
    return list(dict.fromkeys(ids))


def _from_json(text: str) -> list[str] | None:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    return [_id_of(row) for row in (value if isinstance(value, list) else [value])]


def _id_of(row: Any) -> str:
    if isinstance(row, dict):
        row = row.get("rollout_id", next(iter(row.values()), None))
    return "" if row is None else str(row)
