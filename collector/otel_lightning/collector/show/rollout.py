"""Read one rollout: its steps with the new messages of each, tools, rewards and credit."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from otel_lightning.collector.show.conversation import ShownMessages, parts_of, read_messages
from otel_lightning.collector.show.facts import (
    Credit,
    Judgement,
    Retrieval,
    Row,
    Tool,
    read_retrieval,
    read_tool,
    seconds_between,
)
from otel_lightning.collector.store import Sql, Store, StoreError, StoreLike, opened, statement

MARGIN_NS = 60 * 10**9
"""Tools that start longer than this before or after the model calls are looked for everywhere."""

EVER = Sql("TRUE")


@dataclass(frozen=True, slots=True)
class Step:
    """One model call of a rollout."""

    step: int
    trace_id: str
    span_id: str
    agent_name: str | None
    model: str | None
    start_ns: int | None
    seconds: float | None
    finish_reason: str | None
    error_type: str | None
    error_message: str | None
    content: str | None
    input_tokens: int | None
    output_tokens: int | None
    state_hash: str | None
    logprob_mean: float | None
    logprob_least: float | None
    arm: str | None
    propensity: float | None
    earlier_messages: int
    """Number of input messages that an earlier step has shown."""
    new_messages: list[dict[str, Any]]
    answer: list[dict[str, Any]]
    retrievals: list[Retrieval]
    """Look-ups of documents that this call used."""
    tools: list[Tool]
    rewards: list[Judgement]
    credit: Credit | None


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout with the steps that were asked for."""

    rollout_id: str
    trace_id: str
    task_id: str | None
    service_name: str | None
    agent_name: str | None
    model: str | None
    start_ns: int | None
    end_ns: int | None
    llm_calls: int
    tool_calls: int
    errors: int
    input_tokens: int | None
    output_tokens: int | None
    arms: list[str]
    outcome: str
    final_reward: float | None
    excluded: str | None
    """Why no transitions were built; it says so if the command has not seen this rollout."""
    advantages: list[float | None]
    """The advantage of each step that has a transition."""
    rewards: list[Judgement]
    """The rewards of the whole rollout."""
    tools: list[Tool]
    """Tool calls that no step asked for."""
    retrievals: list[Retrieval]
    """Look-ups of documents that no step used."""
    steps: list[Step]

    @property
    def seconds(self) -> float | None:
        """From the start of the first call to the end of the last one."""
        return seconds_between(self.start_ns, self.end_ns)

    @property
    def split(self) -> str | None:
        """`train` or `heldout`, if transitions were built."""
        return next((step.credit.split for step in self.steps if step.credit), None)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """Show the conversation in a notebook."""
        from otel_lightning.collector.show.html import as_html

        return as_html(self)


@dataclass(frozen=True, slots=True)
class Window:
    """Which steps to read, and how much of each."""

    first: int = 0
    last: int | None = None
    """Last step, inclusive; None reads to the end."""
    only_errors: bool = False
    whole_history: bool = False
    """Show all input messages of each step, not only the new ones."""

    @property
    def is_whole(self) -> bool:
        """Whether every step is inside."""
        return self.first == 0 and self.last is None and not self.only_errors

    def holds(self, step: int) -> bool:
        """Return whether a step is inside."""
        return self.first <= step and (self.last is None or step <= self.last)


ALL = Window()


@dataclass(slots=True)
class _Details:
    """The facts of a rollout that are not in its calls, by the span of a call or by step."""

    tools: dict[str | None, list[Tool]] = field(default_factory=lambda: defaultdict(list))
    retrievals: dict[str | None, list[Retrieval]] = field(default_factory=lambda: defaultdict(list))
    rewards: dict[str | None, list[Judgement]] = field(default_factory=lambda: defaultdict(list))
    credit: dict[int, Row] = field(default_factory=dict)
    flags: dict[str | None, list[Row]] = field(default_factory=lambda: defaultdict(list))
    excluded: str | None = None


