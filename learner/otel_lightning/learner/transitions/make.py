"""Build transitions: (observation, action, reward, next observation, terminated, truncated).

There is one row per model call that has a completion, in a rollout with a reward. Rows hold no
text: the view `transitions` joins it when it is read. Only tasks that changed are rebuilt.
"""

import time
from dataclasses import asdict, dataclass, replace

from otel_lightning.collector.store import Store, StoreLike, opened, statement
from otel_lightning.collector.terminal.progress import Progress
from otel_lightning.learner import credit
from otel_lightning.learner.named_sql import arrow, read
from otel_lightning.learner.runs import Run, recorded
from otel_lightning.learner.score import rules
from otel_lightning.learner.transitions import stage
from otel_lightning.learner.transitions.build import build
from otel_lightning.learner.transitions.settings import Settings

__all__ = ["Settings", "Summary", "make_transitions", "stage_rollouts"]

DEFAULTS = Settings()
NS_A_MINUTE = 60 * 10**9
ALONE = "alone in their task, nothing to compare with: advantage 0"


@dataclass(frozen=True, slots=True)
class Summary:
    """Numbers about the transitions that the store has now."""

    rollouts: int
    rewarded: int
    transitions: int
    tasks: int
    """Number of tasks of the rewarded rollouts."""
    train: int
    heldout: int
    mean_reward: float | None
    least_advantage: float | None
    greatest_advantage: float | None
    built: int
    """Number of transitions that this run built; the tasks of the others had not changed."""
    left_out: dict[str, int]
    """Number of rollouts or calls that are not in the transitions, by reason."""
    rule: str | None = None
    """Report of the rule that gave the rewards; None if no rule was used."""


def make_transitions(
    store: StoreLike, settings: Settings = DEFAULTS, *, rebuild: bool = False
) -> Summary:
    """Update the transitions of a store after traces or rewards arrived.

    Args:
        store: Path of the store, or an open store.
        settings: Rewards, agents, credit and split.
        rebuild: Rebuild all tasks, not only those that changed. The result is the same.

    Returns:
        Numbers about the transitions that the store has now.

    Raises:
        DataError: If no rollout has a reward, a reward is not a finite number, no call is of a
            chosen agent, or the credit method is unknown.
        StoreError: If the store cannot be read or written.
    """
    run = Run("transitions", asdict(settings))
    with opened(store) as db, recorded(db, run), stage.bounded(db):
        stage.check_agents(db, choice_of(settings))
        # A reward that is a rule is computed first: its scores become rewards in the store, of
        # which the settings then name one.
        name, rule = rules.resolve_reward(db, settings.reward)
        settings = replace(settings, reward=name)
        stage_rollouts(db, settings)
        # A permutation depends on every rollout, so no task can stay as it was.
        all_again = rebuild or settings.shuffle_rewards is not None
        calls = stage.stage_calls(db, choice_of(settings), rebuild=all_again)
        _write(db, calls, settings)
        summary = replace(_summary(db, settings, calls), rule=str(rule) if rule else None)
        ended = run.ended(
            outcome="done",
            fingerprint=read(db, __package__, "data_fingerprint")["fingerprint"][0],
            metrics=asdict(summary),
            artifact="transition_rows",
        )
        # The row in `runs` is written last: a run that was killed before leaves none that says
        # "done".
        db.insert("runs", arrow(ended))
    return summary


def stage_rollouts(store: Store, settings: Settings) -> None:
    """Stage the chosen rewards, and one row per rollout with its task and its outcome.

    Raises:
        DataError: If no such reward exists, or a reward is not a finite number.
    """
    stage.stage_rewards(store, settings.reward)
    stage.stage_rollouts(store, choice_of(settings), settings.identity)


def choice_of(settings: Settings) -> stage.Choice:
    """Derive from the settings which rollouts and calls to use."""
    methods = credit.validate(settings.credit)
    return stage.Choice(
        agents=settings.agents,
        # The only input that changes by itself with time. It is left out of `Settings.identity`:
        # what it changes, how a rollout ended, is part of the fingerprint of the rollout.
        idle_before_ns=time.time_ns() - int(settings.idle * NS_A_MINUTE),
        tools_count=any(method.needs_tools for method in methods),
        states_count=any(method.needs_states for method in methods),
        task_by=settings.task_by,
    )


def _write(store: Store, calls: int, settings: Settings) -> None:
    """Replace the transitions of changed tasks, one bucket per transaction to limit memory.

    If the run is killed, each task has either all of its old rows or all of its new rows. The
    next run builds the rest.
    """
    buckets = stage.buckets(calls)
    progress = Progress("Transitions", len(buckets))
    for number, bucket in enumerate(buckets, start=1):
        calls_there = stage.read_bucket(store, "bucket_calls", bucket)
        rewards = stage.read_bucket(store, "bucket_rewards", bucket)
        stage.write_bucket(store, bucket, build(calls_there, rewards, settings))
        progress.report(number, "buckets of tasks")
    # Only after all buckets: a later run finds the old fingerprints of a run that was killed, so it
    # skips nothing that is not written.
    store.execute(statement(__package__, "remember_rollouts"))


def _summary(store: Store, settings: Settings, built: int) -> Summary:
    numbers = read(store, __package__, "summary").row(0, named=True)
    left_out = {
        f"rollouts {why}": n for why, n in read(store, __package__, "exclusions").iter_rows()
    }
    failed, context = numbers.pop("failed_calls"), numbers.pop("context_calls")
    alone = numbers.pop("alone")
    left_out["calls without a completion: failed, or recorded without content"] = failed
    left_out["calls of agents that are not selected"] = context
    if credit.compares(settings.credit, settings):
        left_out[f"rollouts {ALONE}"] = alone
    left_out = {why: n for why, n in left_out.items() if n}
    return Summary(**numbers, built=built, left_out=left_out)
