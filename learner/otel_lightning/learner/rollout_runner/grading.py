"""Give rewards to the rollouts of a run: by a rule, a command, the exit code, or as received.

Whatever goes wrong in a grader is "not graded", never a reward of 0.
"""

import json
import math
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import polars as pl

from otel_lightning.collector.store import Sql, Store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.rollout_runner.attempts import FAILED, LOST, OK, TIMEOUT
from otel_lightning.learner.score.rules import grade_rollouts
from otel_lightning.learner.score.table import GIVEN_LATER, replace_scores

PREFIX = "run:"
"""Prefix of the source of rewards that a command or an exit code gave: they count as received."""
COMMAND_SECONDS = 120.0
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Grading:
    """How rollouts get their rewards. Without any of these, by the events that the agent sends."""

    rule: str | None = None
    """`FILE.py:FUNCTION`, `FILE.sql` or `FILE.toml`: an ordinary reward rule."""
    command: Sequence[str] = ()
    """A program that reads JSON and prints a number, or an object with score and explanation."""
    by_exit_code: bool = False
    """1 for exit code 0, 0 for any other."""
    failed_reward: float | None = None
    """Reward of rollouts that failed or timed out; without it the grader sees them too."""
    reward: str | None = None
    """Name of the received rewards to report, if the agent sends several."""
    jobs: int = 2

    @property
    def is_given(self) -> bool:
        """Whether a grader of the run gives the rewards."""
        return bool(self.rule or self.command or self.by_exit_code)


@dataclass(slots=True)
class Graded:
    """The rewards of a run, and what went wrong."""

    name: str | None
    rewards: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def grade(store: Store, grading: Grading, statuses: Mapping[str, str]) -> Graded:
    """Grade rollouts, and write the rewards to the store.

    Args:
        store: An open store, whose derived tables are up to date.
        grading: How.
        statuses: Status of each rollout, by its id. One that was lost gets no reward.

    Raises:
        DataError: If the grader cannot be used at all.
    """
    told = {one: status for one, status in statuses.items() if status != LOST}
    forced = {
        one: grading.failed_reward
        for one, status in told.items()
        if grading.failed_reward is not None and status in (FAILED, TIMEOUT)
    }
    graded = [one for one in told if one not in forced]
    if grading.rule:
        return _by_rule(store, grading.rule, graded, forced)
    if grading.command:
        return _by_command(store, grading, graded, forced)
    if grading.by_exit_code:
        values = {one: float(told[one] == OK) for one in graded if told[one] != TIMEOUT}
        return _written(
            store, "exit_code", "exit", [_row(*one) for one in (values | forced).items()]
        )
    return _received(store, grading.reward, list(told))


def check(grading: Grading) -> None:
    """Refuse a grader that cannot work, before any agent runs.

    Raises:
        DataError: If a rule cannot be read or has no such function, or there are two graders.
    """
    given = [bool(grading.rule), bool(grading.command), grading.by_exit_code]
    if sum(given) > 1:
        raise DataError("Give one of --grade, --grade-command and --exit-code-is-reward.")
    if grading.failed_reward is not None and not any(given):
        raise DataError("--failed-reward needs a grader: --grade, --grade-command or ….")
    if grading.rule:
        from otel_lightning.learner.score.rules import python
        from otel_lightning.learner.score.rules.spec import read_rule

        rule = read_rule(grading.rule)
        if rule.path.suffix == ".py":
            python.load(rule)


def _by_rule(
    store: Store, spec: str, rollouts: Sequence[str], forced: Mapping[str, float | None]
) -> Graded:
    extra = pl.DataFrame(
        [_row(*one) for one in forced.items()],
        schema={"rollout_id": pl.String, "value": pl.Float64},
    )
    applied = grade_rollouts(store, spec, rollouts, extra)
    problems = [str(one) for one in applied.left_out]
    return Graded(applied.name, _given(store, applied.name, [*rollouts, *forced]), problems)


def _by_command(
    store: Store, grading: Grading, rollouts: Sequence[str], forced: Mapping[str, float | None]
) -> Graded:
    asked = read(store, __package__, "to_grade", rollouts=rollouts).to_dicts()
    with ThreadPoolExecutor(grading.jobs) as threads:
        answers = list(threads.map(lambda row: _answer(grading.command, row), asked))
    rows = [_row(*one) for one in forced.items()]
    failures: dict[str, list[str]] = {}
    for row, answer in zip(asked, answers, strict=True):
        if isinstance(answer, str):
            failures.setdefault(answer, []).append(row["rollout_id"])
        else:
            rows.append({"rollout_id": row["rollout_id"], **answer})
    made_by = sha256("\0".join(grading.command).encode()).hexdigest()[:12]
    graded = _written(store, "grade_command", made_by, rows)
    graded.problems = [_named(reason, names) for reason, names in failures.items()]
    return graded


def _answer(command: Sequence[str], row: Mapping[str, Any]) -> dict[str, Any] | str:
    """Ask the grading command about one rollout; return the score, or why there is none."""
    parsed = {name: json.loads(row[name] or "null") for name in ("input", "expected", "metadata")}
    asked = json.dumps({**row, **parsed}, ensure_ascii=False)
    try:
        done = subprocess.run(
            command,
            input=asked.encode("utf-8", "replace"),
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the grading command cannot be run ({type(error).__name__}: {error})"
    if done.returncode:
        words = " ".join(done.stderr.decode("utf-8", "replace").split())[-200:]
        return f"the grading command ended with code {done.returncode}: {words}"
    return _score(done.stdout.decode("utf-8", "replace"))


def _score(text: str) -> dict[str, Any] | str:
    said = f"the grading command printed '{text.strip()[:60]}', no number and no score"
    try:
        found = json.loads(text)
    except ValueError:
        return said
    answer = found if isinstance(found, dict) else {"score": found}
    value = answer.get("score")
    if not isinstance(value, bool | int | float) or not math.isfinite(value):
        return said
    explanation = answer.get("explanation")
    return {"value": float(value), "explanation": None if explanation is None else str(explanation)}


def _row(rollout: str, value: float | None) -> dict[str, Any]:
    return {"rollout_id": rollout, "value": value}


def _written(store: Store, name: str, made_by: str, rows: Iterable[Mapping[str, Any]]) -> Graded:
    """Write the rewards that a grader of the run gave; they count as received ones."""
    frame = pl.DataFrame(
        [{"explanation": None, **row} for row in rows],
        schema={"rollout_id": pl.String, "value": pl.Float64, "explanation": pl.String},
    )
    source = f"{PREFIX}{name}"
    scores = frame.with_columns(name=pl.lit(name), source=pl.lit(f"{source}@{made_by}"))
    replace_scores(store, source, scores, among=frame["rollout_id"].to_list())
    return Graded(name, dict(frame.select("rollout_id", "value").iter_rows()))


def _given(store: Store, name: str, rollouts: Sequence[str]) -> dict[str, float]:
    rows = read(store, __package__, "given_rewards", rollouts=rollouts, reward=name)
    return dict(rows.select("rollout_id", "value").iter_rows())


def _received(store: Store, name: str | None, rollouts: Sequence[str]) -> Graded:
    rows = read(
        store,
        __package__,
        "received_rewards",
        rollouts=rollouts,
        reward=name or "",
        any_reward=name is None,
        given_later=Sql(GIVEN_LATER),
    )
    return Graded(name, dict(rows.select("rollout_id", "value").iter_rows()))


def _named(reason: str, rollouts: Sequence[str]) -> str:
    more = len(rollouts) - SHOWN
    names = ", ".join(rollouts[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{len(rollouts)} not graded: {reason} ({names})."
