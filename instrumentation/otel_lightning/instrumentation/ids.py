"""Span and trace ids that do not depend on the agent's seed."""

import random
from collections.abc import Callable

from opentelemetry.sdk.trace import id_generator


def use_system_random() -> Callable[[], None]:
    """Make OpenTelemetry's default id generator read `os.urandom`.

    The default generator draws from Python's global generator, so two processes that call
    `random.seed(42)` send the same ids, and the second one's spans are dropped as duplicates.
    The replacement is the name `random` in the generator's module: it reaches every provider,
    also one that the agent sets up later, and leaves generators of the user's own alone.

    Returns:
        A function that undoes it.
    """
    names = vars(id_generator)
    before = names["random"]
    names["random"] = random.SystemRandom()

    def undo() -> None:
        names["random"] = before

    return undo
