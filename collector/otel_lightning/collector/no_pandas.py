"""Keep pandas out of our own processes.

PyArrow imports pandas, where it is installed, as soon as it makes an array of a Python object, only
to see whether the object is a pandas one. That takes .2 CPU-s and 42 MB in each process, and none
of ours uses pandas. Call this in a process that is ours alone, never in a user's.
"""

import sys
from importlib.abc import MetaPathFinder


class _Missing(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, name: str, _path: object, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


def leave_out_pandas() -> None:
    """Make `import pandas` fail from now on, as where it is not installed."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _Missing())
