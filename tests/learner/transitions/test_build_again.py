"""Building again: what has no news stays, and a full rebuild gives the same."""

import random
import signal
import sys
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.running import finish

from otel_lightning.collector.store import StoreError, open_store, server_file, write_server
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.transitions import stage
from otel_lightning.learner.transitions.make import Settings, Summary, make_transitions

if TYPE_CHECKING:
    from conftest import Traces

LATER = datetime(2026, 11, 1, hour=5)  # noqa: DTZ001 - the store's UTC has no zone
CREDIT = "group+anchor_state"


def build(traces: "Traces", *, rebuild: bool = False, **settings: Any) -> Summary:
    return make_transitions(traces.store(), Settings(**settings), rebuild=rebuild)


def everything(traces: "Traces") -> list[dict[str, Any]]:
    return traces.ask("SELECT * FROM transition_rows ORDER BY rollout_id, step")


def log(traces: "Traces", tasks: range, seed: int = 0) -> None:
    """Log four rollouts a task, of one to four calls, most of them judged, some on the way."""
    rng = random.Random(seed)  # noqa: S311 - sampling, not cryptography
    for task in tasks:
        for attempt in range(4):
            rollout = f"{task}-{attempt}-{seed}"
            traces.task(rollout, f"task-{task}")
            for step in range(rng.randint(1, 4)):
                traces.call(rollout, step, prompt_token_ids=[task, step])
                for name in ("speed", "style", "depth") if rng.random() < 0.3 else ():
                    traces.reward(rollout, rng.random(), span_id=f"{rollout}.{step}", name=name)
            if rng.random() < 0.9:
                traces.reward(rollout, rng.random())


def test_second_build_without_news_builds_nothing(traces: "Traces") -> None:
    log(traces, range(10))
    first = build(traces)
    before = everything(traces)
    again = build(traces)
    assert (first.built, again.built) == (first.transitions, 0)
    assert everything(traces) == before
    assert again.left_out == first.left_out
    assert again.mean_reward == first.mean_reward


def test_only_tasks_with_news_are_built_and_a_rebuild_gives_the_same(traces: "Traces") -> None:
    log(traces, range(20))
    build(traces, credit=CREDIT)
    log(traces, range(18, 22), seed=1)
    traces.reward("3-0-0", 5.0, time=LATER)
    traces.call("5-1-0", 7)
    some = build(traces, credit=CREDIT)
    updated = everything(traces)
    assert 0 < some.built < some.transitions / 2
    full = build(traces, credit=CREDIT, rebuild=True)
    assert full.built == full.transitions
    assert everything(traces) == updated


