"""Which tasks are learned from and which only judge what was learned."""

from hashlib import sha256

TRAIN = "train"
HELD_OUT = "heldout"


def split_of(task: str, held_out: float) -> str:
    """Put a task into a split by the hash of its id: the same today, tomorrow and elsewhere.

    All rollouts of a task share its split, so nothing that was learned from is judged by itself.

    Args:
        task: Id of the task.
        held_out: Share of the tasks to hold out, in [0, 1].

    Returns:
        `heldout` or `train`.

    Example:
        >>> split_of("ticket-1", held_out=0.0), split_of("ticket-1", held_out=1.0)
        ('train', 'heldout')
    """
    position = int.from_bytes(sha256(task.encode()).digest()[:8]) / 2**64
    return HELD_OUT if position < held_out else TRAIN
