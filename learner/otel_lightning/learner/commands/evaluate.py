"""`lightning-learn evaluate`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.quantities import decimal, number_of
from otel_lightning.learner.commands.agent_options import agent_options
from otel_lightning.learner.commands.common import (
    FILE,
    SEED,
    expected_errors,
    held_out_option,
    least_gain_option,
    missing_option,
    option,
    propensities_option,
    refuse_given,
    reward_option,
    reward_range_option,
    since_option,
    store_option,
    task_by_option,
    until_option,
)
from otel_lightning.learner.commands.evaluate_models import evaluate_by_running

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from otel_lightning.learner.evaluate.estimates import ValueEstimate
    from otel_lightning.learner.policy.evaluate import Answer

WIDTH = 31
"""Width of the plot of an interval, in characters."""
PLOTS = (".svg", ".png", ".pdf")
"""Endings of the files that plots can be drawn into."""
BIAS = (
    "* biased: these intervals are for the mean of the estimator, which can differ from the value "
    "of the policy. No gate uses them."
)
BY_LOG = ("flags", "version", "arm", "by", "missing", "propensities", "since", "until", "task_by")
"""The parameters, besides `key` and `plots`, that only judging by the log has."""
OF_WINDOW = ("reward", "since", "until", "missing", "propensities", "task_by")
"""The parameters that select the logged choices."""
Interval = tuple[float, float] | None


@click.command(epilog=example("lightning-learn evaluate --key support-prompt --arm careful"))
@store_option
@option("--key", metavar="KEY", help="Key of the flag whose variants are the arms.")
@option(
    "--flags",
    type=FILE,
    command="evaluate",
    help="Evaluate the policy that this flagd flag file serves.",
)
@option(
    "--version",
    metavar="VERSION",
    command="evaluate",
    help="Evaluate the policy of this version, as in `policies`.",
)
@option("--arm", metavar="VARIANT", help="Evaluate the policy that always serves this arm.")
@option(
    "--by",
    metavar="SQL",
    help="Also evaluate each segment of the rollouts: a SQL expression over the view `rollouts`, "
    "such as service_name. By default there are no segments.",
)
@option(
    "--plots",
    type=FILE,
    command="evaluate",
    help="Draw the values with their intervals, the overlap and the rewards over time into this "
    "file; its name ends in .svg, .png or .pdf. By default nothing is drawn.",
)
@reward_option
@reward_range_option
@missing_option
@propensities_option
@since_option
@until_option
@task_by_option
@option(
    "--seed",
    type=SEED,
    default=0,
    command="evaluate",
    help="Seed of the bootstrap; the same seed gives the same intervals.",
)
@option(
    "--model",
    command="evaluate",
    metavar="FOLDER|URL",
    multiple=True,
    help="Compare models by running AGENT with each on the same tasks: the present one first, "
    "then candidates. A folder is served by vLLM if it is installed, else by lightning-learn "
    "serve.",
)
@option(
    "--served-name",
    metavar="NAME",
    multiple=True,
    help="With --model: name by which AGENT asks for its model; may be repeated.  [default: the "
    "names of all folders]",
)
@option(
    "--no-greedy",
    is_flag=True,
    help="With --model: do not also run all tasks once at temperature 0.",
)
@least_gain_option
@held_out_option
@agent_options("evaluate", split={"default": "heldout"})
def evaluate(  # noqa: PLR0913 - what both ways to evaluate need
    store: str,
    *,
    key: str | None,
    plots: Path | None,
    reward: str | None,
    reward_range: tuple[float, float] | None,
    seed: int,
    model: tuple[str, ...],
    **options: Any,
) -> None:
    """Estimate the value of a policy from logged choices, or compare models by running AGENT.

    With --key: the value of a policy from choices that other policies made, with intervals.
    With --model: what each model is worth to the unchanged AGENT on held-out tasks.
    """
    if plots is not None and (model or plots.suffix not in PLOTS):
        raise click.UsageError(
            f"--plots draws what --key evaluates, into a file that ends in {', '.join(PLOTS)}."
        )
    by_log = {name: options.pop(name) for name in BY_LOG}
    rewards = {"reward": reward, "reward_range": reward_range}
    if model:
        refuse_given(("key", "plots", *BY_LOG), "with --model")
        evaluate_by_running(store, model, seed, options | rewards)
        return
    if key is None:
        raise click.UsageError("Give --key, to judge by the log, or --model, to judge by running.")
    refuse_given(options, "with --key")
    answer = _evaluate_by_log(store, key, seed, by_log | rewards)
    _print(answer)
    if plots is not None:
        # Last: a file that cannot be written does not take the numbers with it.
        with expected_errors():
            from otel_lightning.learner.report.evaluation import save_plots

            save_plots(answer, plots)
        click.echo(f"The plots are in {plots}.")


def _evaluate_by_log(store: str, key: str, seed: int, options: dict[str, Any]) -> "Answer":
    """Evaluate the one policy that the options name."""
    flags, version, arm = options["flags"], options["version"], options["arm"]
    named = sum(name is not None for name in (flags, version, arm))
    if named != 1:
        raise click.UsageError(
            "Name one of --flags, --version and --arm: each is a policy to evaluate."
            if named
            else "Name what to evaluate: --flags FILE, --version VERSION or --arm VARIANT."
        )
    with expected_errors():
        from otel_lightning.learner.policy.evaluate import Question, evaluate_policy
        from otel_lightning.learner.policy.logged.window import Window

        reward_range = options["reward_range"]
        window = Window(
            key=key,
            worst=reward_range[0] if reward_range else None,
            **{name: options[name] for name in OF_WINDOW},
        )
        question = Question(window, flags, version, arm, reward_range, options["by"], seed)
        return evaluate_policy(store, question)


def _print(answer: "Answer") -> None:
    from rich.console import Console

    click.echo(
        f"Value of {answer.policy} on {number_of(answer.rollouts, 'rollout')} of "
        f"{number_of(answer.tasks, 'task')}; their mean reward is {decimal(answer.mean_reward)}. "
        f"They tell as much about this policy as {answer.effective_sample_size:.1f} of its own "
        f"would (effective sample size); its mean importance weight is {answer.mean_weight:.2f}."
    )
    console = Console()
    named = [
        (f"{estimate.method} *" if estimate.biased else estimate.method, estimate)
        for estimate in answer.estimates
    ]
    low, high = answer.rewards.range
    limits = (low, high) if low < high else None
    console.print(_fitting(console, "estimator", named, limits))
    click.echo(BIAS)
    if answer.segments:
        console.print(_fitting(console, "segment", list(answer.segments.items()), limits))
        if len(answer.segments) > 1:
            click.echo(
                f"Of {len(answer.segments)} intervals of 95 %, about "
                f"{0.05 * len(answer.segments):.2g} miss the true value by chance."
            )
    console.print(_overlap(answer))
    for note in (*answer.notes, str(answer.rewards)):
        click.echo(note)
    click.echo(
        "This is the value of one policy. A gain over the live policy is judged on held-out "
        "tasks, by the gate of the command `policy` of lightning-learn."
    )


def _fitting(
    console: "Console", first: str, named: "list[tuple[str, ValueEstimate]]", limits: Interval
) -> "Table":
    """Make a table with plots of the intervals if the terminal is wide enough, else without."""
    plotted = _table(first, named, limits)
    # By default the measured width is at most that of the terminal.
    unlimited = console.options.update(max_width=10 * console.width)
    needed = console.measure(plotted, options=unlimited).maximum
    return plotted if needed <= console.width else _table(first, named, None)


def _table(first: str, named: "list[tuple[str, ValueEstimate]]", limits: Interval) -> "Table":
    """Print estimates, with a plot of each interval between the limits if they are given."""
    from rich.table import Table

    # 80 columns suffice with less padding and the ends of an interval on two lines.
    table = Table(
        caption="95 % intervals; empty: not to be trusted, as with too few rollouts",
        padding=(0, 1) if limits else (0, 1, 0, 0),
    )
    table.add_column(first, overflow="fold")
    for column in ("value", "s.e.", "normal", "bootstrap", "Bernstein", "betting"):
        table.add_column(column, justify="right", overflow="fold", no_wrap=not limits)
    if limits:
        table.add_column(f"{limits[0]:g} … betting … {limits[1]:g}")
    for name, estimate in named:
        intervals = (estimate.normal, estimate.bootstrap, estimate.bernstein, estimate.betting)
        shown = (_interval(i, " " if limits else "\n") for i in intervals)
        line = "╌" if estimate.biased else "─"
        plot = [_plot(estimate.value, estimate.betting, limits, line)] if limits else []
        table.add_row(
            name, decimal(estimate.value), _number_or_blank(estimate.standard_error), *shown, *plot
        )
    return table


def _overlap(answer: "Answer") -> object:
    from rich.table import Table

    table = Table(title="Overlap")
    table.add_column("arm", overflow="fold")
    for column in ("share", "logged", "least propensity", "greatest weight"):
        table.add_column(column, justify="right")
    for row in answer.overlap:
        table.add_row(
            row.arm,
            f"{row.share:.2%}",
            f"{row.logged:,}",
            f"{row.least_propensity:.4g}" if row.logged else "",
            f"{row.greatest_weight:.2f}" if row.logged else "",
        )
    return table


def _number_or_blank(error: float) -> str:
    return "" if math.isnan(error) else decimal(error)


def _interval(interval: Interval, gap: str) -> str:
    return "" if interval is None else f"{decimal(interval[0])}{gap}{decimal(interval[1])}"


def _plot(value: float, interval: Interval, limits: tuple[float, float], stroke: str) -> str:
    """Draw an interval as a line, with its value as a dot, on a scale between the limits."""

    def position(x: float) -> int:
        share = (x - limits[0]) / (limits[1] - limits[0])
        return min(WIDTH - 1, max(0, round(share * (WIDTH - 1))))

    line = [" "] * WIDTH
    if interval is not None:
        start, end = position(interval[0]), position(interval[1])
        line[start : end + 1] = stroke * (end + 1 - start)
    if value == value:  # noqa: PLR0124 - NaN is not itself
        line[position(value)] = "●"
    return "".join(line)
