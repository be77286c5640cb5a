"""The settings and the state of a loop, and how its stages run the agent."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.loop.config import PROMPTS, Config
from otel_lightning.learner.loop.server import ModelServer
from otel_lightning.learner.loop.splits import Split
from otel_lightning.learner.loop.state import WON, State
from otel_lightning.learner.prompts.compare import champion
from otel_lightning.learner.rollout_runner import (
    Arms,
    Grading,
    Job,
    Report,
    Task,
    run_agent,
)
from otel_lightning.learner.rollout_runner.arms import flag_variables, write_flags


@dataclass(slots=True)
class Loop:
    """The settings and state that all stages of a loop share."""

    config: Config
    store: Path
    state: State
    split: Split
    folder: Path
    """Folder of the loop: logs, and flag files as they were."""
    server: ModelServer | None

    def run(  # noqa: PLR0913 - what to run, and with what live
        self,
        name: str,
        tasks: Sequence[Task],
        samples: int,
        *,
        arms: Sequence[str] = (),
        flags: Path | None = None,
        model: str | None = None,
        number: int = 0,
    ) -> Report:
        """Run the agent on tasks; rollouts that exist are not run again.

        Args:
            name: Name of the run within the loop.
            tasks: The tasks.
            samples: Rollouts of each task.
            arms: Variants of the flag to run, each on all tasks.
            flags: Without arms: the flag file that the agent reads, with all its variants.
            model: Label of the served model.
            number: The round, which the seed follows from.

        Raises:
            DataError: If the run was interrupted, or no rollout has a reward.
        """
        part, flag = self.config.run, self.config.flag
        arms_to_compare = Arms(flag.key, flag.flags, list(arms)) if flag and arms else None
        # For prompts a server reads the loop's own flag file, and each request asks it for the arm.
        is_served_by_url = part.url is not None and PROMPTS in self.config.learn.what
        if arms_to_compare and len(arms) == 1 and not is_served_by_url:
            # A flag file that serves this variant only.
            flags = write_flags(arms_to_compare, f"{self.config.name}.{name}", self.folder)[arms[0]]
            arms_to_compare = None
        job = Job(
            tasks=tasks,
            command=part.command,
            url=part.url,
            serve=part.serve,
            name=f"{self.config.name}.{name}",
            samples=samples,
            jobs=part.jobs,
            timeout=part.timeout,
            retries=part.retries,
            # Each round has seeds of its own; a thousand rounds fit between two seeds of a user.
            seed=part.seed * 1000 + number,
            stdin=part.stdin,
            arms=arms_to_compare,
            environment=flag_variables(flags) if flags else None,
            model=model,
        )
        report = run_agent(self.store, job, self._grading())
        _check_report(report)
        return report

    def _grading(self) -> Grading:
        part = self.config.run
        return Grading(
            rule=part.grade,
            command=part.grade_command,
            by_exit_code=part.exit_code_is_reward,
            failed_reward=part.failed_reward,
            reward=part.reward,
            jobs=part.jobs,
        )

    @property
    def model(self) -> Path | None:
        """The model that is served: the last one that won, or the first one."""
        if self.config.weights is None:
            return None
        # In the order of the rounds, so the last one is the newest.
        gates = self.state.of_stage("weights_gate").values()
        promoted = [details["output"] for outcome, details in gates if outcome == WON]
        return Path(promoted[-1]) if promoted else self.config.weights.model

    @property
    def live(self) -> str | None:
        """The variant that has most of the traffic."""
        flag = self.config.flag
        return None if flag is None else champion(flag.flags, flag.key)

    def serve(self, model: Path | None) -> None:
        """Serve a model if the loop serves one."""
        if self.server is not None and model is not None:
            self.server.serve(model)

    def alpha(self, number: int) -> float:
        """Return the error probability of each gate of a round.

        The rest of the loop's is divided evenly among the rounds to come, and then among the
        gates of the round, so that all rounds together err with probability `[gate] alpha` at most.
        """
        spent = sum(
            float(details.get("alpha", 0.0))
            for (of_round, _), (_, details) in self.state.ended.items()
            if 0 < of_round < number
        )
        rounds = max(self.config.learn.rounds - number + 1, 1)
        return max(self.config.gate.alpha - spent, 0.0) / rounds / len(self.config.learn.what)


def _check_report(report: Report) -> None:
    """Refuse a run that did not end, or that has no reward."""
    if report.stopped or report.interrupted:
        raise DataError(
            f"Run '{report.run_id}' did not end ({report.stopped or 'interrupted'}). Start "
            "the loop again: it goes on from here."
        )
    if not report.rewards:
        raise DataError(
            f"No rollout of run '{report.run_id}' has a reward. {' '.join(report.problems)} "
            "Give a grader in [run], or let the agent send rewards."
        )
