"""Keep pandas, Arrow's datasets and its help texts out of a process that does not use them.

Arrow and DuckDB import pandas where it is installed, as it is with the learner, only to ask whether
a value is a DataFrame. That takes 0.2 CPU-seconds and 50 MB in each process. DuckDB imports
`pyarrow.dataset` to ask whether a table is a dataset: 0.05 CPU-seconds. `pyarrow.compute` parses
the help texts of its 109 options, to copy them into those of its functions: 0.015 CPU-seconds.
"""

import os
import sys
from types import ModuleType

LEFT_OUT = frozenset({"pandas", "pyarrow.dataset"})
HELP_TEXTS = "pyarrow.vendored.docscrape"
"""The module with which `pyarrow.compute` parses help texts."""


class _LeavesOut:
    """Finds none of `LEFT_OUT`, as if not installed. An entry of `sys.meta_path`."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Refuse the modules; others are found by the next finder.

        Raises:
            ModuleNotFoundError: For one of `LEFT_OUT`.
        """
        # None in `sys.modules` would not do: modules in Cython, such as Arrow's, take it for the
        # module.
        if name in LEFT_OUT:
            raise ModuleNotFoundError(f"{name} is left out of this process", name=name)


class _WithoutHelpTexts(ModuleType):
    """Takes the place of `HELP_TEXTS`: it finds no parameter in any text."""

    @staticmethod
    def NumpyDocString(_text: str) -> dict[str, tuple[()]]:  # noqa: N802 - the name in that module
        return {"Parameters": ()}


def leave_out_unused() -> None:
    """Make imports of `LEFT_OUT` fail, and Arrow read no help texts, unless they came before.

    For the ingester, its deriving workers, its reader processes, `load` and `derive`: they never
    turn a time that is not whole microseconds into a Python object, which Arrow does by pandas.
    """
    if not any(isinstance(finder, _LeavesOut) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LeavesOut())
    sys.modules.setdefault(HELP_TEXTS, _WithoutHelpTexts(HELP_TEXTS))
    # Nothing here uses linear algebra, and numpy's OpenBLAS starts a thread for each core: 0.03
    # CPU-seconds with two of them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
