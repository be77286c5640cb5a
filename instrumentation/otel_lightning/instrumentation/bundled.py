"""Load the bundled OpenAI instrumentation lazily, when the agent imports openai.

Loading it imports openai with all of its beta types, which took 1.0 of the 1.6 CPU-seconds of a
start under `opentelemetry-instrument`. An agent that does not use openai now imports none of it.
An agent that uses openai imports openai anyway, but not the beta types.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import ModuleType
from typing import Any, Final

import wrapt

from otel_lightning.instrumentation.guard import never_raise

_INSTRUMENTATION: Final = "opentelemetry.instrumentation.openai"
_ASSISTANTS: Final = f"{_INSTRUMENTATION}.v1.assistant_wrappers"
_RUN: Final = "openai.types.beta.threads.run"


@never_raise
def load_when_imported() -> None:
    """Make OpenTelemetry's loader delay this instrumentation until openai is imported."""
    from opentelemetry.instrumentation import distro

    wrapt.wrap_object(distro, "BaseDistro.load_instrumentor", wrapt.FunctionWrapper, (_load,))


def _load(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    del instance
    entry_point = args[0] if args else kwargs.get("entry_point")
    if getattr(entry_point, "module", "") != _INSTRUMENTATION:
        return wrapped(*args, **kwargs)
    load = partial(_load_lightly, partial(wrapped, *args, **kwargs))
    if "openai" in sys.modules:
        return load(None)
    wrapt.register_post_import_hook(load, "openai")
    return None


@never_raise
def _load_lightly(load: Callable[[], Any], _openai: ModuleType | None) -> None:
    if _INSTRUMENTATION in sys.modules:
        # The agent imports the instrumentation itself, which imports openai: it also starts it.
        return
    with _without_beta_types():
        load()


@contextmanager
def _without_beta_types() -> Iterator[None]:
    """Make the instrumentation wrap modules of openai on their import, without importing them.

    The instrumentation imports one beta type directly. An empty class replaces it in `sys.modules`
    during the block; the real type is put back when the agent imports it.
    """
    stub = ModuleType(_RUN)
    vars(stub)["Run"] = type("Run", (), {})
    stubbed = sys.modules.setdefault(_RUN, stub) is stub
    try:
        from opentelemetry.instrumentation.openai import v1
    finally:
        if stubbed:
            sys.modules.pop(_RUN, None)
    if stubbed:
        wrapt.register_post_import_hook(_give_type_back, _RUN)
    before = vars(v1).get("wrap_function_wrapper")
    if before is not None:
        vars(v1)["wrap_function_wrapper"] = _wrap_when_imported
    try:
        yield
    finally:
        if before is not None:
            vars(v1)["wrap_function_wrapper"] = before


def _give_type_back(module: ModuleType) -> None:
    if assistants := sys.modules.get(_ASSISTANTS):
        vars(assistants)["Run"] = module.Run


def _wrap_when_imported(module: str, name: str, wrapper: Callable[..., Any]) -> None:
    def wrap(imported: ModuleType) -> None:
        # This version of openai may lack the name; the instrumentation skips it too.
        with suppress(AttributeError):
            wrapt.wrap_object(imported, name, wrapt.FunctionWrapper, (wrapper,))

    wrapt.register_post_import_hook(wrap, module)
