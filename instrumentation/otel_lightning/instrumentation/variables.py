"""Find environment variables whose name is misspelt, which would have no effect.

`variables.txt` has the name of each variable that any part of otel-lightning reads or sets, one a
line.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

PREFIX = "LIGHTNING_"
NAMES = Path(__file__).with_name("variables.txt")
SIMILARITY = 0.8
"""Least similarity, by `difflib`, of a name to the one that was meant. Below it, nothing is said:
other software has variables with our prefix, such as PyTorch Lightning."""


def corrections(names: Iterable[str], command: str = "") -> Iterator[tuple[str, str]]:
    """Yield each variable that nothing reads and that resembles one of ours, with that one.

    Args:
        names: Names of the variables that are set.
        command: The command that runs. Its name is left out easily, as in `LIGHTNING_OUTPUT`.

    Example:
        >>> list(corrections("LIGHTNING_STROE LIGHTNING_STORE LIGHTNING_CLOUD_URL".split()))
        [('LIGHTNING_STROE', 'LIGHTNING_STORE')]
        >>> list(corrections("HOME LIGHTNING_OUTPUT".split(), "export"))
        [('LIGHTNING_OUTPUT', 'LIGHTNING_EXPORT_OUTPUT')]
    """
    ours = sorted(name for name in names if name.startswith(PREFIX))
    if not ours:
        return
    known = NAMES.read_text().split()
    own = f"{PREFIX}{command.upper()}_"
    # The prefix that all names have would make them similar.
    meant = {name.removeprefix(PREFIX): name for name in known}
    meant.update((name.removeprefix(own), name) for name in known if name.startswith(own))
    for name in set(ours).difference(known):
        from difflib import get_close_matches  # not imported where all names are right

        for near in get_close_matches(name.removeprefix(PREFIX), meant, 1, SIMILARITY):
            yield name, meant[near]


def warning(name: str, meant: str) -> str:
    """Return the warning about a variable that has no effect."""
    return f"{name} is ignored: otel-lightning has no such variable. Did you mean {meant}?"
