"""Which calls of a rollout become transitions, and where its rewards go then."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.store import open_store
from otel_lightning.learner import DataError
from otel_lightning.learner.transitions.make import Settings, Summary, make_transitions

if TYPE_CHECKING:
    from conftest import Traces

DATA = Path(__file__).parents[2] / "data"
START = datetime(2026, 11, 1)  # noqa: DTZ001 - the store's UTC has no zone


def after_step(step: int) -> datetime:
    return START + timedelta(seconds=step + 1.25)


def build(traces: "Traces", **settings: Any) -> Summary:
    return make_transitions(traces.store(), Settings(**settings))


def rows(traces: "Traces", columns: str) -> list[tuple[Any, ...]]:
    found = traces.ask(f"SELECT {columns} FROM transitions ORDER BY rollout_id, step")
    return [tuple(row.values()) for row in found]


def team(traces: "Traces", *names: str) -> None:
    """One rollout: a call of each agent named, in that order."""
    for step, name in enumerate(names):
        traces.call("a", step, agent_name=name)


def test_only_the_selected_agent_is_learned_and_the_others_keep_their_steps(
    traces: "Traces",
) -> None:
    team(traces, "planner", "coder", "planner", "coder", "critic")
    traces.reward("a", 1.0)
    summary = build(traces, agents=("coder",))
    assert rows(traces, "step, agent_name, reward, next_span_id, terminated") == [
        (1, "coder", 0.0, "a.3", False),
        (3, "coder", 1.0, None, True),
    ]
    assert summary.left_out == {"calls of agents that are not selected": 3}


def test_agents_are_selected_by_patterns(traces: "Traces") -> None:
    team(traces, "coder-python", "planner", "coder-go", "critic", "writer")
    traces.reward("a", 1.0)
    build(traces, agents=("coder-*", "write?"))
    assert rows(traces, "step") == [(0,), (2,), (4,)]


def test_selection_of_no_agent_is_an_error_and_the_transitions_stay(traces: "Traces") -> None:
    team(traces, "planner", "coder")
    traces.reward("a", 1.0)
    build(traces)
    with pytest.raises(
        DataError, match=r"No call is of an agent 'codr'\. Known: 'coder', 'planner'"
    ):
        build(traces, agents=("codr",))
    assert rows(traces, "step") == [(0,), (1,)]


def test_reward_of_an_unselected_call_moves_to_the_last_selected_one_before_it(
    traces: "Traces",
) -> None:
    team(traces, "planner", "coder", "critic", "coder")
    traces.reward("a", 0.5, span_id="a.2")
    traces.reward("a", 0.25, span_id="a.0", name="plan")
    build(traces, agents=("coder",))
    assert rows(traces, "step, reward") == [(1, 0.75), (3, 0.0)]


def test_rollout_without_a_selected_agent_is_left_out_and_counted(traces: "Traces") -> None:
    team(traces, "planner")
    traces.reward("a", 1.0)
    traces.call("b", agent_name="coder")
    traces.reward("b", 1.0)
    summary = build(traces, agents=("coder",))
    assert summary.left_out["rollouts without a call of a selected agent"] == 1
    assert (summary.rewarded, summary.transitions) == (1, 1)


def test_failed_call_that_was_retried_is_no_transition_but_keeps_its_step(
    traces: "Traces",
) -> None:
    traces.call("a", 0)
    traces.call("a", 1, output_messages=None, error_type="timeout")
    traces.call("a", 2)
    traces.reward("a", 1.0)
    traces.reward("a", -0.5, span_id="a.1", name="latency")
    summary = build(traces)
    assert rows(traces, "step, reward, next_span_id") == [(0, -0.5, "a.2"), (2, 1.0, None)]
    assert summary.left_out == {
        "calls without a completion: failed, or recorded without content": 1
    }
    kept = traces.ask("SELECT step, error_type FROM llm_calls WHERE error_type IS NOT NULL")
    assert kept == [{"step": 1, "error_type": "timeout"}]


def test_reward_on_the_way_belongs_to_the_last_call_that_had_ended(traces: "Traces") -> None:
    for step in range(3):
        traces.call("a", step)
    sent = {"trace_id": "a", "span_id": "elsewhere", "source": "log"}
    traces.reward("a", 0.5, time=after_step(1), **sent)
    traces.reward("a", 1.0)
    build(traces)
    assert rows(traces, "reward, return_to_go") == [(0.0, 1.5), (0.5, 1.5), (1.0, 1.0)]


def test_reward_before_any_call_belongs_to_the_first(traces: "Traces") -> None:
    traces.call("a", 0)
    traces.call("a", 1)
    early = {"trace_id": "a", "source": "log", "time": START - timedelta(seconds=5)}
    traces.reward("a", 0.5, **early)
    build(traces)
    assert rows(traces, "reward") == [(0.5,), (0.0,)]


def test_rewards_on_the_way_add_up_while_second_judgements_replace(traces: "Traces") -> None:
    traces.call("a", 0)
    traces.call("a", 1)
    for value in (0.25, 0.5):
        traces.reward("a", value, trace_id="a", source="log", time=after_step(0))
    for value, minutes in ((9.0, 1), (1.0, 2)):
        traces.reward("a", value, source="feedback", time=START + timedelta(minutes=minutes))
    build(traces)
    assert rows(traces, "reward") == [(0.75,), (1.0,)]


def test_reward_of_a_tool_belongs_to_the_call_that_asked_for_it(traces: "Traces") -> None:
    for step in range(3):
        traces.call("a", step)
    traces.tool("a", "search", step=1, span_id="tool")
    traces.reward("a", 0.5, trace_id="a", span_id="tool", source="span")
    build(traces)
    assert rows(traces, "reward") == [(0.0,), (0.5,), (0.0,)]


def test_reward_of_a_span_that_recorded_the_same_call_belongs_to_the_call(
    traces: "Traces",
) -> None:
    traces.call("a", 0, merged_span_ids=["outer"])
    traces.call("a", 1)
    traces.reward("a", 0.5, trace_id="a", span_id="outer", source="span")
    build(traces)
    assert rows(traces, "reward") == [(0.5,), (0.0,)]


def test_reward_of_an_agent_in_parallel_belongs_to_its_own_last_call(traces: "Traces") -> None:
    team(traces, "left", "right", "left", "right", "root")
    for name, first, last in (("left", 0, 2), ("right", 1, 3)):
        traces.agent("a", name, first, last, parent_span_id="a.root")
    sent = {"trace_id": "a", "source": "span", "time": after_step(3)}
    traces.reward("a", 0.25, span_id="a.left", **sent)
    traces.reward("a", 0.5, span_id="a.right", **sent)
    build(traces)
    assert rows(traces, "reward") == [(0.0,), (0.0,), (0.25,), (0.5,), (0.0,)]


def test_several_choices_of_a_call_are_one_transition(traces: "Traces") -> None:
    choices = '[{"role": "assistant", "parts": []}, {"role": "assistant", "parts": []}]'
    traces.call("a", output_messages=choices)
    traces.reward("a", 1.0)
    build(traces)
    assert rows(traces, "step, json_array_length(completion)") == [(0, 2)]


@pytest.mark.parametrize(
    ("last_call", "outcome"),
    [
        ({"finish_reason": "stop"}, "terminated"),
        ({"finish_reason": "tool_calls"}, "terminated"),
        ({"finish_reason": None}, "terminated"),
        ({"finish_reason": "length"}, "truncated"),
        ({"finish_reason": "content_filter"}, "truncated"),
        ({"finish_reason": None, "error_type": "timeout"}, "truncated"),
    ],
)
def test_judged_rollout_is_truncated_if_its_last_call_was_cut_off(
    traces: "Traces", last_call: dict[str, Any], outcome: str
) -> None:
    traces.call("a", 0, finish_reason="tool_calls")
    traces.call("a", 1, **last_call)
    traces.reward("a", 1.0)
    build(traces)
    ends = [(False, False), (outcome == "terminated", outcome == "truncated")]
    assert rows(traces, "terminated, truncated") == ends


def test_rollout_that_awaits_a_tool_is_left_out_until_it_has_been_idle(traces: "Traces") -> None:
    traces.call("a", 0, finish_reason="tool_calls")
    traces.call("a", 1, finish_reason="tool_calls")
    traces.reward("a", 0.5, trace_id="a", source="log", time=after_step(0))
    forever = 60 * 24 * 365 * 100
    assert build(traces, idle=forever).left_out == {"rollouts still open": 1}
    build(traces, idle=0)
    assert rows(traces, "reward, truncated") == [(0.5, False), (0.0, True)]


def test_rollout_is_closed_by_the_end_of_its_root_agent(traces: "Traces") -> None:
    traces.call("a", 0, finish_reason="tool_calls")
    traces.call("a", 1, finish_reason="tool_calls")
    traces.reward("a", 0.5, trace_id="a", source="log", time=after_step(0))
    traces.agent("a", "root", 0, 1)
    build(traces, idle=60 * 24 * 365 * 100)
    assert rows(traces, "reward, terminated") == [(0.5, False), (0.0, True)]


def test_stream_that_was_abandoned_is_a_cut_off_transition_once_it_has_been_idle(
    traces: "Traces",
) -> None:
    sent = (DATA / "traceloop_openai" / "stream_abandoned.otlp.pb").read_bytes()
    with open_store(traces.path) as store:
        load(store, [Request("traces", 0, sent)], dead_letters=traces.path.parent)
        refresh(store)
    ((rollout, content),) = calls(traces, "rollout_id, content")
    assert content == "truncated"
    traces.reward(rollout, 0.5, trace_id=rollout, source="log", time=START)
    assert build(traces, idle=60 * 24 * 365 * 100).left_out == {"rollouts still open": 1}
    build(traces, idle=0)
    ((reward, truncated, completion),) = rows(traces, "reward, truncated, completion")
    assert (reward, truncated) == (0.5, True)
    assert json.loads(completion)[0]["parts"][0]["content"]


def calls(traces: "Traces", columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in traces.ask(f"SELECT {columns} FROM llm_calls")]


def test_if_no_call_of_the_selected_agent_can_be_used_every_number_is_0(traces: "Traces") -> None:
    traces.call("a", agent_name="writer")
    traces.call("b", agent_name="reader")  # without a reward
    traces.reward("a", 1.0)
    summary = make_transitions(traces.store(), Settings(agents=("reader",)))
    assert (summary.rewarded, summary.train, summary.heldout) == (0, 0, 0)
