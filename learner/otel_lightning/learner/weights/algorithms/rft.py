"""Reward-filtered fine-tuning: supervised learning on the completions that earned a reward.

It needs no logprobs and no pairs, and it only ever makes good completions likelier, so it seldom
damages a model. It is the algorithm to begin with.

Source:
    Yuan et al., Scaling relationship on learning mathematical reasoning with large language
    models (2023, arXiv:2308.01825), which also removes duplicates and caps per question; Dong et
    al., RAFT (2023, arXiv:2304.06767).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.algorithms import Row

if TYPE_CHECKING:
    from otel_lightning.learner.weights.examples import Example
    from otel_lightning.learner.weights.job import Job

LEARNING_RATE = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Which completions are learned."""

    threshold: float = 0.0
    """Learn from completions whose advantage is above this."""
    per_task: int = 64
    """Learn at most this many completions of one task, so that no task dominates."""
    fewest_calls: bool = True
    """Leave out a completion if another one of the same state earned as much in fewer calls. Where
    an agent checks and corrects its work, a wrong answer is part of good rollouts as well: a later
    call corrected it."""


def rows(examples: Sequence["Example"], settings: Settings) -> list[Row]:
    """Keep good completions, each once in its state, and at most `per_task` of a task.

    A completion is kept if no other one in its state led to as much reward in fewer calls. If more
    than `per_task` of a task remain, those with the highest advantage are kept.

    Raises:
        DataError: If no completion is good.
    """
    good = [e for e in examples if e.advantage > settings.threshold]
    if not good:
        raise DataError(
            f"None of {number_of(len(examples), 'completion')} of the train split has an advantage "
            f"above {settings.threshold:g}. Collect rollouts that succeed, or lower --threshold if "
            "advantages below it are good ones too."
        )
    if settings.fewest_calls:
        good = _undominated(good)
    # The same answer to the same state, sampled several times, would weigh several times.
    once = {(_state(e), e.completion): e for e in good}
    labelled: list[Row] = []
    of_task: Counter[str] = Counter()
    for e in sorted(once.values(), key=lambda e: -e.advantage):
        of_task[e.task] += 1
        if of_task[e.task] <= settings.per_task:
            labelled.append(e.as_labelled())
    return labelled


def _undominated(good: Sequence["Example"]) -> list["Example"]:
    """Drop completions if another one of their state earned as much in fewer calls."""
    # By state and number of later calls: the highest advantage.
    best: dict[object, dict[int, float]] = {}
    for e in good:
        of_state = best.setdefault(_state(e), {})
        of_state[e.later] = max(of_state.get(e.later, e.advantage), e.advantage)
    return [
        e
        for e in good
        if not any(n < e.later and highest >= e.advantage for n, highest in best[_state(e)].items())
    ]


def _state(e: "Example") -> object:
    return e.state_hash or e.prompt


def learn(job: "Job", train: list[Row], validation: list[Row], settings: Settings) -> float:  # noqa: ARG001 - every algorithm has these parameters
    """Fine-tune by TRL's SFTTrainer; prompts are read, completions are learned."""
    from trl import SFTConfig, SFTTrainer

    arguments = SFTConfig(**job.arguments(job.packing))
    return job.fit(SFTTrainer, arguments, train, validation)
