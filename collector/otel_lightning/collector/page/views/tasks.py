"""Tasks and states: the differences between rollouts that began in the same way, side by side."""

from typing import Any

from otel_lightning.collector.page.conversation import Part, parts
from otel_lightning.collector.page.view_request import PAGE_ROWS, NotFoundError, View, ViewRequest
from otel_lightning.collector.page.views.rollout_links import link, linked

MOST_TASKS = 100
COLUMNS = 6
"""Number of rollouts that are shown side by side."""
MOST_TEXT = 60_000
"""Maximum number of characters of a text that is read from the store."""
MOST_PART = 600
"""Maximum number of characters of a part of a message that is shown."""
SECOND_NS = 10**9


def show_all(ask: ViewRequest) -> View:
    """List tasks; those whose smallest and largest reward differ most come first."""
    rows = ask.rows("tasks", start=ask.text("id"), rows=MOST_TASKS + 1)
    values = {"rows": rows[:MOST_TASKS], "is_cut": len(rows) > MOST_TASKS}
    return View("tasks.html", "Tasks", values)


def show_task(ask: ViewRequest, task: str) -> View:
    """Show the rollouts of a task, and the answers of some of them side by side.

    Raises:
        NotFoundError: If the task has no rollout.
    """
    rows = ask.rows("task_rollouts", task=task, rows=PAGE_ROWS)
    if not rows:
        raise NotFoundError(f"There is no rollout of the task '{task}'.")
    chosen = _chosen(rows)
    calls = ask.rows(
        "task_calls",
        rollouts=[row["rollout_id"] for row in chosen],
        **_times(chosen),
        most_text=MOST_TEXT,
    )
    by_rollout: dict[str, list[dict[str, Any]]] = {}
    for call in calls:
        by_rollout.setdefault(call["rollout_id"], []).append(call)
    columns = [
        {**row, "href": link(row), "steps": _answers(by_rollout.get(row["rollout_id"], []))}
        for row in chosen
    ]
    _mark_first_difference(columns)
    question = next((call["question"] for call in calls if call["question"]), None)
    return View(
        "task.html",
        f"Task {task}",
        {
            "task": task,
            "rows": linked(rows),
            "columns": columns,
            "question": parts(question, MOST_PART),
        },
    )


def show_state(ask: ViewRequest, state: str) -> View:
    """Show each action that was taken in a state, and its return.

    Raises:
        NotFoundError: If no call saw this state.
    """
    numbers = ask.row("state_numbers", state=state)
    if not numbers.get("visits"):
        raise NotFoundError(f"There is no state '{state}'.")
    rows = ask.rows("state_calls", state=state, rows=PAGE_ROWS, most_text=MOST_TEXT)
    columns = [
        {
            **row,
            "href": link(row) + f"&step={row['step']}#s{row['step']}",
            "answers": parts(row["answer"], MOST_PART),
        }
        for row in rows
    ]
    question = next((row["question"] for row in rows if row["question"]), None)
    return View(
        "state.html",
        f"State {state[:16]}",
        {
            "state": state,
            "numbers": numbers,
            "columns": columns,
            "question": parts(question, MOST_PART),
        },
    )


def _times(rows: list[dict[str, Any]]) -> dict[str, int | None]:
    """Return the time of rollouts, by which DuckDB skips other blocks; None if one has no start."""
    if any(row["start_ns"] is None for row in rows):
        return {"start_ns": None, "end_ns": None}
    return {
        "start_ns": min(row["start_ns"] for row in rows) - SECOND_NS,
        "end_ns": max(row["end_ns"] or row["start_ns"] for row in rows) + SECOND_NS,
    }


def _chosen(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rollouts to compare: the best and the worst by turns, then the others."""
    # Best first; those without a reward last.
    ranked = sorted(rows, key=lambda r: (r["final_reward"] is None, -(r["final_reward"] or 0)))
    judged = [row for row in ranked if row["final_reward"] is not None]
    mixed: list[dict[str, Any]] = []
    while judged:
        mixed.append(judged.pop(0))
        if judged:
            mixed.append(judged.pop())
    return [*mixed, *(row for row in ranked if row["final_reward"] is None)][:COLUMNS]


def _answers(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "step": call["step"],
            "parts": parts(call["answer"], MOST_PART),
            "error": call["error_type"],
            "differs": False,
        }
        for call in sorted(calls, key=lambda call: call["step"])
    ]


def _mark_first_difference(columns: list[dict[str, Any]]) -> None:
    """Mark in each column the first step that differs from the first column's."""
    if not columns:
        return
    reference = columns[0]["steps"]
    for column in columns[1:]:
        for index, step in enumerate(column["steps"]):
            is_equal = index < len(reference) and _content(reference[index]) == _content(step)
            if not is_equal:
                step["differs"] = True
                break


def _content(step: dict[str, Any]) -> tuple[Any, ...]:
    """Return the parts of a step by which it is compared: its error and what the model said."""
    parts: list[Part] = step["parts"]
    return (step["error"], *((part.kind, part.name, part.text) for part in parts))
