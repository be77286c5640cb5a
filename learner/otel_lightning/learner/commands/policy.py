"""`lightning-learn policy`."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.collector.terminal.quantities import decimal, number_of
from otel_lightning.learner.commands.common import (
    FILE,
    GIVEN_FILE,
    expected_errors,
    flags_option,
    held_out_option,
    key_option,
    least_gain_option,
    missing_option,
    option,
    propensities_option,
    report_verdict,
    reward_option,
    reward_range_option,
    shuffle_option,
    since_option,
    store_option,
    task_by_option,
    until_option,
)
from otel_lightning.learner.commands.values import Finite

if TYPE_CHECKING:
    from otel_lightning.learner.policy.learn import Learned

OBJECTIVE = click.Choice(["doubly_robust", "snips", "ips", "reinforce"])


@click.command(
    epilog=example(
        "lightning-learn policy --key support-prompt --flags flags.json --reward-range 0,1"
    )
)
@store_option
@key_option
@flags_option
@option(
    "--output",
    command="policy",
    type=FILE,
    help="Flag file to write the policy to with --promote.  [default: the one in --flags]",
)
@option(
    "--promote",
    is_flag=True,
    help="Write the policy into the flag file if the gate passes. By default it is kept as a "
    "candidate.",
)
@option(
    "--estimator",
    type=OBJECTIVE,
    default="doubly_robust",
    help="Estimate of the policy's value that learning maximises; ips clips importance weights at "
    "10, reinforce at 5. The gate always uses the doubly robust one.",
)
@option(
    "--exploration",
    type=Finite(0, 1, max_open=True),
    default=0.1,
    help="Share of all traffic, from 0 to below 1, that is divided evenly between the arms, so "
    "that later learning has data of each arm.",
)
@option(
    "--kl-weight",
    type=Finite(0),
    default=0.05,
    help="Weight of the KL penalty that keeps the policy near the logged shares of the arms, in "
    "standard deviations of the reward; 0 turns it off.",
)
@option(
    "--entropy",
    type=Finite(0),
    default=0.0,
    help="Weight of an entropy bonus that spreads the shares, in standard deviations of the "
    "reward; 0 turns it off.",
)
@option(
    "--trust-region",
    type=Finite(0, min_open=True),
    metavar="NATS",
    help="Largest KL divergence of the policy from the logged shares of the arms, such as 0.1.  "
    "[default: no limit]",
)
@option(
    "--features",
    type=GIVEN_FILE,
    help="TOML file of the features of the input by which the policy chooses. By default the "
    "shares of the arms are the same for every input.",
)
@reward_option
@reward_range_option
@least_gain_option
@missing_option
@propensities_option
@since_option
@until_option
@held_out_option
@task_by_option
@shuffle_option
def policy(  # noqa: PLR0913 - one parameter per option
    store: str,
    *,
    key: str,
    flags: Path,
    output: Path | None,
    estimator: str,
    exploration: float,
    kl_weight: float,
    entropy: float,
    trust_region: float | None,
    since: datetime | None,
    until: datetime | None,
    **chosen: Any,
) -> None:
    """Learn the share of traffic for each variant of a flag, and compare it to the live policy."""
    with expected_errors():
        from otel_lightning.learner.policy.learn import learn_policy
        from otel_lightning.learner.policy.request import Request
        from otel_lightning.learner.policy.softmax.choice_arrays import Settings

        settings = Settings(estimator, exploration, kl_weight, entropy, trust_region)
        request = Request(
            key, flags, output or flags, since=since, until=until, settings=settings, **chosen
        )
        learned = learn_policy(store, request)
    report(learned)
    has_output = request.output.exists()
    untouched = f"{request.output} {'is as it was' if has_output else 'was not written'}."
    served = request.output if has_output else flags
    promote = next_command("lightning-learn promote", store, key=key, flags=served)
    passed = (
        f"Policy {learned.version} is kept as a candidate; {untouched} Put it into {served} with: "
        f"{promote}"
    )
    if learned.promoted:
        passed = f"Policy {learned.version} is live in {request.output}."
    if request.shuffle_rewards is not None:
        passed = (
            "But the rewards were shuffled, so it passed by chance, or something other than the "
            f"reward was learned: a control is never promoted. {untouched}"
        )
    refused = f"Policy {learned.version} is kept for inspection; {untouched}"
    report_verdict(learned.verdict, "policy", passed=passed, refused=refused)


def report(learned: "Learned") -> None:
    """Print a table of the arms, then the notes about the data and the rewards."""
    from rich.console import Console
    from rich.table import Table

    learned_from = f"Learned from {number_of(learned.learned_from, 'rollout')}"
    table = Table(title=f"{learned_from}; the columns count the held-out ones too")
    table.add_column("arm", overflow="fold")
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
    return "" if value != value else decimal(value)  # noqa: PLR0124 - NaN is not itself


def _interval(low: float, high: float) -> str:
    return "" if low != low else f"{decimal(low)} to {decimal(high)}"  # noqa: PLR0124 - NaN is not itself
