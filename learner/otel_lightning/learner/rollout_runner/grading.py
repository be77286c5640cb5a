"""Give rewards to the rollouts of a run: by a rule, a command, the exit code, or as received.

If a grader fails, the rollout is not graded: it never gets a reward of 0 for that.
"""

import json
import math
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_lightning.collector.files.reason import named_reason
from otel_lightning.collector.store import Sql
from otel_lightning.collector.store.rows import Rows
from otel_lightning.collector.store.sql_text import statement
from otel_lightning.instrumentation import attributes
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.attempts import FAILED, LOST, OK, TIMEOUT
from otel_lightning.learner.rollout_runner.context import rows_of
from otel_lightning.learner.rollout_runner.ingester.receiver import Event
from otel_lightning.learner.score.rewards import GIVEN_LATER, HUGE

Reward = dict[str, Any]
"""A reward: `value`, and perhaps `explanation`."""
COMMAND_SECONDS = 120.0
"""Time limit of the grading command for one rollout."""
TRANSITIONS = "otel_lightning.learner.transitions"
"""The package whose statements place a reward."""
MAX_NAMED = 3
"""Number of rollouts that are named in the message about a failure."""


@dataclass(frozen=True, slots=True)
class Grading:
    """How rollouts get their rewards. With all defaults, the agent sends them as events."""

    rule: str | None = None
    """`FILE.py:FUNCTION`, `FILE.sql` or `FILE.toml`: an ordinary reward rule."""
    command: Sequence[str] = ()
    """A program that reads JSON and prints a number, or an object with score and explanation."""
    by_exit_code: bool = False
    """1 for exit code 0, 0 for any other."""
    failed_reward: float | None = None
    """Reward of rollouts that failed or timed out. None: the grader judges these, too."""
    reward: str | None = None
    """Name of the received rewards to report; None adds up those of all names."""
    jobs: int = 2
    """Number of grading commands that run at the same time."""

    @property
    def has_grader(self) -> bool:
        """Whether a grader of the run gives the rewards."""
        return bool(self.rule or self.command or self.by_exit_code)


@dataclass(slots=True)
class Graded:
    """The rewards of a run, and the problems of grading."""

    name: str | None
    rewards: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def grade(
    store: Rows,
    path: Path,
    grading: Grading,
    statuses: Mapping[str, str],
    send: Callable[[list[Event]], None],
) -> Graded:
    """Grade rollouts, and write the rewards to the store.

    Args:
        store: An open store, whose derived tables are up to date.
        path: Its path.
        grading: The grader.
        statuses: Status of each rollout, by its id. One that was lost gets no reward.
        send: Sends the rewards of a command or of exit codes as events, and returns once they
            are in the store.

    Raises:
        DataError: If the grader cannot be used at all.
    """
    # A lost attempt says nothing about the agent, so it gets no reward, not even a bad one.
    ended = {rollout: status for rollout, status in statuses.items() if status != LOST}
    forced = {
        rollout: {"value": grading.failed_reward}
        for rollout, status in ended.items()
        if grading.failed_reward is not None and status in (FAILED, TIMEOUT)
    }
    graded = [rollout for rollout in ended if rollout not in forced]
    if grading.rule:
        return _by_rule(store, path, grading, graded, list(forced))
    if grading.command:
        rewards, problems = _by_command(store, grading, graded)
        return _sent("grade_command", rewards | forced, problems, send)
    if grading.by_exit_code:
        # An agent that was killed at its time limit has no exit code of its own.
        exits = {
            rollout: {"value": float(ended[rollout] == OK)}
            for rollout in graded
            if ended[rollout] != TIMEOUT
        }
        return _sent("exit_code", exits | forced, [], send)
    return _received(store, grading.reward, list(ended))


def check(grading: Grading) -> None:
    """Refuse a grader that cannot work, before any agent runs.

    Raises:
        DataError: If a rule cannot be read or has no such function, there is no such command, or
            there are two graders.
    """
    graders = [bool(grading.rule), bool(grading.command), grading.by_exit_code]
    if sum(graders) > 1:
        raise DataError("Give one of --grade, --grade-command and --exit-code-is-reward.")
    if grading.failed_reward is not None and not any(graders):
        raise DataError(
            "--failed-reward needs a grader: --grade, --grade-command or --exit-code-is-reward."
        )
    if grading.failed_reward is not None and abs(grading.failed_reward) > HUGE:
        raise DataError(
            f"--failed-reward is {grading.failed_reward:g}. Beyond {HUGE:g} nothing can be "
            "computed with a reward: give another one."
        )
    if grading.command and shutil.which(grading.command[0]) is None:
        raise DataError(
            f"The grading command cannot be run: there is no program '{grading.command[0]}'."
        )
    if grading.rule:
        from otel_lightning.learner.score.rules import python
        from otel_lightning.learner.score.rules.spec import read_rule

        rule = read_rule(grading.rule)
        if rule.path.suffix == ".py":
            # Imports the file now: a syntax error should not show after an hour of rollouts.
            python.load(rule)


def _by_rule(
    connection: Rows, path: Path, grading: Grading, rollouts: Sequence[str], forced: Sequence[str]
) -> Graded:
    # Only here: a rule reads its rollouts as polars frames, and other graders need none.
    import polars as pl

    from otel_lightning.collector.store import Store, opened
    from otel_lightning.learner.score.rules import grade_rollouts

    forced_rewards = pl.DataFrame(
        {"rollout_id": forced}, schema={"rollout_id": pl.String}
    ).with_columns(value=pl.lit(grading.failed_reward, pl.Float64))
    with opened(connection if isinstance(connection, Store) else path) as store:
        applied = grade_rollouts(store, grading.rule or "", rollouts, forced_rewards)
        rows = rows_of(store, "given_rewards", rollouts=[*rollouts, *forced], reward=applied.name)
    rewards = {row["rollout_id"]: row["value"] for row in rows}
    return Graded(applied.name, rewards, [str(error) for error in applied.left_out])


