"""How large the rollouts of a batch are, which decides how often they are derived again."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from otel_lightning.collector.derive.rows import AgentRun, Derived, LlmCall, ToolCall


class Size(NamedTuple):
    """Number of model calls of a rollout, and of the spans of its traces."""

    calls: int
    spans: int


@dataclass(slots=True)
class Counts:
    """Model calls and spans of some traces."""

    spans: dict[str, int]
    """Number of spans of each trace."""
    rollout_of: dict[str, str]
    """One rollout of each trace that has any."""
    calls: Counter[tuple[str, str]]
    """Number of model calls by (trace, rollout)."""

    @classmethod
    def of(cls, derived: Derived, spans: Mapping[str, int]) -> "Counts":
        """Count the calls of derived rows; `spans` has the number of spans of each trace."""
        rows: list[ToolCall | AgentRun | LlmCall]
        rows = [*derived.tool_calls, *derived.agent_runs, *derived.llm_calls]
        rollout_of = {row.trace_id or "": row.rollout_id for row in rows if row.rollout_id}
        calls = Counter((call.trace_id, call.rollout_id or "") for call in derived.llm_calls)
        return cls(dict(spans), rollout_of, calls)

    def leave_out(self, traces: Collection[str]) -> None:
        """Count these traces no longer."""
        for trace_id in traces:
            self.spans.pop(trace_id, None)
        self.calls = Counter({
            place: count for place, count in self.calls.items() if place[0] not in traces
        })  # fmt: skip


def sizes(counts: Iterable[Counts]) -> dict[str, Size]:
    """Return the size of each rollout, and by its id of each trace without one.

    The spans of a trace of several rollouts count for one of them.
    """
    spans, calls = Counter[str](), Counter[str]()
    for one in counts:
        for trace_id, count in one.spans.items():
            spans[one.rollout_of.get(trace_id, trace_id)] += count
        for (_, rollout_id), count in one.calls.items():
            calls[rollout_id] += count
    return {name: Size(calls[name], spans[name]) for name in spans | calls}
