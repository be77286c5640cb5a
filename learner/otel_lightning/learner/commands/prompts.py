"""`lightning-learn prompts`."""

from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.commands.agent_options import agent_options, grading_of
from otel_lightning.learner.commands.common import (
    REFUSED,
    expected_errors,
    flags_option,
    held_out_option,
    key_option,
    refuse_given,
    reward_option,
    shuffle_option,
    since_option,
    store_option,
    task_by_option,
)
from otel_lightning.learner.commands.common import option as shared_option
from otel_lightning.learner.commands.endpoint_options import endpoint_of, endpoint_options
from otel_lightning.learner.commands.values import Finite, FiniteNumber

if TYPE_CHECKING:
    from otel_lightning.learner.prompts.proposals.plan import Proposed, Request
    from otel_lightning.learner.prompts.search.search import Search

option = partial(shared_option, command="prompts")
SEARCHING = ("--tasks", "--jobs", "--grade", "--grade-command", "--exit-code-is-reward")
"""Options of --search, which runs an agent."""
IDENTITY = (
    "key", "flags", "grade", "grade_command", "exit_code_is_reward", "reward", "seed", "model",
    "temperature", "max_length", "shuffle_rewards",
)  # fmt: skip
"""Settings by which a search is known again. With others it is another search; with a larger
--budget or another --jobs it is the same."""


@click.command(
    epilog=example(
        "lightning-learn prompts --key support-prompt --flags flags.json "
        "--endpoint http://127.0.0.1:8000/v1 --model writer"
    )
)
@store_option
@key_option
@flags_option
@endpoint_options(
    "prompts",
    temperature={"default": 1.0, "help": "Sampling temperature."},
    timeout={"default": 300.0},
)
@option(
    "--candidates",
    type=click.IntRange(1, 20),
    default=3,
    help="Number of prompts to ask for, each with a call of its own.",
)
@option(
    "--share",
    type=Finite(0, 1, min_open=True, max_open=True),
    default=0.1,
    help="Share of the traffic, from 0 to 1, that the new variants get together. The shares of "
    "all live variants are reduced in proportion.",
)
@option(
    "--records",
    type=click.IntRange(1),
    default=24,
    help="Number of rollouts to show in each call: two thirds failures, one third successes.",
)
@reward_option
@option(
    "--failed-below",
    type=FiniteNumber(),
    help="A rollout failed if its reward is below this. By default it is the mean of the smallest "
    "and the largest logged reward.",
)
@option(
    "--max-length",
    type=click.IntRange(1),
    default=4000,
    help="Refuse prompts with more characters, unless they are at most twice as long as the prompt "
    "that they improve.",
)
@option(
    "--max-prompt",
    type=click.IntRange(1000),
    default=60_000,
    help="Send at most this many characters in a call; records beyond are left out.",
)
@option(
    "--max-arms",
    type=click.IntRange(2),
    default=6,
    help="Serve at most this many variants, the new ones included.",
)
@option("--seed", type=int, default=0, help="Seed of the choice of rollouts to show.")
@since_option
@held_out_option
@task_by_option
@shuffle_option
@option(
    "--dry-run",
    is_flag=True,
    help="Ask the model and print its prompts, but write nothing. The answers are cached.",
)
@option(
    "--search",
    type=click.Choice(["gepa"]),
    help="Search with this package and real rollouts of AGENT. By default no rollout is run.",
)
@agent_options("prompts", *SEARCHING, condition="With --search. ")
@option(
    "--budget",
    type=click.IntRange(1),
    default=200,
    help="With --search. Number of rollouts, which is never exceeded: all starts of a search that "
    "was killed share it.",
)
def prompts(agent: tuple[str, ...], store: str, **settings: Any) -> None:
    """Let a model propose better prompts from logged rollouts, and give them a little traffic.

    The API key is read from OPENAI_API_KEY. AGENT, after --, is needed with --search only.

    Exit codes: 0 new variants are in the flag file, 1 failed, 3 there is no new variant to try.
    """
    with expected_errors():
        from otel_lightning.learner.prompts.proposals.ask import Proposer
        from otel_lightning.learner.prompts.propose import propose_prompts

        with ExitStack() as resources:
            search = _search(agent, store, settings, resources)
            endpoint = endpoint_of(settings)
            request = _request(store, settings)
            if search is not None:
                request = replace(request, run_id=search.record.name)
            proposer = resources.enter_context(closing(Proposer(endpoint)))
            result = propose_prompts(store, request, proposer, _asking(search))
    _print_result(result, request)


def _asking(search: "Search | None") -> Any:
    """Return how to get proposals: by a search, or None for one call each."""
    if search is None:
        return None
    from otel_lightning.learner.prompts.search.search import searching

    if search.record.replaces:
        click.echo(
            f"Search {search.record.replaces} cannot go on, because its prompt was changed. A new "
            "one begins."
        )
    if search.record.rollouts:
        click.echo(
            f"Search {search.record.name} goes on: "
            f"{number_of(search.record.rollouts, 'rollout')} of its budget of {search.budget:,} "
            "began before."
        )
    return searching(search)


