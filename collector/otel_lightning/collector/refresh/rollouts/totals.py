"""The part of a row of `rollout_rows` that comes from calls, tools and agents."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

CUT_SHORT = {"length", "content_filter", "error"}
"""Finish reasons of a last call that tell that the rollout was truncated."""
LARGEST = 2**63 - 1
"""The largest number that a column of type BIGINT holds."""


class Calls(NamedTuple):
    """The columns of `llm_calls` that are read; times in Unix nanoseconds."""

    rollout_id: Sequence[str | None]
    trace_id: Sequence[str]
    step: Sequence[int | None]
    service_name: Sequence[str | None]
    agent_name: Sequence[str | None]
    response_model: Sequence[str | None]
    request_model: Sequence[str | None]
    start_time: Sequence[int | None]
    end_time: Sequence[int | None]
    input_tokens: Sequence[int | None]
    output_tokens: Sequence[int | None]
    finish_reason: Sequence[str | None]
    error_type: Sequence[str | None]


class Tools(NamedTuple):
    """The columns of `tool_calls` that are read."""

    rollout_id: Sequence[str | None]
    error_type: Sequence[str | None]


class Agents(NamedTuple):
    """The columns of `agent_runs` that are read."""

    rollout_id: Sequence[str | None]
    parent_span_id: Sequence[str | None]
    end_time: Sequence[int | None]


class Totals(NamedTuple):
    """The columns of `rollout_rows` that are computed here, for one rollout."""

    rollout_id: str
    trace_id: str | None
    service_name: str | None
    agent_name: str | None
    model: str | None
    start_time: int | None
    end_time: int | None
    llm_calls: int
    tool_calls: int
    failed_calls: int
    failed_tools: int
    input_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    ended: str
    """The outcome as the calls and agents alone tell it."""


TOTALED_COLUMNS = {
    "llm_calls": Calls._fields,
    "tool_calls": Tools._fields,
    "agent_runs": Agents._fields,
}
"""The columns of derived tables that are added up."""
TABLE = "rollout_totals"
"""The name of the table that `as_table` returns, beside those of the derived tables."""
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in Totals._fields[:5]),
        *((name, pa.int64()) for name in Totals._fields[5:13]),
        *((name, pa.string()) for name in Totals._fields[13:]),
    ]
)


def totals_of(rows: Mapping[str, Sequence[pa.Table]]) -> list[Totals]:
    """Compute the totals of each rollout that has calls from `TOTALED_COLUMNS`."""
    calls, tools, agents = (
        _columns(rows[table], named) for table, named in TOTALED_COLUMNS.items()
    )
    return totals(Calls(*calls), Tools(*tools), Agents(*agents))


def as_table(all_totals: Sequence[Totals]) -> pa.Table:
    """Return totals as a table, in which one process sends them to another."""
    if not all_totals:
        return _SCHEMA.empty_table()
    columns = zip(zip(*all_totals, strict=True), _SCHEMA.types, strict=True)
    return pa.Table.from_arrays([pa.array(*one) for one in columns], schema=_SCHEMA)


def of_table(rows: pa.Table) -> list[Totals]:
    """Return the totals that `as_table` made a table of."""
    return [Totals(*row) for row in zip(*(one.to_pylist() for one in rows.columns), strict=True)]


def totals(calls: Calls, tools: Tools, agents: Agents) -> list[Totals]:
    """Compute the totals of each rollout that has calls.

    Args:
        calls: All calls of these rollouts, in any order.
        tools: All their tool calls.
        agents: All their agent runs.
    """
    by_rollout: dict[str, list[Any]] = defaultdict(list)
    for call in zip(*calls, strict=True):
        if call[0] is not None:
            by_rollout[call[0]].append(call)
    ran = Counter(tools.rollout_id)
    failed = Counter(one for one, error in zip(*tools, strict=True) if error is not None)
    roots = _root_ends(agents)
    return [
        _of_calls(
            rollout_id, some, _OtherRows(ran[rollout_id], failed[rollout_id], roots.get(rollout_id))
        )
        for rollout_id, some in by_rollout.items()
    ]


class _OtherRows(NamedTuple):
    """Numbers of a rollout beside those of its calls."""

    tools: int
    failed_tools: int
    root_end: int | None
    """The end of its last agent without a parent, in Unix nanoseconds."""


def _root_ends(agents: Agents) -> dict[str | None, int]:
    """Return the end of the last agent without a parent, by rollout."""
    ends: dict[str | None, int] = {}
    for rollout_id, parent, end in zip(*agents, strict=True):
        if parent is None and end is not None:
            ends[rollout_id] = max(end, ends.get(rollout_id, end))
    return ends


def _of_calls(rollout_id: str, rows: list[Any], other_rows: _OtherRows) -> Totals:
    rows.sort(key=_step)
    calls = Calls(*zip(*rows, strict=True))
    # An embedding is no step: it has none, and comes last.
    steps = len(rows) - calls.step.count(None)
    models = zip(calls.response_model[:steps], calls.request_model[:steps], strict=True)
    end = max(_known(calls.end_time), default=None)
    # Also if it is NULL: an earlier call may have a reason.
    finish_reason = calls.finish_reason[steps - 1] if steps else None
    has_failed = steps > 0 and calls.error_type[steps - 1] is not None
    return Totals(
        rollout_id=rollout_id,
        trace_id=calls.trace_id[0] if steps else None,
        service_name=min(_known(calls.service_name), default=None),
        agent_name=next(_known(calls.agent_name[:steps]), None),
        model=next(_known(other if own is None else own for own, other in models), None),
        start_time=min(_known(calls.start_time), default=None),
        end_time=end,
        llm_calls=steps,
        tool_calls=other_rows.tools,
        failed_calls=len(rows) - calls.error_type.count(None),
        failed_tools=other_rows.failed_tools,
        input_tokens=_sum(calls.input_tokens),
        output_tokens=_sum(calls.output_tokens),
        finish_reason=finish_reason,
        ended=_ended(finish_reason, end, other_rows.root_end, has_failed=has_failed),
    )


def _step(row: Any) -> tuple[bool, int]:
    return row[2] is None, row[2] or 0


def _known(values: Iterable[Any]) -> Any:
    return (value for value in values if value is not None)


def _sum(values: Sequence[int | None]) -> int | None:
    """Sum up the known values; None if none is known.

    A sum that the column cannot hold is no true count: it becomes None, and no error.
    """
    known_values = list(_known(values))
    total = sum(known_values)
    return total if known_values and abs(total) <= LARGEST else None


def _ended(
    finish_reason: str | None, end: int | None, root_end: int | None, *, has_failed: bool
) -> str:
    if has_failed or finish_reason in CUT_SHORT:
        return "truncated"
    # The agent's own span ended after the last call, so the agent returned.
    has_returned = root_end is not None and end is not None and root_end >= end
    return "terminated" if has_returned or finish_reason == "stop" else "open"


def _columns(parts: Sequence[pa.Table], named: Sequence[str]) -> list[list[Any]]:
    """Return columns of rows as lists, times as Unix nanoseconds."""
    if not parts:
        return [[] for _ in named]
    rows = pa.concat_tables(parts)
    return [_list(rows[name]) for name in named]


def _list(column: pa.ChunkedArray) -> list[Any]:
    # Arrow makes an object of pandas of a time in nanoseconds.
    is_time = pa.types.is_timestamp(column.type)
    values: list[Any] = (column.cast(pa.int64()) if is_time else column).to_pylist()
    return values
