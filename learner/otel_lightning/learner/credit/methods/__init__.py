"""The credit methods, one file each; its `METHOD` holds the function and its properties.

To add one, write its file and put its name into `NAMES`: see docs/how-to/add-a-credit-method.md.
"""

from importlib import import_module

from otel_lightning.learner.credit.steps import Method

NAMES = (
    "identical",
    "group",
    "return_to_go",
    "intermediate",
    "gae",
    "anchor_state",
    "tool_outcome",
)
"""Names of the methods and of their files, in the order of the command help and the documents."""

METHODS: dict[str, Method] = {name: import_module(f"{__package__}.{name}").METHOD for name in NAMES}
