"""Replace names of other packages' modules, once these are imported."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import wrapt

from otel_lightning.instrumentation.guard import never_raise


def replace_names(
    undo: ExitStack, module: str, make: Callable[[ModuleType], Mapping[str, Any]]
) -> None:
    """Replace names of a module now, or when it is imported.

    Args:
        undo: Receives the callback that reverts this.
        module: Name of the module.
        make: Returns the new values by name. Names that the module lacks are ignored.
    """

    @never_raise
    def replace(imported: ModuleType) -> None:
        names = vars(imported)
        replacements = {name: new for name, new in make(imported).items() if name in names}
        undo.callback(names.update, {name: names[name] for name in replacements})
        names.update(replacements)

    wrapt.register_post_import_hook(replace, module)
