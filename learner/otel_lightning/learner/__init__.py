"""Learn better agents from stored traces, offline, behind a held-out gate.

For notebooks and scripts: the names in `__all__`, described in docs/reference/python.md. Each is
imported when it is first used, so that importing this package loads no polars and no torch.

A command begins in the module of `commands/` that `cli.py` names; `traces.py` has the same steps
for notebooks. The page docs/explanation/architecture.md says what each folder does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_lightning.learner.errors import DataError
    from otel_lightning.learner.export.write import Exported, export_transitions
    from otel_lightning.learner.policy.learn import learn_policy
    from otel_lightning.learner.policy.request import Request as PolicyRequest
    from otel_lightning.learner.prompts.logged.rollouts import Window as PromptWindow
    from otel_lightning.learner.prompts.proposals.ask import Proposer
    from otel_lightning.learner.prompts.proposals.plan import Request as PromptRequest
    from otel_lightning.learner.prompts.propose import propose_prompts
    from otel_lightning.learner.score.judges.endpoint import Endpoint, PromptJudge
    from otel_lightning.learner.score.judges.judging import Plan, judge_rollouts
    from otel_lightning.learner.score.judges.record import Selection
    from otel_lightning.learner.score.judges.rubric import measure, read_rubric
    from otel_lightning.learner.score.rules import apply_rule
    from otel_lightning.learner.traces import Traces
    from otel_lightning.learner.transitions.make import Settings, Summary, make_transitions
    from otel_lightning.learner.weights.learn import learn_weights
    from otel_lightning.learner.weights.settings import Training

HOMES = {
    "DataError": "errors",
    "Endpoint": "score.judges.endpoint",
    "Exported": "export.write",
    "Plan": "score.judges.judging",
    "PolicyRequest": "policy.request:Request",
    "PromptJudge": "score.judges.endpoint",
    "PromptRequest": "prompts.proposals.plan:Request",
    "PromptWindow": "prompts.logged.rollouts:Window",
    "Proposer": "prompts.proposals.ask",
    "Selection": "score.judges.record",
    "Settings": "transitions.make",
    "Summary": "transitions.make",
    "Traces": "traces",
    "Training": "weights.settings",
    "apply_rule": "score.rules",
    "export_transitions": "export.write",
    "judge_rollouts": "score.judges.judging",
    "learn_policy": "policy.learn",
    "learn_weights": "weights.learn",
    "make_transitions": "transitions.make",
    "measure": "score.judges.rubric",
    "propose_prompts": "prompts.propose",
    "read_rubric": "score.judges.rubric",
}
"""The module of each public name, and after a colon its name there if that differs."""

__all__ = [
    "DataError",
    "Endpoint",
    "Exported",
    "Plan",
    "PolicyRequest",
    "PromptJudge",
    "PromptRequest",
    "PromptWindow",
    "Proposer",
    "Selection",
    "Settings",
    "Summary",
    "Traces",
    "Training",
    "apply_rule",
    "export_transitions",
    "judge_rollouts",
    "learn_policy",
    "learn_weights",
    "make_transitions",
    "measure",
    "propose_prompts",
    "read_rubric",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module, _, there = HOMES[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), there or name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
