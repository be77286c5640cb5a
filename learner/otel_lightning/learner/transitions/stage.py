"""Stage the inputs of transitions in temporary tables, without text columns.

All rollouts of a task are in one bucket. Tables are sorted by a 64-bit hash of the task, so a
bucket is a range of hashes, and reading a bucket touches no other rows.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise

import polars as pl

from otel_lightning.collector.store import Sql, Store, quote_literal, statement
from otel_lightning.collector.store.sql_text import Value
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import arrow, number, read
from otel_lightning.learner.score.rewards import GIVEN_LATER, HUGE

BOUNDS = "SET memory_limit = '1000MB'; SET threads = 1"
"""Limits for staging; DuckDB spills the rest to disk. One thread, because each further thread
needs more memory and spins while it waits."""
CALLS_A_BUCKET = 250_000
"""Number of calls per bucket, approximately: it bounds the memory of building."""
HASHES = 2**64
"""Number of possible hashes of a task."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A range of task hashes, including both ends."""

    first: int
    last: int

    @property
    def changed(self) -> str:
        """SQL condition for the rows of changed tasks in this bucket."""
        news = "task_hash IN (SELECT task_hash FROM changed_tasks)"
        return f"task_hash BETWEEN {self.first}::UBIGINT AND {self.last}::UBIGINT AND {news}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rollouts and calls to use."""

    agents: Sequence[str] = ()
    """Patterns for the names of the agents to learn from; an empty sequence selects all."""
    idle_before_ns: int = 0
    """An open rollout whose last call ended before this time counts as truncated."""
    tools_count: bool = False
    """Whether the credit depends on the success of tools."""
    states_count: bool = False
    """Whether the credit depends on which calls had the same observation."""
    task_by: str = "user"
    """How to find the task of a rollout without a task id: a key of `settings.TASK_BY`."""

    @property
    def clauses(self) -> dict[str, Value]:
        """Values for the placeholders of the SQL statements."""
        patterns = (f"coalesce(agent_name, '') GLOB {quote_literal(p)}" for p in self.agents)
        return {
            "selected": Sql(f"({' OR '.join(patterns)})" if self.agents else "TRUE"),
            "idle_before_ns": self.idle_before_ns,
            "tools_count": self.tools_count,
            "states_count": self.states_count,
            "by_user": self.task_by == "user",
            "by_prompt": self.task_by == "prompt",
        }


@contextmanager
def bounded(store: Store) -> Iterator[None]:
    """Limit DuckDB's memory and threads in the block, unless a running ingester owns the store."""
    if store.server:
        yield
        return
    # A served store has one thread, set once; changing it there can deadlock. So limits are set on
    # stores of this process only.
    threads = store.threads
    store.execute(BOUNDS)
    try:
        yield
    finally:
        store.threads = threads
        if store.memory_bytes is None:
            store.execute("RESET memory_limit")
        else:
            store.limit(store.memory_bytes)


def chosen_rewards(name: str | None) -> Sql:
    """Return the SQL condition for rewards of one name, or for received rewards if it is None.

    Scores of rules and judges count only if `name` selects them, so that a rollout is not
    rewarded twice for the same thing.
    """
    return Sql(f"NOT {GIVEN_LATER}" if name is None else f"name = {quote_literal(name)}")


def stage_rewards(store: Store, name: str | None, condition: str = "TRUE") -> None:
    """Stage the rewards of one name, or all received rewards if `name` is None.

    Args:
        store: An open store.
        name: Name of the rewards.
        condition: A further SQL condition over the view `rewards`.

    Raises:
        DataError: If there is no such reward, or a value is not a finite number, or beyond `HUGE`.
    """
    chosen = Sql(f"{chosen_rewards(name)} AND {condition}")
    parts = {name: shared(name) for name in ("reward_places", "placed_rewards")}
    store.execute(statement(__package__, "staged_rewards", chosen=chosen, **parts))
    if store.count("staged_rewards") == 0:
        raise DataError(_no_reward(store, name))
    broken = read(store, __package__, "unusable_reward", huge=HUGE)
    for row in broken.iter_rows(named=True):
        remedy = "Send it again with a finite number"
        if math.isfinite(row["value"]):
            remedy = f"Beyond {HUGE:g} nothing can be computed with it. Send it in another unit"
        raise DataError(
            f"Reward '{row['name']}' of rollout '{row['rollout_id']}' is {row['value']}. "
            f"{remedy}, or choose another with --reward."
        )


def check_agents(store: Store, choice: Choice) -> None:
    """Refuse patterns that select no call, such as a misspelt name.

    Raises:
        DataError: If no call is of a selected agent.
    """
    if not choice.agents:
        return
    selected = choice.clauses["selected"]
    calls, agents = read(store, __package__, "selected_agents", selected=selected).row(0)
    if not calls:
        patterns = ", ".join(f"'{pattern}'" for pattern in choice.agents)
        names = ", ".join(f"'{name}'" for name in agents or []) or "no call names its agent"
        raise DataError(f"No call is of an agent {patterns}. Known: {names}.")


