"""Parsed rows by trace, and copies of them."""

from collections.abc import Callable, Collection
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from otel_lightning.collector.derive.parse import BY_SPAN, LISTS, ParsedRows
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Arm,
    LlmCall,
    Retrieval,
    Reward,
    ToolCall,
)

R = TypeVar("R")


def share_out(parsed: ParsedRows, own: dict[str, ParsedRows]) -> None:
    """Add each row of `parsed` to the rows of its trace, if it is one of `own`."""
    for name in LISTS:
        for row in getattr(parsed, name):
            if row.trace_id in own:
                getattr(own[row.trace_id], name).append(row)
    for name in BY_SPAN:
        for place, value in getattr(parsed, name).items():
            if place[0] in own:
                getattr(own[place[0]], name)[place] = value
    for reward_id, trace_id in parsed.sources.items():
        if trace_id in own:
            own[trace_id].rewards[reward_id] = parsed.rewards[reward_id]
            own[trace_id].sources[reward_id] = trace_id


def copied(parsed: ParsedRows) -> ParsedRows:
    """Copy parsed rows: `assemble_rows` changes the rows that it is given in place."""
    return ParsedRows(
        nodes=dict(parsed.nodes),
        rollout_ids=dict(parsed.rollout_ids),
        conversation_ids=dict(parsed.conversation_ids),
        task_ids=dict(parsed.task_ids),
        messages=dict(parsed.messages),
        calls=_copies(LlmCall, parsed.calls),
        tools=_copies(ToolCall, parsed.tools),
        requests=_copies(ToolCall, parsed.requests),
        agents=_copies(AgentRun, parsed.agents),
        retrievals=_copies(Retrieval, parsed.retrievals),
        rewards=dict(zip(parsed.rewards, _copies(Reward, parsed.rewards.values()), strict=True)),
        sources=dict(parsed.sources),
        arms=_copies(Arm, parsed.arms),
        unread=dict(parsed.unread),
    )


def _values(row: type) -> Callable[[object], tuple[Any, ...]]:
    return attrgetter(*(each.name for each in fields(row)))


_VALUES: dict[type, Callable[[object], tuple[Any, ...]]] = {
    row: _values(row) for row in (LlmCall, ToolCall, AgentRun, Retrieval, Reward, Arm)
}


def _copies(kind: type[R], rows: Collection[R]) -> list[R]:
    return [kind(*values) for values in map(_VALUES[kind], rows)] if rows else []
