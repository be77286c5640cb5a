"""The credit methods: one file each, with a function and what it needs as `METHOD`.

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
"""Every method by the name of its file, in the order in which help and documents list them."""

METHODS: dict[str, Method] = {name: import_module(f"{__package__}.{name}").METHOD for name in NAMES}
