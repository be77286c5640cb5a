"""Examples in the docstrings of `weights`: collecting tests does not import it, torch is slow."""

import doctest
import importlib
import pkgutil

import pytest

from otel_lightning.learner import weights

MODULES = [m.name for m in pkgutil.walk_packages(weights.__path__, f"{weights.__name__}.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_docstring_give_what_they_show(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