def read_rollout(store: StoreLike, rollout: str, window: Window = ALL) -> Rollout:
    """Read a rollout by its id.

    Args:
        store: A store or its path.
        rollout: The whole id; `find_rollout` finds it by less.
        window: The steps to read.

    Raises:
        StoreError: If there is no such rollout.
    """
    with opened(store, read_only=True) as direct:
        rows = _ask(direct, "summary", rollout=rollout)
        if not rows:
            raise StoreError(f"No rollout '{rollout}'. List them with: FROM rollouts")
        summary = rows[0]
        calls = _read_calls(direct, rollout, _during_calls(direct, summary), window)
        details = _read_details(direct, summary, calls, window)
    steps = [step for step in _steps(calls, details, window) if window.holds(step.step)]
    own = ("rollout_id", "trace_id", "task_id", "service_name", "agent_name", "model", "start_ns",
           "end_ns", "llm_calls", "tool_calls", "input_tokens", "output_tokens", "outcome",
           "final_reward")  # fmt: skip
    return Rollout(
        **{name: summary[name] for name in own},
        errors=summary["failed_calls"] + summary["failed_tools"],
        arms=summary["arms"] or [],
        excluded=details.excluded,
        advantages=[row["advantage"] for row in details.credit.values()],
        rewards=details.rewards[None],
        tools=details.tools[None] if window.is_whole else [],
        retrievals=details.retrievals[None] if window.is_whole else [],
        steps=steps,
    )


def _read_calls(store: Store, rollout: str, during: Sql, window: Window) -> list[Row]:
    """Read the calls of a window, and before them the last earlier call of each agent."""
    of_rollout = {"rollout": rollout, "during": during}
    if window.only_errors:
        failed = [row["step"] for row in _ask(store, "failed_steps", **of_rollout)]
        failed_in_window = [step for step in failed if window.holds(step)]
        # The step before shows which messages are new.
        steps = sorted({*failed_in_window, *(step - 1 for step in failed_in_window)})
        return _mark_wanted(
            _ask(store, "steps", **of_rollout, chosen=_among(steps)), set(failed_in_window)
        )
    chosen = Sql(
        f"step >= {window.first}" + ("" if window.last is None else f" AND step <= {window.last}")
    )
    calls: list[Row] = [*_ask(store, "steps", **of_rollout, chosen=chosen)]
    if window.first:
        # A window needs to know what was shown before it. The last earlier call of an agent repeats
        # its conversation, so these calls are enough.
        seeds = [row["step"] for row in _ask(store, "seeds", **of_rollout, first=window.first)]
        calls = [*_ask(store, "steps", **of_rollout, chosen=_among(seeds)), *calls]
    return calls


def _mark_wanted(calls: Iterable[Row], failed: set[int]) -> list[Row]:
    return [{**call, "is_context": call["step"] not in failed} for call in calls]


def _among(steps: Iterable[int]) -> Sql:
    return Sql(f"step IN ({', '.join(map(str, steps)) or 'NULL'})")


def _during_calls(store: Store, summary: Row) -> Sql:
    """Return the condition on the times of a rollout's calls, by which DuckDB skips all others."""
    untimed = _ask(store, "untimed", rollout=summary["rollout_id"])
    return EVER if untimed else _during(summary, 0)


def _during(summary: Row, margin_ns: int) -> Sql:
    if summary["start_ns"] is None:
        return EVER
    first, last = summary["start_ns"] - margin_ns, (summary["end_ns"] or 0) + margin_ns
    last = max(first, last)
    return Sql(f"start_time BETWEEN make_timestamp_ns({first}) AND make_timestamp_ns({last})")


def _read_tools(store: Store, summary: Row) -> list[dict[str, Any]]:
    """Read all tool calls: first those in the rollout's time, and if some are missing, all."""
    # The first search skips most of the table. The second is needed only for tools that ran long
    # before or after the calls.
    for during in (_during(summary, MARGIN_NS), EVER):
        rows = _ask(store, "tools", rollout=summary["rollout_id"], during=during)
        if len(rows) >= summary["tool_calls"]:
            break
    return rows


def _read_details(store: Store, summary: Row, calls: Sequence[Row], window: Window) -> _Details:
    rollout = summary["rollout_id"]
    details = _Details()
    by_span: dict[str, str | None] = _calls_by_span(calls)
    starts = [(call["start_ns"] or 0, call["span_id"]) for call in calls]
    for row in _read_tools(store, summary):
        asker = row["llm_span_id"] or _call_before(starts, row["start_ns"])
        details.tools[asker].append(read_tool(row))
        if row["span_id"]:
            # A reward may name the span of a tool: it is shown with the call that asked for the
            # tool.
            by_span.setdefault(row["span_id"], asker)
    for row in _ask(store, "retrievals", rollout=rollout, during=_during(summary, MARGIN_NS)):
        details.retrievals[by_span.get(row["llm_span_id"])].append(read_retrieval(row))
    for row in _ask(store, "rewards", rollout=rollout):
        span = row.pop("span_id")
        # A span that is no call's is an agent's, or one of a step that was not read.
        if span is None or span in by_span or window.is_whole:
            details.rewards[by_span.get(span)].append(Judgement(**row))
    for row in _ask(store, "flags", rollout=rollout):
        details.flags[row["span_id"]].append(row)
    transitions = _ask(store, "made", rollout=rollout)
    if not transitions:
        details.excluded = "not built yet (`lightning-learn transitions` builds them)"
    elif transitions[0]["excluded"]:
        details.excluded = transitions[0]["excluded"]
    else:
        credit = _ask(store, "credit", rollout=rollout, task_hash=transitions[0]["task_hash"])
        details.credit = {row["step"]: row for row in credit}
    return details


