"""`lightning-learn judge`."""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.commands.common import GIVEN_FILE, expected_errors, store_option
from otel_lightning.learner.commands.common import option as shared_option
from otel_lightning.learner.commands.endpoint_options import endpoint_of, endpoint_options
from otel_lightning.learner.commands.values import Finite

if TYPE_CHECKING:
    from otel_lightning.learner.score.judges.endpoint import Endpoint, Judge
    from otel_lightning.learner.score.judges.judging import Report
    from otel_lightning.learner.score.judges.rubric import Rubric

MEASURE = click.Choice(["intent_resolution", "task_adherence", "task_completion"])
PRICE = Finite(0)


option = partial(shared_option, command="judge")


@click.command(
    epilog=example("lightning-learn judge --endpoint http://127.0.0.1:8000/v1 --model judge")
)
@store_option
@endpoint_options("judge")
@option(
    "--measure",
    type=MEASURE,
    multiple=True,
    help="Built-in rubric to judge by; may be repeated.  [default: all three; none with --rubric]",
)
@option(
    "--rubric",
    type=GIVEN_FILE,
    multiple=True,
    help="Judge by the rubric in this file, .toml or .md; may be repeated.",
)
@option(
    "--evaluator",
    type=click.Choice(["own", "azure"]),
    default="own",
    help="Prompts to judge with: our own, or those of the package azure-ai-evaluation.",
)
@option(
    "--agent",
    metavar="PATTERN",
    multiple=True,
    help="Judge only the calls of agents with this name (* and ? are wildcards); may be repeated. "
    "By default the whole rollout is judged.",
)
@option(
    "--limit",
    type=click.IntRange(1),
    help="Judge at most this many rollouts, the newest first. By default all are judged.",
)
@option(
    "--samples",
    type=click.IntRange(1),
    default=1,
    help="Number of answers per rollout and rubric; the score is their mean.",
)
@option(
    "--max-characters",
    type=click.IntRange(1000),
    default=60_000,
    help="Show the judge at most about this many characters of a rollout; the middle is left out.",
)
@option(
    "--input-price",
    type=PRICE,
    help="Price per million input tokens. If a price is given, the cost is printed.",
)
@option(
    "--output-price",
    type=PRICE,
    help="Price per million output tokens. If a price is given, the cost is printed.",
)
@option(
    "--retry-errors",
    is_flag=True,
    help="Ask again where the cached answer has no score. By default it is not asked again.",
)
def judge(  # noqa: PLR0913 - one parameter an option
    store: str,
    *,
    evaluator: str,
    measure: tuple[str, ...],
    rubric: tuple[Path, ...],
    input_price: float | None,
    output_price: float | None,
    **settings: Any,
) -> None:
    """Score rollouts with a model as the judge. The API key is read from OPENAI_API_KEY."""
    with expected_errors():
        from otel_lightning.learner.score.judges.judging import judge_rollouts

        plan = _plan(store, _rubrics(measure, rubric), settings)
        with closing(_judge(evaluator, endpoint_of(settings))) as judging:
            report = judge_rollouts(store, plan, judging)
    _print_report(report, input_price, output_price)


def _plan(store: str, rubrics: "tuple[Rubric, ...]", settings: dict[str, Any]) -> Any:
    from otel_lightning.learner.score.judges.judging import Plan
    from otel_lightning.learner.score.judges.record import Selection

    return Plan(
        rubrics=rubrics,
        selection=Selection(settings["agent"], settings["limit"], settings["max_characters"]),
        cache=settings["cache"] or Path(f"{store}.judge"),
        samples=settings["samples"],
        concurrency=settings["concurrency"],
        retry_errors=settings["retry_errors"],
    )


def _rubrics(measures: tuple[str, ...], files: tuple[Path, ...]) -> "tuple[Rubric, ...]":
    from otel_lightning.learner.errors import DataError
    from otel_lightning.learner.score.judges.rubric import MEASURES, measure, read_rubric

    names = dict.fromkeys(measures or (() if files else MEASURES))
    rubrics = [*map(measure, names), *map(read_rubric, files)]
    names_seen: set[str] = set()
    for rubric in rubrics:
        if rubric.name in names_seen:
            raise DataError(f"Two rubrics are named '{rubric.name}'. Give one of them another.")
        names_seen.add(rubric.name)
    return tuple(rubrics)


def _judge(evaluator: str, endpoint: "Endpoint") -> "Judge":
    if evaluator == "azure":
        from otel_lightning.learner.score.judges.azure import AzureJudge

        return AzureJudge(endpoint)
    from otel_lightning.learner.score.judges.endpoint import PromptJudge

    return PromptJudge(endpoint)


def _print_report(report: "Report", input_price: float | None, output_price: float | None) -> None:
    for tally in report.tallies:
        mean = "" if tally.mean is None else f", mean {tally.mean:.4g} ({tally.scale})"
        spread = "" if tally.mean_spread is None else f", mean spread {tally.mean_spread:.4g}"
        click.echo(f"{tally.name}: {number_of(tally.judged, 'rollout')} judged{mean}{spread}.")
        if tally.errors:
            click.echo(f"{tally.errors:,} without a score, such as: {tally.first_error}", err=True)
    for name, count in report.also_received.items():
        click.echo(
            f"{number_of(count, 'reward')} named '{name}' came from another source: --reward "
            f"{name} would mix them with these scores. Give the rubric another name to learn from "
            "it.",
            err=True,
        )
    if report.without_text:
        click.echo(f"{number_of(report.without_text, 'rollout')} without text left out.")
    usage = report.usage
    click.echo(
        f"{number_of(usage.requested, 'answer')} asked for, {usage.cached} known before. "
        f"Tokens: {usage.input_tokens} read, {usage.output_tokens} written."
    )
    if usage.without_count:
        click.echo(f"{number_of(usage.without_count, 'answer')} came without a count of tokens.")
    if input_price is not None or output_price is not None:
        click.echo(f"Cost: {usage.cost(input_price or 0, output_price or 0):.4f}.")
    if not any(tally.judged for tally in report.tallies):
        raise click.ClickException(
            "No rollout got a score. Try another --model, or ask again with --retry-errors."
        )
