"""`lightning-learn transitions`."""

from typing import Any

import click

from otel_lightning.learner import credit
from otel_lightning.learner.commands.common import (
    SHARE,
    expected_errors,
    held_out_option,
    option,
    reward_option,
    shuffle_option,
    store_option,
)

CREDIT = click.Choice(list(credit.METHODS))


@click.command()
@store_option
@reward_option
@option("--credit", type=CREDIT, default="identical", help="Rewards to advantages.")
@option("--gamma", type=SHARE, default=1.0, help="Discount per call.")
@held_out_option
@shuffle_option
def transitions(store: str, **settings: Any) -> None:
    """Turn stored rollouts into rewarded transitions."""
    with expected_errors():
        from otel_lightning.learner.transitions import Settings, make_transitions

        summary = make_transitions(store, Settings(**settings))
    click.echo(
        f"{summary.transitions} transitions from {summary.rewarded} of {summary.rollouts} rollouts "
        f"({summary.rollouts - summary.rewarded} without a reward or a completion).\n"
        f"Split by task: {summary.train} rollouts to learn from, {summary.heldout} held out.\n"
        f"Mean reward {summary.mean_reward:.4f}."
    )
