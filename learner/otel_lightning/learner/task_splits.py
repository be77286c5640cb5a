"""The splits of tasks, and the position of a task by which it belongs to one of them."""

from hashlib import sha256

TRAIN = "train"
HELD_OUT = "heldout"


def position(text: str) -> float:
    """Map a text to a number in [0, 1) by its hash, the same on every day and machine.

    A prefix of the text makes another division of the same tasks independent of this one.

    Args:
        text: The id of a task, perhaps after a prefix.

    Returns:
        The first 53 bits of the SHA-256, which a float holds exactly, as a fraction.

    Example:
        >>> round(position("task-1"), 4), round(position("final/task-1"), 4)
        (0.4804, 0.4228)
    """
    first_64_bits = int(sha256(text.encode()).hexdigest()[:16], 16)
    return (first_64_bits >> 11) / 2**53
