"""The command line `lightning-learn`."""

import click

from otel_lightning.collector.command_line import CommandGroup
from otel_lightning.learner.commands.agreement import agreement
from otel_lightning.learner.commands.evaluate import evaluate
from otel_lightning.learner.commands.export import export
from otel_lightning.learner.commands.gate import gate
from otel_lightning.learner.commands.judge import judge
from otel_lightning.learner.commands.loop import loop
from otel_lightning.learner.commands.policy import policy
from otel_lightning.learner.commands.prompts import prompts
from otel_lightning.learner.commands.report import report
from otel_lightning.learner.commands.run import run
from otel_lightning.learner.commands.serve import serve
from otel_lightning.learner.commands.ship import models, policies, promote, rollback
from otel_lightning.learner.commands.transitions import transitions
from otel_lightning.learner.commands.weights import weights


@click.group(cls=CommandGroup)
@click.version_option(package_name="otel-lightning")
def cli() -> None:
    """Learn better agents from stored traces, offline, behind a held-out gate.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the gate said no.
    """


for command in (
    transitions,
    policy,
    evaluate,
    promote,
    rollback,
    policies,
    models,
    prompts,
    gate,
    loop,
    weights,
    serve,
    export,
    judge,
    agreement,
    report,
    run,
):
    cli.add_command(command)
