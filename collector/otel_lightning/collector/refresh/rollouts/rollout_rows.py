"""Keep `rollout_rows`, one narrow row per rollout, current in the transaction that derives.

A closed set of traces holds all calls of its rollouts, so their rows come from what was just
derived, without reading the stored calls again. Rewards, arms and tasks may come from elsewhere, so
they are looked up by rollout.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from otel_lightning.collector.refresh.rollouts import totals
from otel_lightning.collector.refresh.rollouts.labels import (
    NO_LABELS,
    Labels,
    look_up_labels,
    stored_kinds,
)
from otel_lightning.collector.refresh.rollouts.totals import Calls, Totals
from otel_lightning.collector.refresh.time_ranges.time_bounds import EarliestTimes, note_earliest
from otel_lightning.collector.store import Store, statement
from otel_lightning.collector.store.tables import ROLLOUT_ROWS

READ_COLUMNS = {
    **totals.TOTALED_COLUMNS,
    "llm_calls": (*Calls._fields, "response_id"),
    "reward_events": ("rollout_id", "reward_id", "response_id"),
    "arms": ("rollout_id",),
    "rollout_tasks": ("rollout_id",),
}
"""The columns of derived tables that the rows are made from."""
TOUCHING_TABLES = ("llm_calls", "reward_events", "arms", "rollout_tasks")
"""The tables whose new rows change the row of the rollout that they name."""
INSERTED_COLUMNS = (*Totals._fields, "task_id", "arms", "final_reward", "outcome")
ROLLOUTS_AT_ONCE = 20_000
"""Number of rollouts whose rows are made together from stored calls: this bounds memory."""
TYPES = {
    "start_time": pa.timestamp("ns"),
    "end_time": pa.timestamp("ns"),
    "judged_time": pa.timestamp("ns"),
    "arms": pa.list_(pa.string()),
}
"""The types of columns that may hold only NULL or empty lists, from which no type follows."""


class NewRows:
    """The columns of newly derived rows from which `rollout_rows` is computed."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._parts: dict[str, list[pa.Table]] = defaultdict(list)
        self._totals: list[Totals] | None = None
        self.earliest: EarliestTimes = {}
        """The earliest times of the new rows, for `RecentTraces`."""

    def add(self, table: str, rows: pa.Table) -> None:
        """Keep the columns that are needed of some rows of a derived table.

        A worker has computed the totals of all its rows already, in the table `totals.TABLE`.
        """
        if table == totals.TABLE:
            self._totals = totals.of_table(rows)
        if table in READ_COLUMNS:
            self._parts[table].append(rows.select(READ_COLUMNS[table]))
        if table == "llm_calls":
            # A rollout's row begins with the first of its calls, which are all among these.
            note_earliest(ROLLOUT_ROWS, rows, self.earliest)

    def keep_rollouts(self, store: Store) -> None:
        """Bring the rows of rollouts up to date.

        Args:
            store: A direct store, in a transaction that has deleted the former rows of the derived
                traces and inserted everything that was added here.
        """
        kinds = stored_kinds(store)
        touched = {one for table in TOUCHING_TABLES for one in self._values(table, "rollout_id")}
        if rewards := self._to_place(store, kinds):
            touched |= _place(store, rewards)
            kinds.add("placed")
        labels = look_up_labels(store, touched, kinds)
        # Only rollouts with new calls get a new row. The others keep theirs, with new labels.
        new_totals = totals.totals_of(self._parts) if self._totals is None else self._totals
        _insert(store, new_totals, labels)
        if unchanged := touched - {one.rollout_id for one in new_totals}:
            _update(store, {one: labels.get(one, NO_LABELS) for one in unchanged})

    def _to_place(self, store: Store, kinds: Collection[str]) -> set[str]:
        """Return the ids of the rewards whose calls have to be found.

        They are new ones that do not name their rollout or name a response, and stored ones for a
        response or a trace of the new calls.
        """
        reward_ids: set[str] = set()
        for some in self._parts["reward_events"]:
            is_elsewhere = pc.or_(some["rollout_id"].is_null(), some["response_id"].is_valid())
            reward_ids.update(some["reward_id"].filter(is_elsewhere).to_pylist())
        if "responses" in kinds and (new := self._values("llm_calls", "response_id")):
            reward_ids |= _values_of(store, "waiting_rewards", new)
        if "linked" in kinds and (new := self._values("llm_calls", "trace_id")):
            reward_ids |= _values_of(store, "linked_rewards", new)
        return reward_ids

    def _values(self, table: str, column: str) -> set[str]:
        """Return the values of a column of texts, without None."""
        values: set[str] = set()
        for some in self._parts[table]:
            values.update(some[column].drop_null().unique().to_pylist())
        return values


