"""`lightning-learn agreement`."""

import math
from typing import TYPE_CHECKING

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.commands.common import SEED, expected_errors, option, store_option

if TYPE_CHECKING:
    from otel_lightning.learner.score.judges.agreement import Estimate


@click.command(epilog=example("lightning-learn agreement --judge judge --labels labels.csv"))
@store_option
@option(
    "--judge",
    metavar="NAME",
    required=True,
    help="Name of the judge's scores, or the beginning of their source, such as judge:tone.",
)
@option(
    "--labels",
    metavar="NAME|FILE.csv",
    required=True,
    help="Labels to compare with: the rewards of this name that no judge gave, or a CSV file with "
    "the column rollout_id, and the column value, label or both.",
)
@option(
    "--seed",
    command="agreement",
    type=SEED,
    default=0,
    help="Seed of the bootstrap; the same seed gives the same intervals.",
)
def agreement(store: str, *, judge: str, labels: str, seed: int) -> None:
    """Measure how far a judge agrees with given labels, with 95 % bootstrap intervals."""
    with expected_errors():
        from otel_lightning.learner.score.judges.agreement import agree
        from otel_lightning.learner.score.judges.labels import read_pairs

        pairs = read_pairs(store, judge, labels)
        agreement = agree(pairs.judge, pairs.labels, seed)
    click.echo(
        f"{number_of(agreement.n, 'rollout has', 'rollouts have')} both, by {pairs.by}; "
        f"{pairs.judged} judged, "
        f"{pairs.labelled} labelled."
    )
    _print_estimate("Cohen's kappa", agreement.kappa)
    if pairs.by == "value":
        _print_estimate("Cohen's kappa, quadratic", agreement.weighted_kappa)
        _print_estimate("Spearman's rho", agreement.spearman)
        _print_estimate("Kendall's tau-b", agreement.kendall)


def _print_estimate(name: str, estimate: "Estimate") -> None:
    if math.isnan(estimate.value):
        click.echo(f"{name:<26} undefined: a rating is constant")
        return
    value, lower, upper = estimate
    click.echo(f"{name:<26} {value:+.3f}  [{lower:+.3f}, {upper:+.3f}]")