def _by_command(
    store: Rows, grading: Grading, rollouts: Sequence[str]
) -> tuple[dict[str, Reward], list[str]]:
    rows = rows_of(store, "to_grade", rollouts=rollouts)
    # Threads are enough: each only waits for a process.
    with ThreadPoolExecutor(grading.jobs) as threads:
        answers = list(threads.map(lambda row: answer_of(grading.command, row), rows))
    rewards: dict[str, Reward] = {}
    failures: dict[str, list[str]] = {}
    for row, answer in zip(rows, answers, strict=True):
        if isinstance(answer, str):
            # One message for each reason, not one for each rollout.
            failures.setdefault(answer, []).append(row["rollout_id"])
        else:
            rewards[row["rollout_id"]] = answer
    return rewards, [_named(reason, names) for reason, names in failures.items()]


def answer_of(command: Sequence[str], row: Mapping[str, Any]) -> Reward | str:
    """Ask the grading command about one rollout; return the score, or why there is none."""
    parsed = {name: json.loads(row[name] or "null") for name in ("input", "expected", "metadata")}
    question = json.dumps({**row, **parsed}, ensure_ascii=False)
    try:
        process = subprocess.run(
            command,
            input=question.encode("utf-8", "replace"),
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the grading command cannot be run ({named_reason(error)})"
    if process.returncode:
        errors = " ".join(process.stderr.decode("utf-8", "replace").split())[-200:]
        return f"the grading command ended with code {process.returncode}: {errors}"
    return _score(process.stdout.decode("utf-8", "replace"))


def _score(text: str) -> Reward | str:
    problem = f"the grading command printed '{text.strip()[:60]}', no number and no score"
    try:
        parsed = json.loads(text)
    except ValueError:
        return problem
    answer = parsed if isinstance(parsed, dict) else {"score": parsed}
    value = answer.get("score")
    if not isinstance(value, bool | int | float):
        return problem
    if isinstance(value, float) and not math.isfinite(value):
        return problem
    if abs(value) > HUGE:  # also an integer of 400 digits, which is no float
        return f"the grading command gave a score beyond {HUGE:g}, which cannot be computed with"
    explanation = answer.get("explanation")
    return {"value": float(value), "explanation": None if explanation is None else str(explanation)}


def _sent(
    name: str,
    rewards: Mapping[str, Reward],
    problems: list[str],
    send: Callable[[list[Event]], None],
) -> Graded:
    """Send rewards as events; a reward that is sent again replaces the earlier one."""
    now = time.time_ns()
    events = [
        Event(
            attributes.EVALUATION_RESULT,
            now,
            {},
            {
                attributes.EVALUATION_NAME: name,
                attributes.EVALUATION_SCORE_VALUE: float(reward["value"]),
                attributes.ROLLOUT_ID: rollout,
                # The id of the reward: grading again replaces it instead of adding a second one.
                attributes.FEEDBACK_ID: f"{name}:{rollout}",
                **(
                    {attributes.EVALUATION_EXPLANATION: reward["explanation"]}
                    if reward.get("explanation")
                    else {}
                ),
            },
        )
        for rollout, reward in rewards.items()
    ]
    send(events)
    return Graded(
        name, {rollout: float(reward["value"]) for rollout, reward in rewards.items()}, problems
    )


def _received(store: Rows, name: str | None, rollouts: Sequence[str]) -> Graded:
    parts = {
        part: Sql(statement(TRANSITIONS, part).rstrip())
        for part in ("reward_places", "placed_rewards")
    }
    rows = rows_of(
        store,
        "received_rewards",
        **parts,
        rollouts=rollouts,
        reward=name or "",
        any_reward=name is None,
        given_later=Sql(GIVEN_LATER),
        huge=HUGE,
    )
    problem = {row["rollout_id"]: _why_unusable(row) for row in rows}
    usable = [row for row in rows if problem[row["rollout_id"]] is None]
    reasons: dict[str, list[str]] = {}
    for rollout, reason in problem.items():
        if reason is not None:
            reasons.setdefault(reason, []).append(rollout)
    problems = [_named(reason, reasons[reason]) for reason in sorted(reasons)]
    names = sorted({row[column] for row in usable for column in ("first_name", "last_name")})
    if len(names) > 1:
        problems.append(
            f"Rewards of several names were added up, such as '{names[0]}' and '{names[-1]}', as "
            "learning does; choose one with --reward."
        )
    return Graded(name, {row["rollout_id"]: row["value"] for row in usable}, problems)


def _why_unusable(row: Mapping[str, Any]) -> str | None:
    """Return why learning refuses the received rewards of a rollout, or None if it takes them."""
    if not row["finite"]:
        return "the reward is not a finite number"
    if row["huge"]:
        return f"the reward is beyond {HUGE:g}, which cannot be computed with"
    return "two rewards of one name and time differ" if row["contradicts"] else None


def _named(reason: str, rollouts: Sequence[str]) -> str:
    unnamed = len(rollouts) - MAX_NAMED
    names = ", ".join(sorted(rollouts)[:MAX_NAMED]) + (
        f" and {unnamed} more" if unnamed > 0 else ""
    )
    return f"{len(rollouts):,} not graded: {reason} ({names})."