def test_task_that_becomes_known_later_takes_its_rollout_along(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    build(traces)
    traces.task("a", "ticket-1")
    build(traces)
    assert [row["task_id"] for row in everything(traces)] == ["ticket-1"]


def test_rollout_that_is_forgotten_leaves_no_rows(traces: "Traces") -> None:
    log(traces, range(3))
    build(traces)
    traces.ask("DELETE FROM llm_calls WHERE rollout_id = '1-0-0'")
    build(traces)
    assert "1-0-0" not in {row["rollout_id"] for row in everything(traces)}
    incremental = everything(traces)
    build(traces, rebuild=True)
    assert everything(traces) == incremental


@pytest.mark.parametrize(
    "changed", [{"gamma": 0.5}, {"credit": "group"}, {"held_out": 0.5}, {"agents": ("*",)}]
)
def test_other_settings_build_all_again(traces: "Traces", changed: dict[str, Any]) -> None:
    log(traces, range(5))
    build(traces)
    summary = build(traces, **changed)
    assert summary.built == summary.transitions


@pytest.mark.slow
def test_many_buckets_give_the_same_as_one(
    traces: "Traces", monkeypatch: pytest.MonkeyPatch
) -> None:
    log(traces, range(30))
    build(traces, credit=CREDIT)
    one = everything(traces)
    monkeypatch.setattr(stage, "CALLS_A_BUCKET", 7)
    build(traces, credit=CREDIT, rebuild=True)
    assert len(stage.buckets(len(one))) > 10
    assert everything(traces) == one


def test_running_ingester_is_updated_in_many_buckets_too(
    traces: "Traces", monkeypatch: pytest.MonkeyPatch
) -> None:
    log(traces, range(6))
    build(traces)
    direct = everything(traces)
    monkeypatch.setattr(stage, "CALLS_A_BUCKET", 20)
    with open_store(traces.path) as ingester:
        write_server(traces.path, ingester.serve("http://127.0.0.1:4318"))
        try:
            make_transitions(str(traces.path), Settings(), rebuild=True)
        finally:
            server_file(traces.path).unlink()
    assert everything(traces) == direct


def test_run_that_fails_leaves_a_row_that_says_why(traces: "Traces") -> None:
    traces.call("a")
    with pytest.raises(DataError):
        build(traces)
    (run,) = traces.ask("SELECT command, outcome, metrics, data_fingerprint FROM runs")
    assert (run["command"], run["outcome"], run["data_fingerprint"]) == (
        "transitions",
        "failed",
        None,
    )
    assert "No rollout in the store has a reward" in run["metrics"]


def test_failed_build_leaves_the_former_transitions(traces: "Traces") -> None:
    log(traces, range(3))
    build(traces)
    before = everything(traces)
    with pytest.raises(DataError, match="Unknown credit method 'gea'"):
        build(traces, credit="gea")
    assert everything(traces) == before


KILLED = """
import os, signal, sys
from otel_lightning.learner.transitions import make, stage

write, stage.CALLS_A_BUCKET = stage.write_bucket, 30

def write_and_die(*bucket):
    write(*bucket)
    os.kill(os.getpid(), signal.SIGKILL)

stage.write_bucket = write_and_die
make.make_transitions(sys.argv[1], make.Settings(credit="group"))
"""


def by_task(traces: "Traces") -> dict[str, list[dict[str, Any]]]:
    tasks = defaultdict(list)
    for row in everything(traces):
        tasks[row["task_id"]].append(row)
    return dict(tasks)


def test_run_that_was_killed_leaves_whole_tasks_and_the_next_one_repairs_it(
    traces: "Traces",
) -> None:
    log(traces, range(20))
    build(traces)
    old = by_task(traces)
    killed = finish(sys.executable, "-c", KILLED, traces.store())
    assert killed.returncode == -signal.SIGKILL
    halfway = by_task(traces)
    build(traces, credit="group")
    new = by_task(traces)
    assert halfway not in (old, new)
    assert all(halfway[task] in (old[task], new[task]) for task in old)
    build(traces, credit="group", rebuild=True)
    assert by_task(traces) == new


def test_contradictory_rewards_leave_their_rollout_out(traces: "Traces") -> None:
    for rollout in "abc":
        traces.call(rollout)
        traces.reward(rollout, 1.0)
    traces.reward("a", 0.0)
    traces.reward("b", 1.0)
    summary = build(traces)
    assert [row["rollout_id"] for row in everything(traces)] == ["b", "c"]
    assert summary.left_out == {"rollouts with contradictory rewards": 1}


def test_contradiction_that_a_later_judgement_settles_is_none(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    traces.reward("a", 0.0)
    traces.reward("a", 0.5, time=LATER)
    build(traces)
    assert [row["reward"] for row in everything(traces)] == [0.5]


def test_rollout_alone_in_its_task_is_counted_where_rollouts_are_compared(
    traces: "Traces",
) -> None:
    for rollout, task in (("a", "one"), ("b", "two"), ("c", "two")):
        traces.call(rollout)
        traces.reward(rollout, 1.0)
        traces.task(rollout, task)
    assert build(traces, credit="identical").left_out == {}
    (reason,) = build(traces, credit="group").left_out.items()
    assert reason == ("rollouts alone in their task, nothing to compare with: advantage 0", 1)


def test_what_rules_gave_counts_only_when_it_is_named(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    traces.reward("a", 7.0, name="steps", source="rule:steps@1")
    build(traces)
    assert [row["reward"] for row in everything(traces)] == [1.0]
    build(traces, reward="steps")
    assert [row["reward"] for row in everything(traces)] == [7.0]


def test_rule_that_gives_the_same_again_is_no_news(traces: "Traces", tmp_path: Path) -> None:
    log(traces, range(4))
    rule = tmp_path / "short.sql"
    rule.write_text("SELECT rollout_id, 1.0 / llm_calls AS value FROM rollouts")
    first, again = (build(traces, reward=str(rule)) for _ in range(2))
    assert (first.built, again.built) == (first.transitions, 0)


def test_only_rewards_of_rules_and_no_name_is_an_error_that_lists_them(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 7.0, name="steps", source="rule:steps@1")
    with pytest.raises(DataError, match=r"No reward was received\. .*--reward: steps\."):
        build(traces)


def test_statement_that_the_store_refuses_is_a_store_error(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    traces.store()
    traces.ask("DROP VIEW rollout_ends")
    with pytest.raises(StoreError, match="rollout_ends"):
        build(traces)


def test_rollout_of_an_attempt_that_was_lost_has_no_transitions(traces: "Traces") -> None:
    log(traces, range(4))
    before = build(traces)
    lost = traces.ask("SELECT min(rollout_id) AS name FROM transition_rows")[0]["name"]
    kept = traces.ask("SELECT max(rollout_id) AS name FROM transition_rows")[0]["name"]
    traces.attempt(lost, "lost")  # the runner learned of it after a first build
    traces.attempt(kept, "failed")
    after = build(traces)
    assert after.left_out["rollouts of an attempt that was lost"] == 1
    assert before.rewarded - after.rewarded == 1
    rollouts = {row["rollout_id"] for row in everything(traces)}
    assert lost not in rollouts
    assert kept in rollouts


def test_rollout_whose_attempt_has_ended_is_not_open_though_its_last_call_asks_for_a_tool(
    traces: "Traces",
) -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    for name in ("ok", "timeout", "running"):
        traces.call(name, finish_reason="tool_calls", start_time=now, end_time=now)
        traces.reward(name, 1.0, time=now - timedelta(minutes=1))  # a later one would end it
    traces.attempt("ok", "ok")
    traces.attempt("timeout", "timeout")
    summary = build(traces, reward="task_success")
    assert summary.left_out == {"rollouts still open": 1}
    ends = {row["rollout_id"]: row["terminated"] for row in traces.ask("FROM transitions")}
    assert ends == {"ok": True, "timeout": False}
