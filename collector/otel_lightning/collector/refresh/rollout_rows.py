"""Keep `rollout_rows`, one narrow row per rollout, current in the transaction that derives.

A closed set of traces holds all calls of its rollouts, so their rows come from what was just
derived, without reading the stored calls again. Rewards, arms and tasks may come from elsewhere, so
they are looked up by rollout.
"""

from collections import defaultdict

import pyarrow as pa

from otel_lightning.collector.refresh.recent_traces import Least, least_time
from otel_lightning.collector.store import Sql, Store, statement

TABLE = "rollout_rows"
READ = {
    "llm_calls": (
        "rollout_id", "trace_id", "step", "service_name", "agent_name", "response_model",
        "request_model", "start_time", "end_time", "input_tokens", "output_tokens",
        "finish_reason", "error_type", "response_id",
    ),
    "tool_calls": ("rollout_id", "error_type"),
    "agent_runs": ("rollout_id", "parent_span_id", "end_time"),
    "reward_events": ("reward_id", "rollout_id", "response_id"),
    "arms": ("rollout_id",),
    "rollout_tasks": ("rollout_id",),
}  # fmt: skip
"""The columns of derived tables that the rows are made from."""


class NewRows:
    """The columns of newly derived rows from which `rollout_rows` is computed."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._parts: dict[str, list[pa.Table]] = defaultdict(list)
        self.least: Least = {}
        """The smallest times of the new rows, for `RecentTraces`."""

    def add(self, table: str, rows: pa.Table) -> None:
        """Keep the columns that are needed of some rows of a derived table."""
        if table in READ:
            self._parts[table].append(rows.select(READ[table]))
        if table == "llm_calls":
            # A rollout's row begins with the first of its calls, which are all among these.
            least_time(TABLE, rows, self.least)

    def keep_rollouts(self, store: Store) -> None:
        """Bring the rows of rollouts up to date.

        Args:
            store: A direct store, in a transaction that has deleted the former rows of the derived
                traces and inserted everything that was added here.
        """
        for table, columns in READ.items():
            names = ", ".join(columns)
            store.execute(
                f"CREATE OR REPLACE TEMP TABLE new_{table} AS SELECT {names} FROM {table} LIMIT 0"
            )
            if parts := self._parts[table]:
                store.insert(f"new_{table}", pa.concat_tables(parts))
        _do(store, "touched")
        if _has_rows(store, "to_place"):
            _do(store, "place_rewards")
        _do(store, "signals")
        # Only rollouts with new calls get a new row. The others keep theirs, with new signals.
        if self._parts["llm_calls"]:
            _insert(store, "new_")
        _do(store, "elsewhere")
        if _has_rows(store, "signals"):
            _do(store, "update_rollouts")
        for table in ("to_place", "touched", "signals", *(f"new_{table}" for table in READ)):
            store.execute(f"DROP TABLE {table}")


def insert_stored(store: Store, rollouts: str) -> None:
    """Make the rows of some rollouts again from the stored calls.

    Args:
        store: A direct store, in a transaction.
        rollouts: Name of a table with the column `rollout_id`.
    """
    store.execute(
        f"DELETE FROM {TABLE} WHERE rollout_id IN (SELECT rollout_id FROM {rollouts});"
        f"CREATE OR REPLACE TEMP TABLE touched AS SELECT DISTINCT rollout_id FROM {rollouts}"
    )
    _do(store, "signals")
    _insert(store, "")
    store.execute("DROP TABLE touched; DROP TABLE signals")


def _insert(store: Store, prefix: str) -> None:
    """Insert the rows of the rollouts of `signals`, from the derived tables with this prefix."""
    _do(
        store,
        "insert_rollouts",
        calls=Sql(f"{prefix}llm_calls"),
        tools=Sql(f"{prefix}tool_calls"),
        agents=Sql(f"{prefix}agent_runs"),
    )


def _has_rows(store: Store, table: str) -> bool:
    return bool(len(store.query(f"FROM {table} LIMIT 1")))


def _do(store: Store, name: str, **values: Sql) -> None:
    store.execute(statement(__package__, name, **values))
