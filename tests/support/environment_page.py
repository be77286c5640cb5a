"""The tables of docs/reference/environment.md: every variable that a command reads.

`python tests/support/environment_page.py` writes them into the page, and the names of all variables
into `variables.txt`, by which misspelt ones are found.
"""

import re
from pathlib import Path

import click

from otel_lightning.collector.cli import main as ingest
from otel_lightning.instrumentation.variables import NAMES
from otel_lightning.learner.cli import cli as learn

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "environment.md"
FEW = 5
BEGIN, END = "<!-- options: begin -->\n", "<!-- options: end -->\n"
GROUPS = {"lightning-ingest": ingest, "lightning-learn": learn}

Use = tuple[str, str, click.Option]
"""A program, one of its commands, and an option of that."""


def commands(group: click.Group) -> dict[str, click.Command]:
    """Return the commands of a group by name, also of one that imports them late."""
    context = click.Context(group)
    by_name = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in by_name.items() if command is not None}


def uses() -> dict[str, list[Use]]:
    """List the options that read each variable."""
    uses_by_variable: dict[str, list[Use]] = {}
    for program, group in GROUPS.items():
        for name, command in commands(group).items():
            for parameter in command.params:
                if isinstance(parameter, click.Option) and parameter.envvar:
                    assert isinstance(parameter.envvar, str)
                    uses_by_variable.setdefault(parameter.envvar, []).append(
                        (program, name, parameter)
                    )
    return uses_by_variable


def table() -> str:
    """Write the table of options."""
    lines = ["| variable | option | of | meaning |", "|---|---|---|---|"]
    of_both = set.intersection(*(set(commands(group)) for group in GROUPS.values()))
    for variable, used in sorted(uses().items()):
        # Both programs have a command `serve`, so its name alone would not tell which is meant.
        names = (f"{program} {name}" if name in of_both else name for program, name, _ in used)
        users = ", ".join(f"`{name}`" for name in names) if len(used) <= FEW else "most commands"
        option = used[0][2]
        spelled = next(text for text in option.opts if text.startswith("--"))
        text = " ".join((option.help or "").split())
        text = text.replace("|", "\\|").replace("*", "\\*")
        lines.append(f"| `{variable}` | `{spelled}` | {users} | {text} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """Return the page with its table as it should be."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def names() -> str:
    """Return the names of all variables on the page, one a line."""
    return (
        "\n".join(sorted(set(re.findall(r"^\| `(LIGHTNING_\w+)`", written(), re.MULTILINE)))) + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(written())
    NAMES.write_text(names())