def _search(
    agent: tuple[str, ...], store: str, settings: dict[str, Any], resources: ExitStack
) -> "Search | None":
    """Return the search of --search, or None without; take its options out."""
    names = ("search", "tasks", "budget", "jobs", "grade", "grade_command", "exit_code_is_reward")
    search_options = {name: settings.pop(name) for name in names}
    if search_options["search"] is None:
        if agent or search_options["tasks"]:
            raise click.UsageError("AGENT and --tasks are for --search gepa. Add it.")
        refuse_given(search_options, "without --search gepa")
        return None
    if not agent or not search_options["tasks"]:
        raise click.UsageError("--search runs an agent: give --tasks FILE and -- AGENT.")
    if find_spec("gepa") is None:
        raise click.ClickException(
            "--search gepa needs the package 'gepa'. Install it with: pip install "
            "'otel-lightning[prompts]' (in a checkout: pip install -e '.[prompts]')"
        )
    from otel_lightning.learner.prompts.search.record import opened_search
    from otel_lightning.learner.prompts.search.runs import Runs
    from otel_lightning.learner.prompts.search.search import Search
    from otel_lightning.learner.rollout_runner import Job, read_tasks
    from otel_lightning.learner.rollout_runner.tasks import tasks_in_split
    from otel_lightning.learner.task_splits import TRAIN

    tasks = tasks_in_split(read_tasks(search_options["tasks"]).tasks, TRAIN, settings["held_out"])
    flags: Path = settings["flags"]
    key: str = settings["key"]
    identity = {name: search_options.get(name, settings.get(name)) for name in IDENTITY}
    identity |= {"agent": agent, "tasks": [task.whole_fingerprint for task in tasks]}
    folder = Path(f"{store}.searches")
    record = resources.enter_context(opened_search(Path(store), folder, flags, key, identity))
    runs = Runs(
        store=Path(store),
        flags=flags,
        key=key,
        job=Job(tasks=(), command=agent, jobs=search_options["jobs"]),
        grading=grading_of({**search_options, "reward": settings["reward"]}),
        record=record,
    )
    return Search(tasks, search_options["budget"], runs, record)


def _request(store: str, settings: dict[str, Any]) -> "Request":
    from otel_lightning.learner.prompts.logged.rollouts import Window
    from otel_lightning.learner.prompts.proposals.plan import Request

    names = ("key", "reward", "held_out", "task_by", "since", "failed_below", "shuffle_rewards")
    window = Window(**{name: settings.pop(name) for name in names})
    cache = settings.pop("cache") or Path(f"{store}.judge")
    return Request(window=window, cache=cache, **settings)


def _print_result(result: "Proposed", request: "Request") -> None:
    from otel_lightning.learner.prompts.serving.variants import WHOLE_TEXT

    rollouts = result.rollouts
    if result.rule:
        click.echo(result.rule)
    click.echo(
        f"Read {number_of(rollouts.rows.height, 'rollout')} of "
        f"{number_of(rollouts.variants, 'variant')}; {rollouts.failed:,} failed, "
        f"{rollouts.explained:,} of them with an explanation."
    )
    for note in rollouts.units.notes:
        click.echo(note)
    usage = result.usage
    click.echo(
        f"{number_of(usage.requested, 'answer')} asked for, {usage.cached} known before. "
        f"Tokens: {usage.input_tokens} read, {usage.output_tokens} written."
    )
    refused: Counter[str] = Counter()
    for judged in result.judged:
        part = "" if judged.task.component == WHOLE_TEXT else f" ({judged.task.component})"
        if judged.candidate is None:
            refused[f"for {judged.task.parent}{part}: {judged.proposal.refused}"] += 1
            continue
        click.echo(f"{judged.candidate.name}{part}: {judged.proposal.reason}")
        if request.dry_run:
            click.echo(judged.proposal.prompt)
    # Once per reason, because a model may repeat an answer in each call of a search.
    for reason, times in refused.items():
        click.echo(f"Refused{f' {times} times' if times > 1 else ''}, {reason}.", err=True)
    for name in result.retired:
        click.echo(f"{name}: worse than its parent, gets no traffic any more.")
    _print_shares(result, request)
    if not result.candidates:
        click.echo(f"Nothing to try: {_why_no_proposal(result, request)}", err=True)
        raise click.exceptions.Exit(REFUSED)


def _print_shares(result: "Proposed", request: "Request") -> None:
    change = result.change
    if change is None:
        return
    names = change.before | change.after
    shares = "; ".join(
        f"{name} {change.before.get(name, 0):.1%} -> {change.after.get(name, 0):.1%}"
        for name in names
    )
    would = " (not written)" if request.dry_run else ""
    click.echo(f"{request.flags}{would}: {shares}.")
    if change.attempts > 1:
        click.echo(
            f"The file was changed by another program {number_of(change.attempts - 1, 'time')} "
            "meanwhile; its changes are kept."
        )


def _why_no_proposal(result: "Proposed", request: "Request") -> str:
    if result.judged:
        refused = len(result.judged)
        return f"{number_of(refused, 'proposal was', 'proposals were')} refused, and none is left."
    if not result.rollouts.failed:
        return "no rollout failed. Choose another reward with --reward, or raise --failed-below."
    return (
        f"{number_of(request.max_arms, 'variant is', 'variants are')} served already, and none is "
        "worse than its parent beyond chance. Collect more rollouts, set a weight to 0, or raise "
        "--max-arms."
    )
