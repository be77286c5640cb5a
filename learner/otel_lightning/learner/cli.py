"""The command line `lightning-learn`."""

from importlib import import_module

import click

from otel_lightning.collector.terminal.command_line import CommandGroup, uncollected

COMMANDS = {
    "agreement": (
        "agreement",
        "Measure how far a judge agrees with given labels, with 95 % bootstrap intervals.",
    ),
    "evaluate": (
        "evaluate",
        "Estimate the value of a policy from logged choices, or compare models by running AGENT.",
    ),
    "export": ("export", "Write transitions to a file in the format that a trainer reads."),
    "gate": (
        "gate",
        "Judge proposed prompts by running AGENT with each on the same held-out tasks.",
    ),
    "judge": ("judge", "Score rollouts with a model as the judge."),
    "loop": (
        "loop",
        "Run, grade, learn, judge and deploy, round after round, as FILE (a loop.toml) says.",
    ),
    "models": (
        "promotion",
        "List the fine-tuned models, the verdicts of their gates, and which of them are live.",
    ),
    "policies": ("promotion", "List the stored policies, and which of them the flag file serves."),
    "policy": (
        "policy",
        "Learn the share of traffic for each variant of a flag, and compare it to the live policy.",
    ),
    "promote": (
        "promotion",
        "Put a policy that passed the gate into the flag file, or make a model the live one.",
    ),
    "prompts": (
        "prompts",
        "Let a model propose better prompts from logged rollouts, and give them a little traffic.",
    ),
    "report": (
        "report",
        "Write one HTML file about a learning run: verdict, reasons, data, overlap, doubts.",
    ),
    "rollback": (
        "promotion",
        "Restore the flag, or the live model, as it was before the last promotion.",
    ),
    "run": ("run", "Run an unchanged AGENT on tasks: a command and its arguments, after --."),
    "serve": ("serve", "Serve a small model to OpenAI clients, with token ids and logprobs."),
    "transitions": (
        "transitions",
        "Build transitions, with rewards and advantages, from the stored rollouts.",
    ),
    "weights": (
        "weights",
        "Fine-tune a model's weights on logged transitions, and test the result on held-out tasks.",
    ),
}
"""Each command: the module in `commands` that has the function of its name, and its summary.

Only the module of the command that is used is imported: the options of `transitions`, for example,
need numpy, which takes as long as 40 rollouts of `run`. So the help has the summaries from here.
"""


class Commands(CommandGroup):
    """The commands, each imported when it is first used."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command of a name; None if there is none."""
        if name in COMMANDS and name not in self.commands:
            with uncollected():
                module = import_module(f"otel_lightning.learner.commands.{COMMANDS[name][0]}")
            self.add_command(getattr(module, name))
        return super().get_command(context, name)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries, without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(context)])


@click.group(cls=Commands)
@click.version_option(package_name="otel-lightning")
def cli() -> None:
    """Learn better agents from stored traces, offline, behind a held-out gate.

    The usual order: transitions; then policy, prompts or weights; then report. `run` runs your
    agent on tasks, and `loop` repeats all of it.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the gate said no.
    """
