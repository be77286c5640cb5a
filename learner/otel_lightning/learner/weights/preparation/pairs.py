"""Pairs of completions of one state, the better one first."""

from collections import defaultdict
from collections.abc import Sequence

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.examples import Example

Pair = tuple[Example, Example]


def preference_pairs(examples: Sequence[Example], per_state: int) -> list[Pair]:
    """Pair completions of one state by their mean advantage, largest difference first.

    A completion that was seen several times in a state counts once, with its mean advantage: what
    was seen with good and with bad outcomes is neither the better nor the worse by chance.

    Args:
        examples: Transitions in tokens.
        per_state: Pairs of one state, at most.

    Returns:
        Pairs of the better and the worse completion, in the order of their states.
    """
    states: dict[tuple[int, ...], dict[tuple[int, ...], list[Example]]] = {}
    for e in examples:
        states.setdefault(e.prompt, defaultdict(list))[e.completion].append(e)
    pairs = []
    for completions in states.values():
        means = sorted(
            (
                (sum(e.advantage for e in repeats) / len(repeats), repeats[0])
                for repeats in completions.values()
            ),
            # Only by the mean: examples have no order.
            key=lambda pair: -pair[0],
        )
        possible = [
            (better - worse, chosen, rejected)
            for i, (better, chosen) in enumerate(means)
            for worse, rejected in means[i + 1 :]
            if better > worse
        ]
        possible.sort(key=lambda pair: -pair[0])
        pairs += [(chosen, rejected) for _, chosen, rejected in possible[:per_state]]
    return pairs


def required_pairs(examples: Sequence[Example], per_state: int, instead: str = "") -> list[Pair]:
    """Pair completions as `preference_pairs` does, for a training that cannot do without pairs.

    Args:
        examples: Transitions in tokens.
        per_state: Pairs of one state, at most.
        instead: End of the error's last sentence, which names other ways to learn.

    Raises:
        DataError: If no state has two completions of different advantage.
    """
    pairs = preference_pairs(examples, per_state)
    if not pairs:
        raise DataError(
            f"None of the {len({e.prompt for e in examples})} states of the train split has two "
            "different completions of different advantage, so there are no pairs. Run the same "
            f"tasks several times{instead}."
        )
    return pairs
