"""`lightning-learn policy`."""

from pathlib import Path
from typing import Any

import click

from otel_lightning.learner.commands.common import (
    FILE,
    expected_errors,
    held_out_option,
    option,
    report_verdict,
    reward_option,
    shuffle_option,
    store_option,
)
from otel_lightning.learner.evaluate import off_policy

ESTIMATOR = click.Choice(list(off_policy.METHODS))


@click.command()
@store_option
@option("--key", required=True, help="Key of the flag whose variants are the arms.")
@option("--flags", type=FILE, required=True, help="The flagd flag file that serves the arms.")
@option(
    "--output",
    command="policy",
    type=FILE,
    help="Flag file to write.  [default: the one in --flags]",
)
@option("--estimator", type=ESTIMATOR, default="snips", help="Value of a policy.")
@option("--floor", type=click.FloatRange(0, 1), default=0.05, help="Least probability of an arm.")
@option("--kl-weight", type=click.FloatRange(0), default=0.05, help="Pull to what was served.")
@reward_option
@held_out_option
@shuffle_option
def policy(  # noqa: PLR0913 - one parameter an option
    store: str,
    *,
    key: str,
    flags: Path,
    output: Path | None,
    reward: str | None,
    held_out: float,
    shuffle_rewards: int | None,
    **settings: Any,
) -> None:
    """Learn which variant of a flag to serve how often, and put it into the flag file."""
    with expected_errors():
        from otel_lightning.learner.policy.learn import Request, learn_policy
        from otel_lightning.learner.policy.softmax import Settings

        softmax = Settings(**settings)
        request = Request(
            key, flags, output or flags, reward, held_out, shuffle_rewards, settings=softmax
        )
        learned = learn_policy(store, request)
    if learned.rule:
        click.echo(learned.rule)
    if learned.without_propensity:
        click.echo(f"{learned.without_propensity} choices without a propensity left out.")
    shares = ", ".join(f"{arm} {n / 100:.2f} %" for arm, n in learned.weights.items())
    click.echo(f"Learned from {learned.learned_from} rollouts: {shares}.")
    report_verdict(
        learned.verdict,
        passed=f"Policy {learned.version} is live in {request.output}.",
        refused=f"{request.output} is as it was; policy {learned.version} is kept as a candidate.",
    )
