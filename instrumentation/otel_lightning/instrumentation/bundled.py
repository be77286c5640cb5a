"""Load the bundled OpenAI instrumentation lazily, when the agent imports openai.

Loading it imports openai with all of its beta types, which took 1.0 of the 1.6 CPU-seconds of a
start under `opentelemetry-instrument`. An agent that does not use openai now imports none of it.
An agent that uses openai imports openai anyway, but not the beta types.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import ModuleType
from typing import Any, Final

import wrapt

from otel_lightning.instrumentation import iterables, overhead, replacing
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
    # The agent imported it before the loader ran: too late for a hook.
    if "openai" in sys.modules:
        return load(None)
    wrapt.register_post_import_hook(load, "openai")
    return None


@never_raise
def _load_lightly(load: Callable[[], Any], _openai: ModuleType | None) -> None:
    if _INSTRUMENTATION in sys.modules:
        # The agent imports the instrumentation itself, which imports openai: it also starts it.
        return
    with _without_beta_types(), overhead.without_unread_metrics():
        load()
    _name_images()


@contextmanager
def _without_beta_types() -> Iterator[None]:
    """Make the instrumentation wrap modules of openai on their import, without importing them.

    The instrumentation imports one beta type directly. An empty class replaces it in `sys.modules`
    during the block; the real type is put back when the agent imports it.
    """
    stub = ModuleType(_RUN)
    vars(stub)["Run"] = type("Run", (), {})
    # If the real module is loaded already, nothing is replaced.
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
        # wrapt's function imports the module that it wraps, and that would import all beta types.
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
            wrapt.wrap_object(imported, name, wrapt.FunctionWrapper, (_with_lists(wrapper),))

    wrapt.register_post_import_hook(wrap, module)


def _with_lists(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Make lists of the iterators among the arguments of the client's method, and copy the headers.

    The instrumentation reads the messages and tools before openai does. An iterator, which openai
    accepts, would then be empty, and nothing would be sent. The instrumentation also writes the
    trace context into the headers, which are the agent's own object.
    """

    def with_lists(
        wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        kwargs = iterables.as_lists(kwargs)
        if isinstance(headers := kwargs.get("extra_headers"), Mapping):
            kwargs = {**kwargs, "extra_headers": dict(headers)}
        return wrapper(wrapped, instance, args, kwargs)

    return with_lists


def keep_iterators(undo: ExitStack) -> None:
    """Do the same where the agent starts the instrumentation in code, after ours.

    Args:
        undo: Receives the callback that reverts this.
    """

    def make(module: ModuleType) -> dict[str, Any]:
        wrap = vars(module)["wrap_function_wrapper"]

        def wrap_with_lists(target: Any, name: str, wrapper: Callable[..., Any]) -> Any:
            return wrap(target, name, _with_lists(wrapper))

        return {"wrap_function_wrapper": wrap_with_lists}

    replacing.replace_names(undo, f"{_INSTRUMENTATION}.v1", make)


@never_raise
def _name_images() -> None:
    """Record an image in a message by its hash, unless the agent uploads its images itself.

    The instrumentation awaits its default function for that, which is not async. So it would record
    no message at all of a request with an image.
    """
    from opentelemetry.instrumentation.openai.shared.config import Config

    if not inspect.iscoroutinefunction(Config.upload_base64_image):
        overhead.never_waits(_name_of_image)
        setattr(Config, "upload_base64_image", _name_of_image)  # noqa: B010 - its type is wrong


async def _name_of_image(_trace_id: str, _span_id: str, _name: str, base64: str) -> str:
    return f"sha256:{hashlib.sha256(base64.encode()).hexdigest()}"