def stage_rollouts(store: Store, choice: Choice, settings: str = "") -> None:
    """Stage one row per rollout: task, outcome, reason of exclusion, fingerprint.

    Args:
        store: An open store with staged rewards.
        choice: Which rollouts and calls to use.
        settings: Fingerprint of the other settings that transitions depend on.
    """
    values = choice.clauses | {"settings": settings}
    parts = {name: shared(name) for name in ("task_messages", "contradicted")}
    store.execute(statement(__package__, "staged_rollouts", **values, **parts))


def shared(name: str) -> Sql:
    """Return a statement that transitions share with policies or runs, such as `contradicted`."""
    return Sql(statement(__package__, name).rstrip())


def stage_calls(store: Store, choice: Choice, *, rebuild: bool = False) -> int:
    """Stage the calls that become transitions, of changed tasks or (`rebuild`) of all tasks.

    Returns:
        Number of calls.
    """
    store.execute(statement(__package__, "changed_tasks", rebuild=rebuild))
    store.execute(statement(__package__, "changed_rewards"))
    calls = number(store, statement(__package__, "usable_calls"))
    # Sorting speeds up reading one bucket of several. A single bucket is the whole table.
    ordered = Sql("ORDER BY r.rollout" if calls > CALLS_A_BUCKET else "")
    store.execute(statement(__package__, "staged_calls", ordered=ordered, **choice.clauses))
    return calls


def buckets(calls: int) -> list[Bucket]:
    """Divide the hashes of tasks into ranges with about the same number of calls.

    Example:
        >>> [(b.first, b.last) for b in buckets(1)] == [(0, 2**64 - 1)]
        True
        >>> len(buckets(CALLS_A_BUCKET + 1))
        2
    """
    # Division rounded up. Hashes are uniform, so equal ranges of hashes hold about equal numbers of
    # calls.
    count = max(1, -(-calls // CALLS_A_BUCKET))
    edges = [HASHES * i // count for i in range(count + 1)]
    return [Bucket(first, after - 1) for first, after in pairwise(edges)]


def read_bucket(store: Store, name: str, bucket: Bucket) -> pl.LazyFrame:
    """Read the rows of a bucket with the statement `bucket_calls` or `bucket_rewards`."""
    return read(store, __package__, name, **asdict(bucket)).lazy()


def write_bucket(store: Store, bucket: Bucket, computed: pl.DataFrame) -> None:
    """Replace the transitions of the changed tasks in a bucket with the computed rows."""
    # `store.replace` deletes and inserts in one transaction, so no reader sees a task without its
    # rows.
    rows = statement(__package__, "transition_rows", **asdict(bucket))
    store.replace("transition_rows", arrow(computed), bucket.changed, rows)


def _no_reward(store: Store, name: str | None) -> str:
    names = read(store, __package__, "reward_names")["name"].to_list()
    listed = ", ".join(names)
    chosen = chosen_rewards(name)
    count, first = read(store, __package__, "rewards_without_value", chosen=chosen).row(0)
    if count:
        advice = f" Or choose another with --reward: {listed}." if names else ""
        return (
            f"{number_of(count, 'reward was', 'rewards were')} received, such as '{first}', but "
            "none has a number: each is not a number, or a label alone. Send "
            "'gen_ai.evaluation.score.value' as a finite number, or turn labels into numbers with "
            f"a rule.{advice}"
        )
    if alone := _without_calls(store, chosen):
        return alone
    if not names:
        if store.count("rollouts") == 0:
            return _no_rollout(store)
        return (
            "No rollout in the store has a reward, so there is nothing to learn from. Send "
            "'gen_ai.evaluation.result' events or POST to /v1/feedback, then run this again; or "
            "give rewards by a rule: --reward FILE.py:FUNCTION"
        )
    if name is None:
        return f"No reward was received. Choose one that was given later with --reward: {listed}."
    return f"No reward is named '{name}'. Known: {listed}."


def _without_calls(store: Store, chosen: Sql) -> str | None:
    """Explain that all chosen rewards are of rollouts in which no model call was recorded."""
    count, first = read(store, __package__, "rewards_without_calls", chosen=chosen).row(0)
    if not count:
        return None
    are = number_of(count, "reward is", "rewards are")
    return (
        f"{are} of rollouts without a recorded model call, such as '{first}', so there is nothing "
        "to learn from. After `lightning-learn run`, give its command with --dev, which says why; "
        f"else ask: {next_command('lightning-ingest doctor', store)}"
    )


def _no_rollout(store: Store) -> str:
    if spans := store.count("spans"):
        return (
            f"The store has {number_of(spans, 'span')} but no rollout, because none of them is a "
            "model call that is read. Find out why with: "
            f"{next_command('lightning-ingest doctor', store)}"
        )
    return (
        "The store is empty, so there is nothing to learn from yet. Send traces to "
        f"`{next_command('lightning-ingest', store)}`, or load a file with "
        f"`{next_command('lightning-ingest load FILE', store)}`. Then give the rollouts rewards, "
        "and run this again."
    )
