"""The command line `lightning-learn`."""

from importlib import import_module

import click

from otel_lightning.collector.command_line import CommandGroup

COMMANDS = {
    "agreement": "agreement",
    "evaluate": "evaluate",
    "export": "export",
    "gate": "gate",
    "judge": "judge",
    "loop": "loop",
    "models": "ship",
    "policies": "ship",
    "policy": "policy",
    "promote": "ship",
    "prompts": "prompts",
    "report": "report",
    "rollback": "ship",
    "run": "run",
    "serve": "serve",
    "transitions": "transitions",
    "weights": "weights",
}
"""Each command, and the module in `commands` that has the function of its name.

Only the module of the command that is used is imported: the options of `transitions`, for example,
need numpy, which takes as long as 40 rollouts of `run`.
"""


class Commands(CommandGroup):
    """The commands, each imported when it is first used."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command of a name; None if there is none."""
        if name in COMMANDS and name not in self.commands:
            module = import_module(f"otel_lightning.learner.commands.{COMMANDS[name]}")
            self.add_command(getattr(module, name))
        return super().get_command(context, name)


@click.group(cls=Commands)
@click.version_option(package_name="otel-lightning")
def cli() -> None:
    """Learn better agents from stored traces, offline, behind a held-out gate.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the gate said no.
    """
