"""The command line of the learner: it parses and reports, nothing more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.learner import credit, off_policy
from otel_lightning.learner.algorithms import ALGORITHMS
from otel_lightning.learner.algorithms import Settings as WeightSettings

if TYPE_CHECKING:
    from otel_lightning.learner.gate import Verdict

REFUSED = 3
CREDIT = click.Choice(list(credit.METHODS))
ESTIMATOR = click.Choice(list(off_policy.METHODS))
SHARE = click.FloatRange(0, 1)
FILE = click.Path(path_type=Path, dir_okay=False)

Command = Callable[..., Any]


def option(name: str, **attributes: Any) -> Callable[[Command], Command]:
    """Declare an option that also has an environment variable, `LIGHTNING_…`."""
    variable = "LIGHTNING_" + name.removeprefix("--").replace("-", "_").upper()
    return click.option(name, envvar=variable, show_envvar=True, show_default=True, **attributes)


store_option = option("--store", default="traces.duckdb", help="The store to learn from.")
reward_option = option("--reward", metavar="NAME", help="Learn from the rewards of this name only.")
held_out_option = option("--held-out", type=SHARE, default=0.3, help="Share of tasks to judge by.")

shuffle_option = option(
    "--shuffle-rewards", type=int, metavar="SEED", help="Negative control: permute rewards."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Learn better agents from stored traces, offline, behind a held-out gate.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the gate said no.
    """


@cli.command()
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


@cli.command()
@store_option
@option("--key", required=True, help="Key of the flag whose variants are the arms.")
@option("--flags", type=FILE, required=True, help="The flagd flag file that serves the arms.")
@option("--output", type=FILE, help="Flag file to write.  [default: the one in --flags]")
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
        from otel_lightning.learner.policy import Request, learn_policy
        from otel_lightning.learner.softmax import Settings

        softmax = Settings(**settings)
        request = Request(
            key, flags, output or flags, reward, held_out, shuffle_rewards, settings=softmax
        )
        learned = learn_policy(store, request)
    if learned.without_propensity:
        click.echo(f"{learned.without_propensity} choices without a propensity left out.")
    shares = ", ".join(f"{arm} {n / 100:.2f} %" for arm, n in learned.weights.items())
    click.echo(f"Learned from {learned.learned_from} rollouts: {shares}.")
    report_verdict(
        learned.verdict,
        passed=f"Policy {learned.version} is live in {request.output}.",
        refused=f"{request.output} is as it was; policy {learned.version} is kept as a candidate.",
    )


@cli.command()
@store_option
@option(
    "--algorithm",
    type=click.Choice(list(ALGORITHMS)),
    required=True,
    help=" ".join(f"{name}: {summary}" for name, summary in ALGORITHMS.items()),
)
@option(
    "--model",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder of the model that wrote the traces.",
)
@option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder to make for the fine-tuned model.",
)
@option("--threshold", type=float, default=0.0, help="Learn from advantages above this.")
@option("--learning-rate", type=click.FloatRange(0, min_open=True), default=1e-5, help="Peak.")
@option("--steps", type=click.IntRange(1), default=60, help="Optimizer steps.")
@option("--batch-size", type=click.IntRange(1), default=16, help="Transitions a step.")
@option("--clip", type=click.FloatRange(1), default=10.0, help="Largest importance weight.")
@option("--seed", type=int, default=0, help="Of the order of training and of the bootstrap.")
def weights(store: str, algorithm: str, output: Path, **settings: Any) -> None:
    """Fine-tune a model's weights on what earned a reward."""
    with expected_errors():
        from otel_lightning.learner.weights import learn_weights

        learned = learn_weights(store, algorithm, WeightSettings(**settings), output)
    for name, value in learned.metrics.items():
        click.echo(f"{name.replace('_', ' ').capitalize()}: {value:.4g}")
    report_verdict(
        learned.verdict,
        passed=f"The fine-tuned model is in {output}.",
        refused=f"The refused model is kept in {output} for inspection.",
    )


@contextmanager
def expected_errors() -> Iterator[None]:
    """Turn errors that a user can mend into one sentence; others keep their traceback."""
    from otel_lightning.collector.store import StoreError
    from otel_lightning.learner.errors import DataError

    try:
        yield
    except (DataError, StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error


def report_verdict(verdict: "Verdict", passed: str, refused: str) -> None:
    """Say what the gate saw and said; a refusal ends with its own exit code."""
    click.echo(
        f"Held out: {verdict.rollouts} rollouts of {verdict.tasks} tasks, worth "
        f"{verdict.effective_sample_size:.1f}. Mean reward {verdict.behavior_value:.4f} as logged, "
        f"{verdict.value:.4f} as learned ({verdict.estimator}); gain {verdict.gain:+.4f}, "
        f"95 % bounds {verdict.lower:+.4f} and {verdict.upper:+.4f}."
    )
    if verdict.passed:
        click.echo(f"The gate passed. {passed}")
        return
    click.echo(f"The gate refused: {'; '.join(verdict.refusals)}. {refused}", err=True)
    raise click.exceptions.Exit(REFUSED)
