"""The tables of docs/reference/commands.md: all commands; how options are written, their defaults.

`PYTHONPATH=tests python tests/support/commands_page.py` writes the table of commands, and three
cells of each option, from the parsers themselves. Which options there are is tested in
`test_docs.py`; what they mean is written by hand.
"""

import itertools
import re
from pathlib import Path

import click

from otel_lightning.collector.terminal.command_line import SUMMARY_CHARACTERS
from support.environment_page import GROUPS, commands

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
SECTION = re.compile(r"^## `([\w-]+) ([\w-]+)`$", re.MULTILINE)
ROW = re.compile(r"^\| `(--[a-z-]+)[^\n]*$", re.MULTILINE)
CELL = re.compile(r"(?<!\\)\|")
"""The end of a cell: a bar that is not escaped."""
OPTION = re.compile(r"(?<![\w`-])(--[a-z][a-z-]+)")
BEGIN, END = "<!-- commands: begin -->\n", "<!-- commands: end -->\n"


def written() -> str:
    """Return the page with these cells as they should be."""
    before, rest = PAGE.read_text().split(BEGIN)
    page = f"{before}{BEGIN}\n{_contents()}\n{END}{rest.split(END)[1]}"
    starts = [*(match.start() for match in SECTION.finditer(page)), len(page)]
    parts = [page[: starts[0]]]
    parts += [_section(page[a:b]) for a, b in itertools.pairwise(starts)]
    return "".join(parts)


def _contents() -> str:
    """Write the table of all commands, as `-h` of their programs lists them."""
    lines = ["| command | does |", "|---|---|"]
    for program, group in GROUPS.items():
        for name, command in commands(group).items():
            summary = command.get_short_help_str(limit=SUMMARY_CHARACTERS)
            lines.append(f"| [`{program} {name}`](#{program}-{name}) | {summary} |")
    return "\n".join(lines) + "\n"


def _section(text: str) -> str:
    match = SECTION.match(text)
    assert match
    program, name = match.groups()
    command = commands(GROUPS[program])[name]
    options = {
        spelled: option
        for option in command.params
        if isinstance(option, click.Option)
        for spelled in option.opts
    }
    return ROW.sub(lambda row: _row(row, options[row[1]], command), text)


def _row(row: re.Match[str], option: click.Option, command: click.Command) -> str:
    meaning = CELL.split(row[0])[4].strip()
    spelled, default = _told(option, command)
    cells = [f"`{spelled}`", default, f"`{option.envvar}`", meaning]
    return f"| {' | '.join(cells)} |"


def _told(option: click.Option, command: click.Command) -> tuple[str, str]:
    """Return how an option is written and its default, as the help of its command says."""
    context = click.Context(command)
    record = option.get_help_record(context)
    assert record, f"{option.opts} is hidden"
    spelled = re.sub(r"^-\w, ", "", record[0])
    # A choice is written [a|b] by click; a bar would end the cell.
    spelled = re.sub(r"\[(.*)\]", lambda one: "{" + one[1].replace("|", ",") + "}", spelled)
    spelled = spelled.replace("|", "\\|").replace(" / ", "` / `")
    if isinstance(option.show_default, str):  # in words
        return spelled, OPTION.sub(r"`\1`", option.show_default)
    exact = option.get_help_extra(context).get("default")
    return spelled, "" if exact is None else f"`{exact}`"


if __name__ == "__main__":
    PAGE.write_text(written())
