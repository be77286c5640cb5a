"""The stored traces of agents, for notebooks: the recorded data, and each step of learning."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from otel_lightning.collector.store import StoreLike, opened
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.export.formats import FORMATS
from otel_lightning.learner.export.write import Exported, export_transitions
from otel_lightning.learner.named_sql import read, scan
from otel_lightning.learner.score.judges.conversation import conversation
from otel_lightning.learner.score.rules import Applied, apply_rule
from otel_lightning.learner.transitions.make import Settings, Summary, make_transitions

if TYPE_CHECKING:
    from otel_lightning.collector.show.rollout import Rollout
    from otel_lightning.learner.policy.learn import Learned as LearnedPolicy
    from otel_lightning.learner.policy.request import Request
    from otel_lightning.learner.prompts.proposals.ask import Proposer
    from otel_lightning.learner.prompts.proposals.plan import Proposed
    from otel_lightning.learner.prompts.proposals.plan import Request as PromptRequest
    from otel_lightning.learner.score.judges.endpoint import Judge
    from otel_lightning.learner.score.judges.judging import Plan, Report
    from otel_lightning.learner.weights.settings import Training
    from otel_lightning.learner.weights.train import Learned as LearnedWeights

JUDGES = "score.judges"


class Traces:
    """A store of traces: its tables as frames, and each step of learning as a method.

    Every method makes the same call as the command of that name. A store that is given by its path
    is open only while a method runs, so a running `lightning-ingest` is not in the way.
    """

    def __init__(self, store: StoreLike) -> None:
        """Take the path of a store, or an open store, which stays open."""
        self.store = store

    def sql(self, query: str) -> pl.DataFrame:
        """Answer a SELECT as a polars frame.

        Raises:
            StoreError: If there is no store, or DuckDB refuses the statement.
        """
        with opened(self.store, read_only=True) as store:
            return pl.DataFrame(store.query(query))

    def rollouts(self) -> pl.LazyFrame:
        """Scan the view `rollouts`: one row per rollout. Columns that are not used are not read.

        Raises:
            StoreError: If there is no store.
        """
        return scan(self.store, "FROM rollouts", order="start_time, rollout_id")

    def calls(self) -> pl.LazyFrame:
        """Scan the table `llm_calls`: one row per model call. Messages are JSON text.

        Raises:
            StoreError: If there is no store.
        """
        return scan(self.store, "FROM llm_calls", order="rollout_id, step, span_id")

    def rewards(self) -> pl.LazyFrame:
        """Scan the view `rewards`: received rewards and the scores of rules and judges.

        Raises:
            StoreError: If there is no store.
        """
        return scan(self.store, "FROM rewards", order='"time", reward_id')

    def transitions(self) -> pl.LazyFrame:
        """Scan the view `transitions`, as `make_transitions` built it last.

        Raises:
            StoreError: If there is no store.
        """
        return scan(self.store, "FROM transitions", order="rollout_id, step")

    def rollout(self, name: str = "last") -> "Rollout":
        """Read one rollout with its steps, tools, rewards and credit; a notebook shows it.

        Args:
            name: Its id or the beginning of it, a trace id, a response id, or `last`.

        Raises:
            StoreError: If there is no store, or the name means no rollout, or several.
        """
        from otel_lightning.collector.show.find import find_rollout
        from otel_lightning.collector.show.rollout import read_rollout

        with opened(self.store, read_only=True) as store:
            return read_rollout(store, find_rollout(store, name))

    def messages(self, rollout: str) -> list[dict[str, Any]]:
        """Return the conversation of a rollout, each message once, in OpenTelemetry's form.

        Args:
            rollout: Its id.

        Returns:
            Messages with `role`, `parts` and, for the answers of a named agent, `agent`.

        Raises:
            DataError: If there is no such rollout.
            StoreError: If there is no store.
        """
        package = f"{__package__}.{JUDGES}"
        with opened(self.store, read_only=True) as store:
            calls = read(store, package, "calls", rollouts=[rollout]).to_dicts()
            tools = read(store, package, "tools", rollouts=[rollout]).to_dicts()
        if not calls:
            raise DataError(f"No rollout '{rollout}'. Traces.rollouts() lists them.")
        return [
            {"role": turn.role, "parts": [dict(part) for part in turn.parts]}
            | ({"agent": turn.agent} if turn.agent else {})
            for turn in conversation(calls, tools)
        ]

    def make_transitions(
        self, settings: Settings | None = None, *, rebuild: bool = False, **changes: Any
    ) -> Summary:
        """Build transitions with credit, as `lightning-learn transitions` does.

        Args:
            settings: Rewards, agents, tasks, credit and split; the defaults if left out.
            rebuild: Build everything again, not only the tasks that changed.
            changes: Single settings by name, for example `credit="group"`.

        Raises:
            DataError: If no rollout has a reward, or a setting or a reward is not allowed.
            StoreError: If the store cannot be read or written.
        """
        chosen = replace(settings or Settings(), **changes)
        return make_transitions(self.store, chosen, rebuild=rebuild)

    def apply_rule(self, spec: str) -> Applied:
        """Score the store by a rule: `FILE.py:FUNCTION`, `FILE.sql` or `FILE.toml`.

        Raises:
            DataError: If the rule cannot be read or fails, or its name belongs to other rewards.
            StoreError: If the store cannot be read or written.
        """
        return apply_rule(self.store, spec)

    def judge(self, plan: "Plan", judge: "Judge") -> "Report":
        """Let a model judge rollouts, as `lightning-learn judge` does.

        Raises:
            DataError: If there is no rollout to judge, or the judge cannot be asked.
            StoreError: If the store cannot be read or written.
        """
        from otel_lightning.learner.score.judges.judging import judge_rollouts

        return judge_rollouts(self.store, plan, judge)

    def learn_policy(self, request: "Request") -> "LearnedPolicy":
        """Learn how often to serve each arm of a flag, as `lightning-learn policy` does.

        Raises:
            DataError: If the choices, the rewards or the flag file do not allow learning.
            StoreError: If the store cannot be read or written.
        """
        from otel_lightning.learner.policy.learn import learn_policy

        return learn_policy(self.store, request)

    def propose_prompts(self, request: "PromptRequest", proposer: "Proposer") -> "Proposed":
        """Let a model propose variants of a prompt, as `lightning-learn prompts` does.

        Raises:
            DataError: If the flag cannot get variants, or there are no rollouts to learn from.
            StoreError: If the store cannot be read or written.
        """
        from otel_lightning.learner.prompts.propose import propose_prompts

        return propose_prompts(self.store, request, proposer)

    def learn_weights(
        self, algorithm: str, training: "Training", output: str | Path, agent: str | None = None
    ) -> "LearnedWeights":
        """Fine-tune a model, as `lightning-learn weights` does.

        Args:
            algorithm: A name in `weights.algorithms.ALGORITHMS`, for example `rft`.
            training: The settings, with the folder of the model to train.
            output: Folder for the fine-tuned model.
            agent: Learn only from the calls of this agent; None takes the calls of all.

        Raises:
            DataError: If the transitions, the model or a setting do not allow training.
            StoreError: If the store cannot be read or written.
        """
        from otel_lightning.learner.weights.learn import learn_weights

        return learn_weights(self.store, algorithm, training, Path(output), agent)

    def export(
        self, form: str, output: str | Path, *, split: str = "train", threshold: float = 0.0
    ) -> Exported:
        """Write transitions for another trainer, as `lightning-learn export` does.

        Args:
            form: A name in `FORMATS`, for example `trl-sft`.
            output: File to write, `.parquet` or `.jsonl`.
            split: `train`, `heldout` or `all`.
            threshold: Export or label as good only answers whose advantage is above this.

        Raises:
            DataError: If the format is unknown, or there are no such transitions.
            StoreError: If the store cannot be read.
        """
        if form not in FORMATS:
            raise DataError(f"Unknown format '{form}'. Known: {', '.join(FORMATS)}.")
        return export_transitions(
            self.store, FORMATS[form], Path(output), split=split, threshold=threshold
        )
