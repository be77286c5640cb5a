"""Run a loop: rounds of stages, stop rules, hooks, and the last report."""

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from otel_lightning.collector.files.reason import named_reason
from otel_lightning.collector.store import open_store
from otel_lightning.collector.terminal.quantities import decimal, number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.reward_range import OutsideRangeError
from otel_lightning.learner.file_lock import locked_alone, opened_lock
from otel_lightning.learner.loop.config import KINDS, PROMPTS, Config, StopPart
from otel_lightning.learner.loop.config_file import read_config
from otel_lightning.learner.loop.last_report import final_report
from otel_lightning.learner.loop.loop import Loop
from otel_lightning.learner.loop.server import ModelServer
from otel_lightning.learner.loop.splits import divide
from otel_lightning.learner.loop.stages import STAGES, make_transitions, run_train
from otel_lightning.learner.loop.state import DONE, WON, Details, Result, State
from otel_lightning.learner.policy.serving import joint
from otel_lightning.learner.policy.serving.flag_file import read_flag_file
from otel_lightning.learner.prompts.serving.share import check_flag
from otel_lightning.learner.rollout_runner import read_tasks
from otel_lightning.learner.rollout_runner.plan import runs_folder
from otel_lightning.learner.rollout_runner.tasks import copies_warning

HOOK_SECONDS = 600.0
MIN_ALPHA = 1e-9
"""An error probability below this is what rounding leaves of one that is spent."""
Echo = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """The result of a loop."""

    rounds: int
    stopped: str | None
    """Which stop rule ended it before the last round."""
    promoted: int
    """Number of gates that a candidate passed."""
    final: Details
    problems: list[str] = field(default_factory=list)
    """Hooks that failed."""


def run_loop(path: Path, store: Path, echo: Echo = lambda _: None) -> Outcome:
    """Run the rounds of a loop; one that was killed goes on where it was.

    Args:
        path: The loop's file.
        store: Path of the store, which is created if it does not exist.
        echo: Called with a sentence after each stage.

    Raises:
        DataError: If the file cannot be used, has changed since the loop began, or a stage fails.
        StoreError: If the store cannot be read or written.
    """
    config = read_config(path)
    folder = store.with_name(f"{store.name}.loops") / config.name
    with _locked(folder, config.name):
        loop = _prepared(config, store, folder)
        try:
            return _rounds(loop, echo)
        finally:
            if loop.server is not None:
                loop.server.stop()


def _prepared(config: Config, store: Path, folder: Path) -> Loop:
    """Check all inputs, and compare them with those that the loop began with.

    Raises:
        DataError: If one cannot be used, or the settings or the tasks are other ones.
    """
    tasks = read_tasks(config.run.tasks).tasks
    if config.flag is not None:
        document = read_flag_file(config.flag.flags, config.flag.key)
        joint.check_alone(document["flags"], config.flag.key, store)
        if PROMPTS in config.learn.what:
            check_flag(config.flag.flags, document, config.flag.key)
    # Create the store, and refuse one that cannot be used, before anything runs. It is closed
    # again, because agents and the ingester must be able to open it.
    open_store(store).close()
    state = State.of(store, config.name)
    part = config.weights
    server = ModelServer(part.serve, part.ready, part.ready_seconds, folder) if part else None
    loop = Loop(config, store, state, divide(tasks, config.split), folder, server)
    of_tasks = "\0".join(sorted(task.whole_fingerprint for task in tasks))
    inputs = {"settings": config.identity, "tasks": sha256(of_tasks.encode()).hexdigest()[:16]}
    if not _has_run(loop):
        # Nothing was measured with the former settings, such as a grader whose name was misspelt.
        state.ended.pop((0, "start"), None)
    # Round 0 keeps what the loop began with; every later start compares itself with it.
    _, first = state.once(
        0, "start", lambda: (DONE, inputs | {"arm": loop.live} | _keep_first(loop))
    )
    for name, subject in (("settings", "The settings"), ("tasks", "The tasks")):
        if first[name] != inputs[name]:
            raise DataError(
                f"{subject} of loop '{config.name}' changed after it began. Set them back, or give "
                "the loop another name, which starts a new loop. Only the rounds, the stop rules, "
                "hooks, jobs, timeout, retries and the reward_range may change."
            )
    return loop


def _has_run(loop: Loop) -> bool:
    """Return whether a stage has ended, or a run of the agent has begun."""
    runs = runs_folder(loop.store)
    has_begun = any(file.name.startswith(f"{loop.config.name}.") for file in runs.glob("*"))
    return has_begun or any(number > 0 for number, _ in loop.state.ended)


def _keep_first(loop: Loop) -> Details:
    """Copy the flag file as it is at the beginning, for the last report; return the first model."""
    flag = loop.config.flag
    if flag is not None:
        (loop.folder / "first.json").write_bytes(flag.flags.read_bytes())
    return {"model": str(loop.model) if loop.model else None}


def _rounds(loop: Loop, echo: Echo) -> Outcome:
    config, state = loop.config, loop.state
    problems: list[str] = []
    _check_unread(config, state)
    if warning := copies_warning([*loop.split.held_out, *loop.split.final], loop.split.train):
        echo(warning)
    ended_rounds, stopped = 0, None
    # Rounds that are done are walked through again: each of their stages returns its recorded
    # result.
    while ended_rounds < config.learn.rounds and not (
        stopped := stop_rule(config.stop, state, ended_rounds)
    ):
        _round(loop, ended_rounds + 1, echo)
        problems += _end_round(loop, ended_rounds + 1, echo)
        ended_rounds += 1
    _, final = state.once(0, "final", lambda: final_report(loop))
    promoted = sum(outcome == WON for outcome, _ in state.ended.values())
    if config.hooks.after_loop:
        problem = _call_hook(config.hooks.after_loop, {"loop": config.name, "final": final})
        problems += [problem] if problem else []
    return Outcome(ended_rounds, stopped, promoted, final, problems)


