"""`lightning-learn gate`."""

from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.learner.commands.agent_options import agent_options, grading_of, warn_of_copies
from otel_lightning.learner.commands.common import (
    REFUSED,
    expected_errors,
    flags_option,
    held_out_option,
    key_option,
    least_gain_option,
    reward_range_option,
    store_option,
)
from otel_lightning.learner.commands.common import option as shared_option
from otel_lightning.learner.commands.values import Finite

if TYPE_CHECKING:
    from otel_lightning.learner.prompts.compare import Comparison, Decision

option = partial(shared_option, command="gate")
RUNNING = (
    "--tasks", "--samples", "--jobs", "--timeout",
    "--grade", "--grade-command", "--exit-code-is-reward", "--failed-reward",
)  # fmt: skip
"""Options of running an agent; a gate has its own split, seed and name of the run."""


@click.command(
    epilog=example(
        "lightning-learn gate --key support-prompt --flags flags.json --tasks "
        "tasks.jsonl -- python agent.py"
    )
)
@store_option
@key_option
@flags_option
@option(
    "--candidate",
    metavar="VARIANT",
    multiple=True,
    help="Variant to judge; may be repeated. By default all proposed variants that are served.",
)
@option(
    "--against",
    metavar="VARIANT",
    help="Variant to compare with. By default the one with most traffic.",
)
@agent_options(
    "gate",
    *RUNNING,
    tasks={"required": True},
    samples={"default": 2, "help": "Rollouts of each variant and task."},
)
@option("--reward", metavar="NAME", help="Judge by the received rewards of this name only.")
@option(
    "--alpha",
    type=Finite(0, 1, min_open=True, max_open=True),
    default=0.05,
    help="Probability that any candidate wins by chance; it is divided by their number. Divide it "
    "further if you use the same tasks for several gates.",
)
@least_gain_option
@reward_range_option
@held_out_option
@option(
    "--seed",
    type=int,
    default=0,
    help="Seed of the run. With another seed, all rollouts are run again.",
)
@option(
    "--promote",
    is_flag=True,
    help="Serve the winner, and give the others no more traffic. By default nothing is changed.",
)
def gate(  # noqa: PLR0913 - one parameter an option
    agent: tuple[str, ...],
    store: str,
    *,
    key: str,
    flags: Path,
    candidate: tuple[str, ...],
    against: str | None,
    alpha: float,
    least_gain: float,
    reward_range: tuple[float, float] | None,
    promote: bool,
    **settings: Any,
) -> None:
    """Judge proposed prompts by running AGENT with each on the same held-out tasks.

    The same command again runs only what is missing.

    Exit codes: 0 a candidate won, 1 failed, 3 none did.
    """
    if not agent:
        raise click.UsageError("Give the agent's command after --.")
    with expected_errors():
        from otel_lightning.learner.evaluate.reward_range import check_failed_reward
        from otel_lightning.learner.policy.serving.flag_file import read_flag_file
        from otel_lightning.learner.prompts.compare import (
            Comparison,
            apply_decision,
            arms_of,
            decide,
            record_decision,
        )
        from otel_lightning.learner.prompts.serving.share import check_flag
        from otel_lightning.learner.rollout_runner import Arms, run_agent
        from otel_lightning.learner.runs import looks_warning

        check_failed_reward(settings["failed_reward"], reward_range)
        comparison = Comparison(key, flags, candidate, against, alpha, least_gain, reward_range)
        arms = arms_of(comparison)
        if promote:
            check_flag(flags, read_flag_file(flags, key), key)
        warn_of_copies(settings["tasks"], settings["held_out"])
        job, grading = _job(agent, Arms(key, flags, arms), settings)
        report = run_agent(store, job, grading)
        if report.stopped:
            raise click.ClickException(f"{report.stopped} To go on, give the same command again.")
        looked = {"id": report.run_id, "samples": job.samples, "seed": job.seed}
        comparison = replace(comparison, run=looked)
        name = f"{report.run_id}-{job.samples}-{job.seed}.{'.'.join(arms[1:])}"
        decision = decide(comparison, report, name)
        others = record_decision(store, comparison, decision)
        if promote:
            decision = apply_decision(store, comparison, decision)
    if warning := looks_warning(others, alpha):
        click.echo(warning, err=True)
    _print_decision(decision, comparison, promoted=promote)


def _job(agent: tuple[str, ...], arms: Any, settings: dict[str, Any]) -> tuple[Any, Any]:
    from otel_lightning.learner.rollout_runner import Job
    from otel_lightning.learner.rollout_runner.arms import fingerprints
    from otel_lightning.learner.task_splits import HELD_OUT

    grading = grading_of(settings)
    # With the texts: a variant that was edited is another one, and so is the decision on it.
    texts = fingerprints(arms).values()
    identity = "\0".join([*agent, str(settings["tasks"].resolve()), arms.key, *arms.names, *texts])
    name = f"gate-{sha256(identity.encode()).hexdigest()[:8]}"
    return Job(command=agent, arms=arms, name=name, split=HELD_OUT, **settings), grading


def _print_decision(decision: "Decision", comparison: "Comparison", *, promoted: bool) -> None:
    for arm, verdict in decision.verdicts.items():
        click.echo(str(verdict))
        if not verdict.passed:
            click.echo(f"{arm} is refused: {'; '.join(verdict.refusals)}.", err=True)
    if promoted:
        shares = ", ".join(f"{arm} {share:.1%}" for arm, share in decision.shares.items())
        click.echo(f"{comparison.flags} serves: {shares}.")
    if decision.winner is None:
        click.echo(
            f"The gate refused: no candidate beats {decision.against} beyond chance.", err=True
        )
        raise click.exceptions.Exit(REFUSED)
    consequence = "is served" if promoted else "wins. Serve it with --promote"
    click.echo(f"The gate passed: {decision.winner} {consequence}.")
