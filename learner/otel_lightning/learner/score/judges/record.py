"""Read rollouts from the store, to be judged."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from otel_lightning.collector.store import Store, StoreLike, opened, statement
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.judges.conversation import Row, Turn, conversation
from otel_lightning.learner.score.judges.presentation import present


@dataclass(frozen=True, slots=True)
class Record:
    """One rollout, or only the calls of the selected agents in it."""

    rollout_id: str
    trace_id: str
    span_id: str
    """Span id of the last call in the record."""
    turns: tuple[Turn, ...]
    tools: tuple[Mapping[str, Any], ...]
    """The tools of the agent: name, description and parameters of each."""
    text: str
    """The conversation as a judge reads it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rollouts to judge, and how many characters of each to show."""

    agents: tuple[str, ...] = ()
    """Names or patterns of the agents to judge; an empty tuple means all."""
    limit: int | None = None
    max_characters: int = 60_000

    def takes(self, agent: str | None) -> bool:
        """Return whether the calls of an agent are in the record."""
        return not self.agents or any(fnmatchcase(agent or "", name) for name in self.agents)


def list_rollouts(store: StoreLike, selection: Selection) -> tuple[list[str], int]:
    """List the rollouts that can be judged, newest first.

    Returns:
        The ids of the rollouts, and the number of further rollouts without text.

    Raises:
        DataError: If no rollout has text, or no agent has a selected name.
    """
    with opened(store, read_only=True) as db:
        rows = _ask(db, "rollouts", ())
    chosen = [row for row in rows if any(map(selection.takes, row["agents"] or [None]))]
    if rows and not chosen:
        known = sorted({agent for row in rows for agent in row["agents"] if agent})
        raise DataError(
            f"No agent is named '{', '.join(selection.agents)}'. Known: {', '.join(known)}."
        )
    with_text = [row["rollout_id"] for row in chosen if row["has_text"]]
    if not with_text:
        if not rows:
            raise DataError(
                "The store has no rollout, so there is nothing to judge. Send traces of model "
                "calls to `lightning-ingest`, then run this again."
            )
        raise DataError(
            f"None of {number_of(len(chosen), 'rollout')} in '{store}' has messages, so there is "
            "nothing to judge. Let the instrumentation record content."
        )
    return with_text[: selection.limit], len(chosen) - len(with_text)


def read_records(store: StoreLike, rollouts: Sequence[str], selection: Selection) -> list[Record]:
    """Read some rollouts with their text; a store given as a path is open only while reading."""
    with opened(store, read_only=True) as db:
        calls = _by_rollout(_ask(db, "calls", rollouts))
        tools = _by_rollout(_ask(db, "tools", rollouts))
    shown = (
        (rollout, [call for call in calls[rollout] if selection.takes(call["agent_name"])])
        for rollout in rollouts
    )
    return [
        make_record(some, tools[rollout], selection.max_characters)
        for rollout, some in shown
        if some
    ]


def make_record(calls: Sequence[Row], tools: Sequence[Row], max_characters: int) -> Record:
    """Build the record of one rollout from its calls, which are in the order of their steps."""
    # None: tools of the rollout that belong to no model call.
    own = {call["span_id"] for call in calls} | {None}
    turns = conversation(calls, [tool for tool in tools if tool["llm_span_id"] in own])
    definitions = _definitions(calls)
    last = calls[-1]
    return Record(
        rollout_id=last["rollout_id"],
        trace_id=last["trace_id"],
        span_id=last["span_id"],
        turns=tuple(turns),
        tools=definitions,
        text=present(turns, definitions, max_characters),
    )


def _definitions(calls: Iterable[Row]) -> tuple[Mapping[str, Any], ...]:
    listed = [tool for call in calls for tool in json.loads(call["tool_definitions"] or "[]")]
    tools = [tool.get("function") or tool for tool in listed if isinstance(tool, dict)]
    # Every call repeats the definitions: each different one is kept once, in the order of its first
    # use.
    return tuple({json.dumps(tool, sort_keys=True): tool for tool in tools}.values())


def _ask(store: Store, name: str, rollouts: Sequence[str]) -> list[dict[str, Any]]:
    return store.rows(statement(__package__, name, rollouts=rollouts))


def _by_rollout(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    grouped = defaultdict(list)
    for row in rows:
        grouped[row["rollout_id"]].append(row)
    return grouped