def _check_unread(config: Config, state: State) -> None:
    """Refuse rounds after the last report: to learn on and report again would select by its tasks.

    Raises:
        DataError: If the last report was made, and another round would begin.
    """
    last = max((number for number, stage in state.ended if stage == "end"), default=0)
    if (
        (0, "final") in state.ended
        and config.learn.rounds > last
        and not stop_rule(config.stop, state, last)
    ):
        raise DataError(
            f"Loop '{config.name}' has made its last report after round {last}, which read the "
            "final tasks. Further rounds need tasks that nobody has read: begin another loop."
        )


def _round(loop: Loop, number: int, echo: Echo) -> None:
    if loop.alpha(number) < MIN_ALPHA:
        raise DataError(
            f"No gate of round {number} could pass: the rounds before have spent [gate] alpha, "
            f"{loop.config.gate.alpha:g}. Set [learn] rounds back to {number - 1}, or begin "
            "another loop, with tasks that nobody has read."
        )
    stages = [("run", run_train), ("transitions", make_transitions)]
    for kind in KINDS:
        if kind in loop.config.learn.what:
            stages += STAGES[kind]
    for name, do in stages:
        was_recorded = (number, name) in loop.state.ended
        try:
            outcome, details = loop.state.once(number, name, partial(do, loop, number))
        except OutsideRangeError as error:
            raise DataError(error.in_a_loop) from error
        before = " (before)" if was_recorded else ""
        echo(f"Round {number}, {name}: {outcome}{before}{_brief(details)}.")


def _brief(details: Details) -> str:
    """Return the important numbers of a stage, as one line."""
    facts = []
    if details.get("mean") is not None:
        rollouts = number_of(details["graded"], "rollout")
        facts.append(f"{rollouts}, mean reward {decimal(details['mean'])}")
    facts += [f"proposed {name}" for name in details.get("candidates", ())]
    verdicts = details.get("verdicts") or {}
    facts += [f"{name} gains {_signed(verdict['gain'])}" for name, verdict in verdicts.items()]
    if details.get("verdict"):
        facts.append(f"gain {_signed(details['verdict']['gain'])}")
    if details.get("winner"):
        facts.append(f"{details['winner']} is live")
    if "alpha" in details:
        facts.append(f"level {details['alpha']:.3g}")
    return f"; {', '.join(facts)}" if facts else ""


def _signed(value: float | None) -> str:
    return "unknown" if value is None else decimal(value, "+")


def stop_rule(rules: StopPart, state: State, number: int) -> str | None:
    """Return which stop rule holds after a round; None if the next one may begin."""
    if number == 0:
        return None
    rollouts = sum(
        int(details.get("rollouts", 0))
        for (of_round, _), (_, details) in state.ended.items()
        # Only stages that run the agent count: training runs have a mean, gates have an alpha.
        # Transitions, too, have a number of rollouts, but run none.
        if 0 < of_round <= number and ("alpha" in details or "mean" in details)
    )
    if rules.rollouts is not None and rollouts >= rules.rollouts:
        return (
            f"{number_of(rollouts, 'rollout was', 'rollouts were')} run, of {rules.rollouts:,} "
            "that [stop] allows"
        )
    if rules.hours is not None and (hours := state.hours(number)) >= rules.hours:
        return f"{hours:.3g} hours were worked, of {rules.hours:g} that [stop] allows"
    if rules.no_gain_rounds is not None and number >= rules.no_gain_rounds:
        recent = range(number - rules.no_gain_rounds + 1, number + 1)
        won = {of_round for (of_round, _), (outcome, _) in state.ended.items() if outcome == WON}
        if won.isdisjoint(recent):
            return f"{number_of(rules.no_gain_rounds, 'round')} in a row gained nothing"
    return None


def _end_round(loop: Loop, number: int, echo: Echo) -> list[str]:
    """Call the hook of a round once, with its results as JSON; return the hook's error, if any."""

    def end() -> Result:
        results = {
            stage: {"outcome": outcome, **details}
            for (of_round, stage), (outcome, details) in loop.state.ended.items()
            if of_round == number
        }
        summary = {"loop": loop.config.name, "round": number, "stages": results, "live": loop.live}
        command = loop.config.hooks.after_round
        return DONE, {"hook": _call_hook(command, summary) if command else None}

    _, details = loop.state.once(number, "end", end)
    problem = details.get("hook")
    if problem:
        echo(f"Round {number}: {problem}")
    return [problem] if problem else []


def _call_hook(command: str, summary: dict[str, Any]) -> str | None:
    """Call a hook; return its error, or None."""
    try:
        process = subprocess.run(
            # Split into words as a shell would, but no shell runs it.
            shlex.split(command),
            input=json.dumps(summary).encode(),
            capture_output=True,
            timeout=HOOK_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"The hook '{command}' cannot be run: {named_reason(error)}."
    if process.returncode:
        words = " ".join(process.stderr.decode("utf-8", "replace").split())[-200:]
        return f"The hook '{command}' ended with code {process.returncode}: {words}"
    return None


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    """Make the loop's folder and hold its lock, so that no second process runs the same loop."""
    with opened_lock(folder / "lock") as file:
        if not locked_alone(file):
            raise DataError(f"Loop '{name}' runs already, in another process.")
        yield