def recompute(store: Store, rollouts: str) -> None:
    """Make the rows of some rollouts again from the stored calls.

    Args:
        store: A direct store, in a transaction.
        rollouts: Name of a table with the column `rollout_id`.
    """
    store.execute(
        f"DELETE FROM {ROLLOUT_ROWS} WHERE rollout_id IN (SELECT rollout_id FROM {rollouts})"
    )
    ids = store.query(f"SELECT DISTINCT rollout_id FROM {rollouts}")["rollout_id"]
    kinds = stored_kinds(store)
    for first in range(0, len(ids), ROLLOUTS_AT_ONCE):
        some = pa.table({"rollout_id": ids.slice(first, ROLLOUTS_AT_ONCE)})
        rows = {
            table: [store.pick(some, _of_rollouts(table, columns))]
            for table, columns in totals.TOTALED_COLUMNS.items()
        }
        labels = look_up_labels(store, some["rollout_id"].to_pylist(), kinds)
        _insert(store, totals.totals_of(rows), labels)


def _of_rollouts(table: str, columns: Sequence[str]) -> str:
    return f"SELECT {', '.join(columns)} FROM {table} WHERE rollout_id IN (FROM {{rows}})"


def _values_of(store: Store, name: str, texts: Collection[str]) -> set[str]:
    """Return the texts that a statement finds for others."""
    searched = pa.table({"text": pa.array(texts, pa.string())})
    return set(store.pick(searched, statement(__package__, name)).column(0).to_pylist())


def _place(store: Store, rewards: Collection[str]) -> set[str]:
    """Find the calls that rewards judge, note them, and return their rollouts."""
    store.execute("CREATE OR REPLACE TEMP TABLE to_place (reward_id VARCHAR)")
    store.insert("to_place", pa.table({"reward_id": pa.array(rewards, pa.string())}))
    store.execute(statement(__package__, "place_rewards"))
    placed = store.column(statement(__package__, "placed_rollouts"))
    store.execute("DROP TABLE to_place")
    return set(placed)


def _insert(store: Store, new_totals: Sequence[Totals], labels: Mapping[str, Labels]) -> None:
    """Insert the rows of rollouts.

    Args:
        store: A direct store.
        new_totals: The totals of these rollouts.
        labels: Their labels; those without any may be missing.
    """
    if new_totals:
        joined = [
            _row(one, labels.get(one.rollout_id, NO_LABELS))
            for one in sorted(new_totals, key=_start)
        ]
        store.insert(ROLLOUT_ROWS, _table(joined, INSERTED_COLUMNS))


def _row(computed: Totals, labels: Labels) -> tuple[Any, ...]:
    """Return the row of a rollout, in the order of `INSERTED_COLUMNS`."""
    outcome = labels.outcome(computed)
    return (*computed, labels.task_id, labels.arms, labels.final_reward, outcome)


def _start(one: Totals) -> int:
    return one.start_time or 0


def _update(store: Store, labels: Mapping[str, Labels]) -> None:
    """Bring task, arms and rewards up to date where the calls of a rollout stayed as they were."""
    rows = _table(
        [(one, *own_labels) for one, own_labels in labels.items()], ("rollout_id", *Labels._fields)
    )
    store.pick(rows, statement(__package__, "update_rollouts"))


def _table(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> pa.Table:
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return pa.table({name: pa.array(values, TYPES.get(name)) for name, values in columns})