def _calls_by_span(calls: Iterable[Row]) -> dict[str, str | None]:
    """Return the span of the call for each span that was merged into it, and for its own."""
    calls_by_span: dict[str, str | None] = {}
    for call in calls:
        for span in (call["span_id"], *(call["merged_span_ids"] or ())):
            calls_by_span[span] = call["span_id"]
    return calls_by_span


def _call_before(starts: Sequence[tuple[int, str]], time_ns: int | None) -> str | None:
    if time_ns is None:
        return None
    # U+FFFF sorts after every span id, so a call that began at the same time counts as earlier.
    index = bisect_right(starts, (time_ns, "￿"))
    return starts[index - 1][1] if index else None


class _StepMessages(NamedTuple):
    """The messages of a call: number of earlier ones, the new ones, the answer."""

    earlier: int
    new: list[dict[str, Any]]
    answer: list[dict[str, Any]]


def _steps(calls: Iterable[Row], details: _Details, window: Window) -> list[Step]:
    memory = ShownMessages()
    answered: set[str] = set()
    steps = []
    for call in calls:
        memory.begin_call()
        messages = read_messages(call["input_messages"])
        fresh = [message for message in messages if memory.is_new(message)]
        answer = read_messages(call["output_messages"])
        # The next call sends this answer back as a message, which is then not new. Of several
        # answers (n > 1) the first is taken for the one that is sent back.
        for message in answer[:1]:
            memory.is_new(message)
        tools = details.tools[call["span_id"]]
        new = messages if window.whole_history else _without(fresh, answered)
        answered |= {tool.tool_call_id for tool in tools if tool.tool_call_id and _has_result(tool)}
        if not call.get("is_context"):
            earlier = 0 if window.whole_history else len(messages) - len(fresh)
            steps.append(_step(call, details, _StepMessages(earlier, new, answer)))
    return steps


def _step(call: Row, details: _Details, messages: _StepMessages) -> Step:
    row = details.credit.get(call["step"])
    flag = next(iter(details.flags[call["span_id"]]), None)
    own = ("step", "trace_id", "span_id", "agent_name", "model", "start_ns", "finish_reason",
           "error_type", "error_message", "content", "input_tokens", "output_tokens", "state_hash",
           "logprob_mean", "logprob_least")  # fmt: skip
    learned = ("split", "reward", "return_to_go", "advantage")
    arm = f"{row['arm_key']}={row['arm']}" if row and row["arm"] else None
    return Step(
        **{name: call[name] for name in own},
        seconds=seconds_between(call["start_ns"], call["end_ns"]),
        arm=arm or (f"{flag['key']}={flag['arm']}" if flag else None),
        propensity=row["propensity"] if row and row["arm"] else (flag or {}).get("propensity"),
        earlier_messages=messages.earlier,
        new_messages=messages.new,
        answer=messages.answer,
        retrievals=details.retrievals[call["span_id"]],
        tools=details.tools[call["span_id"]],
        rewards=details.rewards[call["span_id"]],
        credit=Credit(**{name: row[name] for name in learned}) if row else None,
    )


def _without(messages: Iterable[dict[str, Any]], texts: set[str]) -> list[dict[str, Any]]:
    """Leave out tool results that are shown beside the call that asked for them."""
    remaining = []
    for message in messages:
        results = parts_of([message], "tool_call_response")
        parts = [
            part
            for part in message.get("parts") or ()
            if part not in results or part.get("id") not in texts
        ]
        if parts or not message.get("parts"):
            remaining.append({**message, "parts": parts})
    return remaining


def _has_result(tool: Tool) -> bool:
    return tool.result is not None or tool.error_type is not None


def _ask(store: Store, name: str, **values: Any) -> list[dict[str, Any]]:
    return store.rows(statement(__package__, name, **values))
