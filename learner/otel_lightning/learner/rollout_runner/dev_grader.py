"""Grade the rollouts of `--dev` once more, with expected results that are wrong."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from otel_lightning.collector.store import Store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.rollout_runner.grading import Grading, answer_of
from otel_lightning.learner.rollout_runner.plan import Job
from otel_lightning.learner.rollout_runner.report import Report
from otel_lightning.learner.rollout_runner.run import tasks_of
from otel_lightning.learner.score.rules import python
from otel_lightning.learner.score.rules.frames import scan
from otel_lightning.learner.score.rules.spec import Rule, read_rule

WRONG = "deliberately wrong: 4711-0815"
"""An expected result that no agent gives."""


def wrong_results(job: Job, report: Report) -> dict[str, Any]:
    """Return a wrong expected result for each rollout whose task has an expected one.

    It is that of another task, since a grader may need its form: a number, an object, a query. If
    all tasks expect the same, it is a text that no agent gives.
    """
    expected = {task.task_id: task.expected for task in tasks_of(replace(job, limit=None))}
    wrong = {}
    for rollout, task in report.tasks.items():
        right = expected[task]
        other_answers = [
            answer for answer in expected.values() if answer is not None and answer != right
        ]
        if right is not None:
            wrong[rollout] = other_answers[0] if other_answers else WRONG
    return wrong


def graded_as_wrong(
    store: Store, grading: Grading, wrong: Mapping[str, Any]
) -> dict[str, float] | None:
    """Return the scores of rollouts with other expected results.

    Args:
        store: The open store.
        grading: The grader.
        wrong: The expected result to grade each rollout with.

    Returns:
        The scores; a rollout on which the grader fails has none. None if this kind of grader cannot
        be asked.
    """
    if grading.command:
        return _by_command(store, grading, wrong)
    rule = read_rule(grading.rule or "")
    if rule.path.suffix != ".py":
        return None
    return _by_function(store, rule, wrong)


def _by_command(store: Store, grading: Grading, wrong: Mapping[str, Any]) -> dict[str, float]:
    scores = {}
    for row in read(store, __package__, "to_grade", rollouts=[*wrong]).to_dicts():
        rollout = row["rollout_id"]
        answer = answer_of(grading.command, {**row, "expected": json.dumps(wrong[rollout])})
        if not isinstance(answer, str):
            scores[rollout] = float(answer["value"])
    return scores


def _by_function(store: Store, rule: Rule, wrong: Mapping[str, Any]) -> dict[str, float] | None:
    function = python.load(rule)
    if function.wants != "rollouts":
        return None
    # A text as it is and any other value as JSON, as the column `expected` has it.
    texts = {
        rollout: value if isinstance(value, str) else json.dumps(value)
        for rollout, value in wrong.items()
    }
    frame = scan(store, "rollouts", [*wrong]).collect()
    expected_texts = frame["rollout_id"].replace_strict(texts, return_dtype=pl.String)
    try:
        graded = python.scored(function, frame.with_columns(expected=expected_texts).lazy())
    except DataError:
        return {}
    of_rollouts = graded.scores.filter(
        pl.col("value").is_not_null(), pl.col("span_id").is_null(), name=rule.name
    )
    return dict(of_rollouts.select("rollout_id", "value").iter_rows())
