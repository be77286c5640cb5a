"""Save CPU time in the bundled OpenAI instrumentation; its spans stay the same.

For each call of the model, it creates and closes an asyncio event loop to run a function that never
waits, parses version numbers about ten times, formats the traceback of an error that it only logs
at level DEBUG, and records metrics that nobody reads. Together these cost more CPU time than all
that we add to a call. docs/decisions/0022 says why they are replaced here.
"""

import functools
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from otel_lightning.instrumentation.replacing import replace_names

_INSTRUMENTATION: Final = "opentelemetry.instrumentation.openai"
_METRICS_VARIABLE: Final = "TRACELOOP_METRICS_ENABLED"

_SUPPORTED: Final[list[Callable[..., Any]]] = []
"""Functions for uploading images that never wait; see `never_waits`."""


def never_waits(function: Callable[..., Any]) -> None:
    """Declare that a coroutine function for uploading images never waits for anything.

    Args:
        function: The function that `Config.upload_base64_image` may be.
    """
    _SUPPORTED.append(function)


def save(undo: ExitStack) -> None:
    """Replace the expensive steps by cheap ones when the instrumentation is imported.

    Args:
        undo: Receives the callbacks that revert this.
    """
    replace_names(undo, f"{_INSTRUMENTATION}.utils", _cheap_helpers)
    replace_names(undo, f"{_INSTRUMENTATION}.shared.chat_wrappers", _cheap_runner)


@contextmanager
def without_unread_metrics() -> Iterator[None]:
    """Let the instrumentation make no metrics in this block if no metrics exporter is configured.

    `TRACELOOP_METRICS_ENABLED=true` keeps them.
    """
    unread = os.environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() == "none"
    if not unread or _METRICS_VARIABLE in os.environ:
        yield
        return
    # The instrumentation reads the variable when it starts; afterwards it is taken back.
    os.environ[_METRICS_VARIABLE] = "false"
    try:
        yield
    finally:
        os.environ.pop(_METRICS_VARIABLE, None)


def _cheap_helpers(module: ModuleType) -> Mapping[str, Any]:
    parse = vars(module)["pkg_version"].parse
    return {
        "pkg_version": SimpleNamespace(parse=functools.lru_cache(maxsize=32)(parse)),
        "traceback": SimpleNamespace(format_exc=_LateTraceback),
    }


class _LateTraceback:
    """The traceback of the current exception, formatted only if a log handler writes it."""

    def __init__(self) -> None:
        self._error = sys.exc_info()[1]

    def __str__(self) -> str:
        return "".join(traceback.format_exception(self._error)) if self._error else ""


def _cheap_runner(module: ModuleType) -> Mapping[str, Any]:
    names = vars(module)
    run, config = names["run_async"], names["Config"]

    def run_without_loop(coroutine: Coroutine[Any, Any, Any]) -> None:
        upload = config.upload_base64_image
        if upload is not None and upload not in _SUPPORTED:
            run(coroutine)  # the agent's own function may wait
            return
        try:
            while True:
                # Runs the coroutine to its next wait. It never waits, so it ends with StopIteration
                # at once.
                coroutine.send(None)
        except StopIteration:
            pass

    return {"run_async": run_without_loop}
