"""`lightning-learn evaluate --model A --model B --tasks T -- AGENT`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.commands.agent_options import grading_of, warn_of_copies
from otel_lightning.learner.commands.common import REFUSED, expected_errors

if TYPE_CHECKING:
    from otel_lightning.learner.rollout_runner.compare_models import ModelVerdict


def evaluate_by_running(
    store: str, models: tuple[str, ...], seed: int, options: dict[str, Any]
) -> None:
    """Compare models by running an agent; exit with code 3 if no candidate passed."""
    settings = dict(options)
    agent, tasks = settings.pop("agent"), settings.pop("tasks")
    if not agent or not isinstance(tasks, Path):
        raise click.UsageError("--model needs --tasks FILE, and the agent's command after --.")
    with expected_errors():
        from otel_lightning.learner.evaluate.confidence import ALPHA
        from otel_lightning.learner.rollout_runner import Job
        from otel_lightning.learner.rollout_runner.compare_models import Trial, evaluate_models
        from otel_lightning.learner.rollout_runner.models import is_url
        from otel_lightning.learner.runs import looks_warning
        from otel_lightning.learner.task_splits import HELD_OUT

        trial = Trial(
            models,
            settings.pop("served_name"),
            settings.pop("least_gain"),
            not settings.pop("no_greedy"),
            settings.pop("reward_range"),
        )
        grading = grading_of(settings)
        if settings["split"] == HELD_OUT:
            warn_of_copies(tasks, settings["held_out"])
        job = Job(tasks, agent, seed=seed, **settings)
        verdicts, reports = evaluate_models(store, job, grading, trial)
    before = sum(report.done_before for report in reports)
    if before:
        planned = sum(report.planned for report in reports)
        click.echo(f"{before:,} of {number_of(planned, 'rollout')} were run before this start.")
    if before and any(is_url(model) for model in models):
        click.echo(
            "If a server has another model now, give another --name: its URL does not show it."
        )
    for problem in dict.fromkeys(problem for report in reports for problem in report.problems):
        click.echo(problem, err=True)
    if warning := looks_warning(verdicts[0].others, ALPHA):
        click.echo(warning, err=True)
    for verdict in verdicts:
        _print_verdict(verdict)
    if not any(verdict.passed for verdict in verdicts):
        raise click.exceptions.Exit(REFUSED)


def _print_verdict(verdict: "ModelVerdict") -> None:
    for setting, compared in verdict.gains.items():
        click.echo(f"By running, {setting}: {compared}")
    for measure, compared in verdict.formats.items():
        if not compared.pairs:  # no recorded call on one of the sides
            continue
        click.echo(
            f"Format, {measure}: {compared.base_mean:.1%} before, {compared.other_mean:.1%} now."
        )
    before, after = verdict.lengths
    click.echo(f"Output tokens per rollout: {before:.1f} before, {after:.1f} now.")
    if verdict.passed:
        click.echo(f"The gate passed '{verdict.model}'.")
        return
    click.echo(f"The gate refused '{verdict.model}': {'; '.join(verdict.refusals)}.", err=True)
