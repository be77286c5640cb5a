"""A baseline for graded rewards, where 0 tells no good completion from a bad one.

Rewards of 0 and 1 have their baseline: above 0 is good. Grades between 0 and 1, given to calls as
they are (`--credit identical`), are almost all above 0, and then `rft` would learn from everything,
`kto` would have no bad completions, and `grpo` would make all of them likelier.
"""

from collections.abc import Sequence
from dataclasses import replace

from otel_lightning.collector.terminal.quantities import significant
from otel_lightning.learner.task_splits import TRAIN
from otel_lightning.learner.weights.examples import Example

BINARY = 2


def with_baseline(
    examples: Sequence[Example], threshold: float
) -> tuple[list[Example], float | None]:
    """Subtract the mean from advantages of graded rewards that are all on one side of 0.

    Args:
        examples: Transitions of all splits.
        threshold: Advantage above which a completion is good; one that is not 0 was chosen for
            these rewards, so then nothing is changed.

    Returns:
        The examples, and the mean of the training ones that was subtracted; None if nothing was.
    """
    train = [e.advantage for e in examples if e.split == TRAIN]
    if threshold != 0 or not train or min(train) < 0 < max(train) or not _are_graded(examples):
        return list(examples), None
    mean = sum(train) / len(train)
    return [replace(e, advantage=e.advantage - mean) for e in examples], mean


def _are_graded(examples: Sequence[Example]) -> bool:
    """Return whether rollouts of the train split have more than two different rewards."""
    return len({e.outcome for e in examples if e.split == TRAIN}) > BINARY


def baseline_warning(mean: float) -> str:
    """Say what was done, as a warning."""
    return (
        f"Rewards are graded, and no advantage is on the other side of 0: completions above the "
        f"mean of the training ones, {significant(mean)}, count as good. Say with --threshold "
        "where good begins, or build transitions with --credit group."
    )
