"""Packages that are slow to import are imported by the first test that uses them.

Every process of a test run collects all tests. A package that a test file imports at its top is
imported by each of these processes, also by those that run none of its tests.
"""

import importlib
from typing import Any

import pytest

IMPORTED = pytest.StashKey[set[str]]()
"""Packages that were imported when all tests were collected."""


class Late:
    """Stands for a module, and imports it when an attribute is asked for; it cannot be patched.

    Example:
        >>> json = Late("json")
        >>> json.dumps([1])
        '[1]'
    """

    __slots__ = ("_name",)  # what is patched here would not be patched in the module

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # pytest looks for these at every object of a test file, which must not import the module.
        if attribute.startswith(("_", "pytest")):
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
