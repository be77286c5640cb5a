"""Span and trace ids that do not depend on the agent's seed."""

import random
from collections.abc import Callable

from opentelemetry.sdk.trace import id_generator


def use_system_random() -> Callable[[], None]:
    """Make OpenTelemetry's default id generator read `os.urandom`.

    The default generator uses Python's global random state. So two processes that call
    `random.seed(42)` send the same ids, and the spans of the second are dropped as duplicates.
    We replace the name `random` in the generator's module. This affects every provider, even one
    that the agent sets up later, but no id generator of the user's own.

    Returns:
        A function that reverts this.
    """
    names = vars(id_generator)
    before = names["random"]
    names["random"] = random.SystemRandom()

    def undo() -> None:
        names["random"] = before

    return undo
