"""Labels of rollouts: their task, arms and rewards, the other part of a row of `rollout_rows`.

They may come from other traces than the calls, or from log records without a trace, so they are
looked up by rollout.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from otel_lightning.collector.refresh.rollouts.totals import Totals
from otel_lightning.collector.store import Store, statement


class Labels(NamedTuple):
    """The task, the arms and the last reward of one rollout."""

    task_id: str | None = None
    arms: list[str] | None = None
    """Each as `key=arm`, sorted."""
    final_reward: float | None = None
    """The value of the last reward."""
    judged_time: int | None = None
    """The time of the last reward with a value, in Unix nanoseconds."""
    is_judged: bool = False
    """Whether any reward has a value."""

    def outcome(self, of: Totals) -> str:
        """Return the outcome of the rollout with these totals.

        A reward after the last call tells that the rollout has ended. One without a time counts
        too.
        """
        judged, end = self.judged_time, of.end_time
        is_over = judged is None or end is None or judged >= end
        return "terminated" if of.ended == "open" and self.is_judged and is_over else of.ended


NO_LABELS = Labels()


class _Reward(NamedTuple):
    """A reward of a rollout; the columns of `sql/rewards_of.sql` and `sql/placed_of.sql`."""

    rollout_id: str
    reward_id: str
    value: float | None
    time_ns: int | None
    task_id: str | None


def stored_kinds(store: Store) -> set[str]:
    """Return the kinds of labels that the store has: see `sql/stored_kinds.sql`.

    Most stores lack some of them, and to ask for that is cheaper than a search.
    """
    return set(store.column(statement(__package__, "stored_kinds")))


def look_up_labels(
    store: Store, rollout_ids: Collection[str], kinds: Collection[str]
) -> dict[str, Labels]:
    """Return the labels of rollouts; those without any are left out.

    Args:
        store: A direct store.
        rollout_ids: Ids of the rollouts.
        kinds: The kinds of labels that the store has.
    """
    ids = pa.table({"rollout_id": pa.array(rollout_ids, pa.string())})
    pairs_by_kind = {
        kind: tuples(store.pick(ids, statement(__package__, f"{kind}_of")))
        for kind in ("tasks", "arms", "rewards", "placed")
        if kind in kinds and rollout_ids
    }
    rewards: dict[str, list[_Reward]] = defaultdict(list)
    for one in map(
        _Reward._make, (*pairs_by_kind.get("rewards", ()), *pairs_by_kind.get("placed", ()))
    ):
        rewards[one.rollout_id].append(one)
    return _joined(
        dict(pairs_by_kind.get("tasks", ())), dict(pairs_by_kind.get("arms", ())), rewards
    )


def tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table as tuples of Python's values."""
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _joined(
    tasks: Mapping[str, str], arms: Mapping[str, list[str]], rewards: Mapping[str, list[_Reward]]
) -> dict[str, Labels]:
    return {
        rollout_id: _labels(
            tasks.get(rollout_id), arms.get(rollout_id), rewards.get(rollout_id, [])
        )
        for rollout_id in {*tasks, *arms, *rewards}
    }


def _labels(task_id: str | None, arms: list[str] | None, rewards: list[_Reward]) -> Labels:
    if task_id is None:
        tasks = [one.task_id for one in rewards if one.task_id is not None]
        task_id = min(tasks, default=None)
    values = [one for one in rewards if one.value is not None]
    # The last reward counts and, of several at one time, the one with the greatest id: so the order
    # in which they came has no effect.
    timed = [(one.time_ns, one.reward_id, one.value) for one in values if one.time_ns is not None]
    last_ns, _, last = max(timed, default=(None, None, None))
    return Labels(task_id, arms, last, last_ns, is_judged=bool(values))
