"""Whatever arrives in whatever order, an incremental build gives the same rows as a rebuild."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.transitions.make import Settings, make_transitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Traces

LATER = datetime(2026, 11, 1, minute=2)  # noqa: DTZ001 - the store's UTC has no zone

CREDITS = ("identical", "group+tool_outcome", "group+anchor_state")
ROLLOUTS = ("a", "b", "c")
Arrival = tuple[str, str, int, int]
"""What arrives, in which rollout, a number of what it is about, and a value."""

arrival = st.tuples(
    st.sampled_from((
        "call", "merged call", "failed call", "tool", "tool reward", "call reward", "reward",
        "other reward", "late reward", "response reward", "trace reward", "task", "agent",
        "forgotten call", "found asker", "arm",
    )),
    st.sampled_from(ROLLOUTS),
    st.integers(0, 2),
    st.integers(0, 3),
)  # fmt: skip


class Arriving:
    """Writes arrivals into a store the way the collector would; each thing arrives once."""

    def __init__(self, traces: "Traces") -> None:
        self.traces = traces
        self.there: set[Any] = set()
        self.numbers = 0
        for rollout in ROLLOUTS:
            traces.call(rollout, 0)
            self.there.add(("call", rollout, 0))

    def arrive(self, some: "Sequence[Arrival]") -> None:
        for kind, rollout, number, value in some:
            self.numbers += 1
            self._one(kind, rollout, number, value)

    def _one(self, kind: str, rollout: str, number: int, value: int) -> None:
        traces, span = self.traces, f"{rollout}.{number}"
        later = LATER + timedelta(seconds=self.numbers)
        rewards: dict[str, dict[str, Any]] = {
            "tool reward": {
                "span_id": f"tool-of-{span}",
                "trace_id": rollout,
                "rollout_id": None,
                "source": "log",
            },
            "call reward": {"span_id": span, "trace_id": rollout, "rollout_id": None},
            "reward": {},
            "other reward": {"name": "tone"},
            "late reward": {"time": later},
            "response reward": {"response_id": f"response-{span}", "rollout_id": None},
            "trace reward": {"trace_id": rollout, "rollout_id": None, "source": "span"},
        }
        if kind in rewards:
            columns = {"reward_id": f"r{self.numbers}", "name": f"n{value}"} | rewards[kind]
            traces.reward(rollout, float(value), **columns)
        elif kind.endswith("call") and kind != "forgotten call":
            if ("call", rollout, number) not in self.there:
                self.there.add(("call", rollout, number))
                failed = {"output_messages": None, "error_type": "timeout"}
                merged = {"merged_span_ids": [f"tool-of-{span}"]}
                more = {"failed call": failed, "merged call": merged}.get(kind, {})
                traces.call(rollout, number, **more)
        elif kind == "tool" and ("tool", span) not in self.there:
            self.there.add(("tool", span))
            asker = {} if value else {"llm_span_id": None}
            error = "timeout" if value == 1 else None
            named = {"span_id": f"tool-of-{span}", "error_type": error}
            traces.tool(rollout, "lookup", step=number, **named, **asker)
        elif kind == "task" and ("task", rollout) not in self.there:
            self.there.add(("task", rollout))
            traces.task(rollout, f"task-{value}")
        elif kind == "agent" and ("agent", rollout) not in self.there:
            self.there.add(("agent", rollout))
            traces.agent(rollout, "desk", 0, number)
        elif kind == "arm":
            traces.arm(rollout, f"arm-{value}", 0.5, time=later)
        else:
            self._change(kind, rollout, number, span)

    def _change(self, kind: str, rollout: str, number: int, span: str) -> None:
        self.traces.store()
        if kind == "forgotten call" and number:
            self.there.discard(("call", rollout, number))
            self.traces.ask(f"DELETE FROM llm_calls WHERE span_id = '{span}'")
        if kind == "found asker":
            self.traces.ask(
                f"UPDATE tool_calls SET llm_span_id = '{span}' WHERE span_id = 'tool-of-{span}'"
            )


def rows(traces: "Traces") -> list[dict[str, Any]]:
    return traces.ask("SELECT * FROM transition_rows ORDER BY rollout_id, step, span_id")


def known(traces: "Traces") -> list[dict[str, Any]]:
    return traces.ask("SELECT * FROM transition_rollouts ORDER BY rollout_id")


def built(traces: "Traces", credit: str, *, rebuild: bool) -> bool:
    """Build; say whether there was a reward to build from."""
    try:
        make_transitions(traces.store(), Settings(credit=credit), rebuild=rebuild)
    except DataError as error:
        expected = ("No reward was received", "No rollout in the store", "without a recorded model")
        if any(one in str(error) for one in expected):
            return False
        raise
    return True


@pytest.mark.slow
@settings(
    examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    batches=st.lists(st.lists(arrival, min_size=1, max_size=9), min_size=2, max_size=4),
    credit=st.sampled_from(CREDITS),
)
def test_incremental_builds_after_random_arrivals_equal_a_rebuild(
    new_traces: Callable[[], "Traces"], batches: list[list[Arrival]], credit: str
) -> None:
    traces = new_traces()
    arriving = Arriving(traces)
    for batch in batches:
        arriving.arrive(batch)
        if not built(traces, credit, rebuild=False):
            continue
        incremental = rows(traces), known(traces)
        built(traces, credit, rebuild=True)
        assert incremental == (rows(traces), known(traces))


def two_judgements_of_a_later_tool(traces: "Traces") -> Callable[[], None]:
    for name in ("speed", "style"):
        judged = {
            "span_id": "late",
            "trace_id": "a",
            "rollout_id": None,
            "name": name,
            "source": "log",
        }
        traces.reward("a", 1.0, **judged)
    return lambda: traces.tool("a", "lookup", span_id="late", step=0)


def two_tools_that_turn_out_to_have_failed(traces: "Traces") -> Callable[[], None]:
    for name in ("one", "two"):
        traces.tool("a", "lookup", span_id=name)
    traces.reward("a", 1.0)

    def failed() -> None:
        traces.store()
        traces.ask("UPDATE tool_calls SET error_type = 'timeout'")

    return failed


def calls_with_one_span_id_in_two_traces(traces: "Traces") -> Callable[[], None]:
    traces.reward("a", 1.0)

    def twice() -> None:
        for trace in ("t1", "t2"):
            traces.call("a", 1, trace_id=trace, span_id="repeated")

    return twice


@pytest.mark.parametrize(
    ("case", "credit"),
    [
        (two_judgements_of_a_later_tool, "identical"),
        (two_tools_that_turn_out_to_have_failed, "tool_outcome"),
        (calls_with_one_span_id_in_two_traces, "identical"),
    ],
)
def test_changes_that_are_alike_do_not_cancel(
    traces: "Traces", case: Callable[["Traces"], Callable[[], None]], credit: str
) -> None:
    for step in (0, 1):
        traces.call("a", step)
    change = case(traces)
    built(traces, credit, rebuild=False)
    before = rows(traces)
    change()
    built(traces, credit, rebuild=False)
    incremental = rows(traces)
    assert incremental != before
    built(traces, credit, rebuild=True)
    assert incremental == rows(traces)
