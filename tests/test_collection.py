"""Collecting tests stays cheap: each process of a test run does it."""

import pytest
from support.late import IMPORTED, Late

SLOW = {
    "PIL",
    "accelerate",
    "datasets",
    "matplotlib",
    "openai",
    "pandas",
    "peft",
    "ray",
    "sympy",
    "torch",
    "transformers",
    "trl",
}
"""Packages that take from a tenth of a second to two seconds to import."""


def test_collecting_imports_no_package_that_is_slow_to_import(
    pytestconfig: pytest.Config,
) -> None:
    assert not pytestconfig.stash[IMPORTED] & SLOW, "import it in the test, or by support.late"


def test_a_late_module_is_imported_by_its_first_use_only() -> None:
    late = Late("no_such_module")
    assert not hasattr(late, "__wrapped__")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        late.anything  # noqa: B018


def test_a_late_module_cannot_be_patched_since_others_would_not_see_it() -> None:
    with pytest.raises(AttributeError):
        Late("json").loads = None
