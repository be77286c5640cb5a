"""Keep pandas out of a process that does not use it.

Arrow and DuckDB import pandas where it is installed, as it is with the learner, only to ask whether
a value is a DataFrame. That takes 0.2 CPU-seconds and 50 MB in each process.
"""

import sys


class WithoutPandas:
    """Finds no pandas, as if it were not installed. An entry of `sys.meta_path`."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Refuse pandas; other modules are found by the next finder.

        Raises:
            ModuleNotFoundError: For pandas.
        """
        # None in `sys.modules` would not do: modules in Cython, such as Arrow's, take it for the
        # module.
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of this process", name=name)


def leave_out_pandas() -> None:
    """Make `import pandas` fail in this process from now on, unless it was imported before.

    For the ingester, its deriving workers and its reader processes: they never turn a time that is
    not whole microseconds into a Python object, which Arrow does by pandas.
    """
    if not any(isinstance(finder, WithoutPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, WithoutPandas())
