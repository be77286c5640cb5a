import math
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from otel_lightning.collector.store import open_store, server_file, write_server
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import arrow
from otel_lightning.learner.transitions.make import Settings, Summary, make_transitions

if TYPE_CHECKING:
    from conftest import Traces

LATER = datetime(2026, 11, 1, hour=5)  # noqa: DTZ001 - the store's UTC has no zone


def build(traces: "Traces", **settings: Any) -> Summary:
    return make_transitions(traces.store(), Settings(**settings))


def column(traces: "Traces", name: str) -> list[Any]:
    rows = traces.ask(f"SELECT {name} AS x FROM transitions ORDER BY rollout_id, step")
    return [row["x"] for row in rows]


def test_judgement_of_a_rollout_is_the_terminal_reward_at_its_last_call(traces: "Traces") -> None:
    for step in range(3):
        traces.call("a", step)
    traces.reward("a", 1.0)
    build(traces, gamma=0.5)
    assert column(traces, "reward") == [0, 0, 1]
    assert column(traces, "return_to_go") == [0.25, 0.5, 1]
    assert column(traces, "advantage") == [1, 1, 1]
    assert column(traces, "terminated") == [False, False, True]
    assert column(traces, "truncated") == [False, False, False]
    assert column(traces, "next_span_id") == ["a.1", "a.2", None]
    assert "answer a.2" in column(traces, "completion")[2]


def test_rollout_judged_again_counts_as_last_judged(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 0.25, time=LATER)
    traces.reward("a", 1.0)
    build(traces)
    assert column(traces, "reward") == [0.25]


def test_reward_of_an_earlier_call_stays_there(traces: "Traces") -> None:
    traces.call("a", 0)
    traces.call("a", 1)
    traces.reward("a", 0.5, span_id="a.0", time=LATER)
    traces.reward("a", 1.0)
    build(traces, credit="return_to_go")
    assert column(traces, "reward") == [0.5, 1.0]
    assert column(traces, "advantage") == [1.5, 1.0]


def test_reward_that_names_only_a_response_finds_its_rollout(traces: "Traces") -> None:
    traces.call("a", 0)
    traces.call("a", 1)
    traces.reward(None, 1.0, response_id="response-a.1")
    build(traces)
    assert column(traces, "reward") == [0, 1]


def test_rollout_without_a_reward_gives_no_rows_and_is_counted(traces: "Traces") -> None:
    traces.call("a")
    traces.call("b")
    traces.reward("a", 1.0)
    summary = build(traces)
    assert (summary.rollouts, summary.rewarded, summary.transitions) == (2, 1, 1)


def test_call_without_a_completion_is_no_transition(traces: "Traces") -> None:
    traces.call("a", 0)
    traces.call("a", 1, output_messages=None, error_type="timeout")
    traces.reward("a", 1.0)
    build(traces)
    assert column(traces, "step") == [0]
    assert column(traces, "reward") == [1.0]
    assert column(traces, "next_span_id") == [None]


