"""Which rollouts are of one task, where no task id was recorded."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.transitions.make import Settings, Summary, make_transitions

if TYPE_CHECKING:
    from conftest import Traces


def text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def asked(traces: "Traces", rollout: str, system: str, user: str, **columns: Any) -> None:
    """Log a rollout of two calls, the first with these columns; the second goes on from it."""
    first = [text("system", system), text("user", user)]
    then = [*first, text("assistant", f"Which order, {rollout}?"), text("user", f"My {rollout}.")]
    for step, messages in enumerate((first, then)):
        traces.call(rollout, step, input_messages=json.dumps(messages), **columns)
        columns = {}
    traces.reward(rollout, float(len(rollout) % 2))


def tasks(traces: "Traces") -> dict[str, set[str]]:
    """The rollouts of each task, under the first of them."""
    rows = traces.ask("SELECT DISTINCT rollout_id, task_hash FROM transitions ORDER BY rollout_id")
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["task_hash"], set()).add(row["rollout_id"])
    return {min(rollouts): rollouts for rollouts in found.values()}


def build(traces: "Traces", **settings: Any) -> Summary:
    return make_transitions(traces.store(), Settings(**settings))


@pytest.fixture
def dated(traces: "Traces") -> "Traces":
    """Two tasks, tried twice each, under a system prompt that has the time."""
    for number, (rollout, user) in enumerate(
        zip("abcd", ["one", "one", "two", "two"], strict=True)
    ):
        asked(traces, rollout, f"It is 10:0{number}. Be kind.", user)
    return traces


def test_date_in_the_system_prompt_makes_no_new_task(dated: "Traces") -> None:
    summary = build(dated)
    assert tasks(dated) == {"a": {"a", "b"}, "c": {"c", "d"}}
    assert summary.tasks == 2
    assert len({tuple(row.values()) for row in dated.ask("SELECT task_hash FROM transitions")}) == 2


def test_whole_prompt_names_the_task_if_asked(dated: "Traces") -> None:
    assert build(dated, task_by="prompt").tasks == 4


def test_rollout_without_an_id_is_a_task_of_its_own_if_only_ids_name_tasks(
    traces: "Traces",
) -> None:
    for rollout in "abc":
        asked(traces, rollout, "Be kind.", "one")
    traces.task("a", "ticket-1")
    traces.task("b", "ticket-1")
    assert build(traces, task_by="id").tasks == 2
    assert tasks(traces) == {"a": {"a", "b"}, "c": {"c"}}


def test_task_id_is_above_what_the_user_said(dated: "Traces") -> None:
    dated.task("b", "ticket-1")
    build(dated)
    assert tasks(dated) == {"a": {"a"}, "b": {"b"}, "c": {"c", "d"}}


def test_prompt_without_a_user_is_taken_whole(traces: "Traces") -> None:
    for rollout, system in (("a", "Solve one."), ("b", "Solve one."), ("c", "Solve two.")):
        messages = json.dumps([text("system", system)])
        traces.call(rollout, input_messages=messages)
        traces.reward(rollout, 1.0)
    build(traces)
    assert tasks(traces) == {"a": {"a", "b"}, "c": {"c"}}


def test_tokens_of_a_dated_prompt_do_not_hide_that_the_user_said_the_same(
    traces: "Traces",
) -> None:
    for number, rollout in enumerate("ab"):
        asked(traces, rollout, f"Day {number}.", "one", prompt_token_ids=[number, 7])
    build(traces)
    assert tasks(traces) == {"a": {"a", "b"}}


def test_rollouts_without_content_are_tasks_of_their_own(traces: "Traces") -> None:
    for rollout in "ab":
        traces.call(rollout, input_messages=None, completion_token_ids=[1])
        traces.reward(rollout, 1.0)
    assert build(traces).tasks == 2


def test_messages_of_a_state_are_hashed_once(dated: "Traces") -> None:
    build(dated)
    build(dated, task_by="prompt")
    asked(dated, "e", "It is 10:00. Be kind.", "one")
    assert build(dated).tasks == 2
    rows = dated.ask("SELECT state_hash, user_hash FROM task_messages")
    assert len(rows) == len({row["state_hash"] for row in rows}) == 4
    assert len({row["user_hash"] for row in rows}) == 2


def test_other_name_of_tasks_moves_every_rollout_to_its_new_task(dated: "Traces") -> None:
    build(dated, task_by="prompt", credit="group")
    build(dated, task_by="user", credit="group")
    incremental = dated.ask("SELECT * FROM transition_rows ORDER BY rollout_id, step")
    make_transitions(dated.store(), Settings(task_by="user", credit="group"), rebuild=True)
    assert dated.ask("SELECT * FROM transition_rows ORDER BY rollout_id, step") == incremental


def test_unknown_name_of_tasks_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(DataError, match=r"Unknown task name 'date'\. Known: user, prompt, id"):
        Settings(task_by="date")
