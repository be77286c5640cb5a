"""Parsed rows by trace, and copies of them."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from otel_lightning.collector.derive.parse import BY_SPAN, Reading
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Arm,
    LlmCall,
    Retrieval,
    Reward,
    ToolCall,
)

R = TypeVar("R")


def share_out(found: Reading, own: dict[str, Reading]) -> None:
    """Add each row of `found` to the reading of its trace, if it is one of `own`."""
    for name in ("calls", "tools", "requests", "agents", "retrievals", "arms"):
        for row in getattr(found, name):
            if row.trace_id in own:
                getattr(own[row.trace_id], name).append(row)
    for name in BY_SPAN:
        for place, value in getattr(found, name).items():
            if place[0] in own:
                getattr(own[place[0]], name)[place] = value
    for reward_id, trace_id in found.sources.items():
        if trace_id in own:
            own[trace_id].rewards[reward_id] = found.rewards[reward_id]
            own[trace_id].sources[reward_id] = trace_id


def copied(found: Reading) -> Reading:
    """Copy a reading and its rows: `put_together` changes the rows that it is given in place."""
    return Reading(
        nodes=dict(found.nodes),
        rollout_ids=dict(found.rollout_ids),
        conversation_ids=dict(found.conversation_ids),
        task_ids=dict(found.task_ids),
        calls=_copies(LlmCall, found.calls),
        tools=_copies(ToolCall, found.tools),
        requests=_copies(ToolCall, found.requests),
        agents=_copies(AgentRun, found.agents),
        retrievals=_copies(Retrieval, found.retrievals),
        rewards=dict(zip(found.rewards, _copies(Reward, found.rewards.values()), strict=True)),
        sources=dict(found.sources),
        arms=_copies(Arm, found.arms),
        unread=dict(found.unread),
    )


def _values(row: type) -> Callable[[object], tuple[Any, ...]]:
    return attrgetter(*(each.name for each in fields(row)))


_VALUES: dict[type, Callable[[object], tuple[Any, ...]]] = {
    row: _values(row) for row in (LlmCall, ToolCall, AgentRun, Retrieval, Reward, Arm)
}


def _copies(kind: type[R], rows: Iterable[R]) -> list[R]:
    return [kind(*values) for values in map(_VALUES[kind], rows)]
