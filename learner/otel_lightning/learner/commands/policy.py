"""`lightning-learn policy`."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    task_by_option,
)
from otel_lightning.learner.commands.values import RangeOfRewards, Since

if TYPE_CHECKING:
    from otel_lightning.learner.policy.learn import Learned

OBJECTIVE = click.Choice(["doubly_robust", "snips", "ips", "reinforce"])
SOURCE = click.Choice(["auto", "trace", "version", "frequencies"])


@click.command()
@store_option
@option("--key", required=True, help="Key of the flag whose variants are the arms.")
@option("--flags", type=FILE, required=True, help="The flagd flag file that serves the arms.")
@option(
    "--output",
    command="policy",
    type=FILE,
    help="Flag file to write when promoting.  [default: the one in --flags]",
)
@option("--promote", is_flag=True, help="Put the policy into the flag file if the gate passes.")
@option("--estimator", type=OBJECTIVE, default="doubly_robust", help="Value to maximise.")
@option(
    "--exploration",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.1,
    help="Share of all traffic that is divided evenly between the arms.",
)
@option("--kl-weight", type=click.FloatRange(0), default=0.05, help="Pull to what was served.")
@option("--features", type=FILE, help="TOML file of features of the input that the policy sees.")
@reward_option
@option("--reward-range", type=RangeOfRewards(), help="Least and greatest possible reward.")
@option("--least-gain", type=click.FloatRange(0), default=0.0, help="Gain to be shown at least.")
@option("--missing", metavar="worst|drop|VALUE", help="Treatment of rollouts without a reward.")
@option("--propensities", type=SOURCE, default="auto", help="Where propensities come from.")
@option("--since", type=Since(), help="Leave out choices before this time.")
@option("--until", type=Since(), help="Leave out choices from this time on.")
@held_out_option
@task_by_option
@shuffle_option
def policy(  # noqa: PLR0913 - one parameter an option
    store: str,
    *,
    key: str,
    flags: Path,
    output: Path | None,
    estimator: str,
    exploration: float,
    kl_weight: float,
    since: datetime | None,
    until: datetime | None,
    **chosen: Any,
) -> None:
    """Learn how often to serve each variant of a flag, and judge it against the live policy."""
    with expected_errors():
        from otel_lightning.learner.policy.learn import Request, learn_policy
        from otel_lightning.learner.policy.softmax import Settings

        settings = Settings(estimator, exploration, kl_weight)
        request = Request(
            key, flags, output or flags, since=since, until=until, settings=settings, **chosen
        )
        learned = learn_policy(store, request)
    report(learned)
    candidate = f"Policy {learned.version} is kept as a candidate; {request.output} is as it was."
    passed = (
        f"Policy {learned.version} is live in {request.output}."
        if learned.promoted
        else f"{candidate} Pass --promote to put it into the flag file."
    )
    report_verdict(learned.verdict, passed=passed, refused=candidate)


def report(learned: "Learned") -> None:
    """Print a table of the arms, and the sentences about the data."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Learned from {learned.learned_from} rollouts")
    table.add_column("arm")
    for column in ("tried", "mean reward", "95 % interval", "share before", "after"):
        table.add_column(column, justify="right")
    for arm in learned.arms:
        table.add_row(
            arm.name, f"{arm.tried:,}", _number(arm.mean), _interval(arm.low, arm.high),
            f"{arm.before:.2%}", f"{arm.after:.2%}",
        )  # fmt: skip
    Console().print(table)
    for note in (*learned.notes, str(learned.rewards)):
        click.echo(note)


def _number(value: float) -> str:
    return "" if value != value else f"{value:.4f}"  # noqa: PLR0124 - NaN is not itself


def _interval(low: float, high: float) -> str:
    return "" if low != low else f"{low:.4f} to {high:.4f}"  # noqa: PLR0124 - likewise