def test_only_the_named_reward_counts(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    traces.reward("a", -5.0, name="length", time=LATER)
    build(traces, reward="task_success")
    assert column(traces, "reward") == [1.0]


def test_rollouts_of_one_task_share_a_split(traces: "Traces") -> None:
    for task in "abcdefghijklmnopqrst":
        for attempt in range(3):
            rollout = f"{task}{attempt}"
            traces.call(rollout)
            traces.reward(rollout, 1.0)
            traces.task(rollout, task)
    summary = build(traces, held_out=0.5)
    splits = traces.ask("SELECT count(DISTINCT split) AS n FROM transitions GROUP BY task_id")
    assert [row["n"] for row in splits] == [1] * 20
    assert summary.train + summary.heldout == 60
    assert min(summary.train, summary.heldout) > 0


def test_rollouts_of_no_task_share_a_split_when_they_begin_alike(traces: "Traces") -> None:
    for start in range(20):
        for attempt in range(3):
            rollout = f"{start}-{attempt}"
            traces.call(rollout, 0, prompt_token_ids=[start])
            traces.call(rollout, 1, prompt_token_ids=[start, attempt])
            traces.reward(rollout, 1.0)
    build(traces, held_out=0.5)
    splits = traces.ask(
        "SELECT count(DISTINCT split) AS n FROM transitions GROUP BY split_part(rollout_id, '-', 1)"
    )
    assert [row["n"] for row in splits] == [1] * 20


def test_state_hash_is_of_the_prompt_tokens(traces: "Traces") -> None:
    traces.call("a", prompt_token_ids=[3, 14, 15])
    traces.reward("a", 1.0)
    build(traces)
    assert column(traces, "state_hash") == [sha256(b"3 14 15").hexdigest()]


def test_same_messages_and_tools_are_the_same_state(traces: "Traces") -> None:
    question, tools = '[{"role": "user", "parts": []}]', '[{"name": "lookup"}]'
    spaced = question.replace(" ", "")
    traces.call("a", input_messages=question, tool_definitions=tools)
    traces.call("b", input_messages=spaced, tool_definitions=tools)
    traces.call("c", input_messages=question, tool_definitions=None)
    for rollout in "abc":
        traces.reward(rollout, 1.0)
    build(traces)
    a, b, c = column(traces, "state_hash")
    assert a == b != c


def test_behavior_logprob_is_the_sum_over_tokens(traces: "Traces") -> None:
    traces.call("a", completion_logprobs=[-0.5, -0.25, -1.0])
    traces.reward("a", 1.0)
    build(traces)
    assert column(traces, "behavior_logprob") == [-1.75]


def test_first_arm_of_a_rollout_is_on_all_its_transitions(traces: "Traces") -> None:
    traces.call("a", 0)
    traces.call("a", 1)
    traces.reward("a", 1.0)
    traces.arm("a", "brief", 0.3, time=LATER)
    traces.arm("a", "careful", 0.2)
    build(traces)
    assert column(traces, "arm") == ["careful", "careful"]
    assert column(traces, "propensity") == [0.2, 0.2]
    assert column(traces, "arm_key") == ["support-prompt"] * 2
    assert column(traces, "policy_version") == ["uniform"] * 2


def test_shuffled_rewards_keep_the_outcomes_but_not_whose_they_are(traces: "Traces") -> None:
    for i in range(40):
        traces.call(f"{i:02}")
        traces.reward(f"{i:02}", float(i))
    build(traces, shuffle_rewards=1)
    shuffled = column(traces, "reward")
    assert sorted(shuffled) == [float(i) for i in range(40)]
    assert sum(reward == i for i, reward in enumerate(shuffled)) < 10
    build(traces, shuffle_rewards=1)
    assert column(traces, "reward") == shuffled


def test_building_twice_leaves_one_set_of_rows_and_two_equal_runs(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    build(traces)
    build(traces)
    assert column(traces, "step") == [0]
    runs = traces.ask("SELECT * FROM runs")
    assert [(run["command"], run["outcome"]) for run in runs] == [("transitions", "done")] * 2
    assert len({run["data_fingerprint"] for run in runs}) == 1
    assert runs[0]["ended"] - runs[0]["started"] >= timedelta(0)


def test_no_reward_at_all_is_an_error_that_says_what_next(traces: "Traces") -> None:
    traces.call("a")
    told = r"No rollout in the store has a reward.*v1/feedback.*--reward FILE.py:FUNCTION"
    with pytest.raises(DataError, match=told):
        build(traces)


def test_empty_store_is_an_error_that_says_where_traces_come_from(traces: "Traces") -> None:
    with pytest.raises(
        DataError, match=r"The store is empty.*`lightning-ingest load FILE --store .*\.duckdb`"
    ):
        build(traces)


def test_spans_without_a_model_call_are_an_error_that_names_the_doctor(traces: "Traces") -> None:
    with open_store(traces.store()) as store:
        row = {"trace_id": "t", "span_id": "s", "name": "GET /", "start_time": LATER}
        store.insert("spans", arrow(pl.DataFrame([row])))
    with pytest.raises(
        DataError, match=r"has 1 span but no rollout.*lightning-ingest doctor --store .*\.duckdb$"
    ):
        build(traces)


@pytest.mark.parametrize("name", ["task_success", None])
def test_rewards_of_rollouts_without_a_model_call_are_named_as_that(
    traces: "Traces", name: str | None
) -> None:
    traces.call("a")
    for rollout in ("b", "c"):
        traces.reward(rollout, 1.0)
    told = r"2 rewards are of rollouts without a recorded model call, such as 'b'.* doctor --store"
    with pytest.raises(DataError, match=told):
        make_transitions(traces.store(), Settings(reward=name))


def test_unknown_reward_name_is_an_error_that_lists_the_known(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    with pytest.raises(DataError, match=r"No reward is named 'quality'\. Known: task_success\."):
        build(traces, reward="quality")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_reward_that_is_not_finite_is_an_error_that_names_it(
    traces: "Traces", value: float
) -> None:
    traces.call("a")
    traces.reward("a", value)
    with pytest.raises(DataError, match=rf"Reward 'task_success' of rollout 'a' is {value}"):
        build(traces)


def test_reward_that_overflows_is_an_error_and_no_advantage_that_counts_as_good(
    traces: "Traces",
) -> None:
    traces.call("a")
    traces.reward("a", 1e308)
    traces.reward("a", 1e308, name="other")
    with pytest.raises(DataError, match=r"is 1e\+308\. Beyond 1e\+60 nothing can be computed"):
        build(traces)


def test_store_that_an_ingester_holds_is_learned_from_all_the_same(traces: "Traces") -> None:
    traces.call("a", prompt_token_ids=[1, 2], completion_token_ids=[3])
    traces.reward("a", 1.0)
    with open_store(traces.store()) as ingester:
        write_server(traces.path, ingester.serve("http://127.0.0.1:4318"))
        try:
            summary = make_transitions(str(traces.path), Settings())
        finally:
            server_file(traces.path).unlink()
    assert summary.transitions == 1
    assert column(traces, "reward") == [1.0]


@pytest.mark.parametrize("name", [None, "task_success"])
def test_rewards_without_any_number_are_not_told_as_no_reward(
    traces: "Traces", name: str | None
) -> None:
    for rollout in "ab":
        traces.call(rollout)
        traces.reward(rollout, None)
    with pytest.raises(DataError, match="2 rewards were received, such as 'task_success', but"):
        make_transitions(traces.store(), Settings(reward=name))
