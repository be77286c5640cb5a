"""Propagate rollout ids and arms to new threads, to pools and to child processes.

asyncio propagates context by itself. We propagate neither other baggage nor the current span:
`opentelemetry-instrumentation-threading` does, if it is installed.
"""

import concurrent.futures
import multiprocessing.pool
import multiprocessing.process
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import ModuleType
from typing import Any, Final

import wrapt
from opentelemetry import baggage

from otel_lightning.instrumentation import arms, attributes, delivery
from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.identity import run_with_ids

_CARRIED: Final = "_lightning_carried"
_POOLS: Final = ("apply_async", "_map_async", "imap", "imap_unordered")

_Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]


def propagate_context(undo: ExitStack) -> None:
    """Wrap the methods that start threads, pool tasks and processes.

    Args:
        undo: Receives the callbacks that revert this.
    """
    _wrap(undo, threading.Thread, "start", _note)
    _wrap(undo, threading.Thread, "run", _run)
    _wrap(undo, concurrent.futures.ThreadPoolExecutor, "submit", _submit)
    _wrap(undo, concurrent.futures.ProcessPoolExecutor, "submit", _submit)
    for method in _POOLS:
        _wrap(undo, multiprocessing.pool.Pool, method, _submit)
    _wrap(undo, multiprocessing.process.BaseProcess, "start", _note)
    _wrap(undo, multiprocessing.process.BaseProcess, "_bootstrap", _bootstrap)
    # Celery's pool is not the standard library's, and its workers end with `os._exit`.
    wrapt.register_post_import_hook(partial(_deliver_from_celery, undo), "billiard.pool")


@never_raise
def _deliver_from_celery(undo: ExitStack, pool: ModuleType) -> None:
    _wrap(undo, pool.Worker, "_do_exit", _deliver_first)


def _wrap(undo: ExitStack, owner: Any, name: str, wrapper: _Wrapper) -> None:
    # The class's own method only; an inherited one is wrapped where it is defined.
    before = vars(owner).get(name)
    if before is None:
        return
    wrapt.wrap_object(owner, name, wrapt.FunctionWrapper, (wrapper,))
    undo.callback(setattr, owner, name, before)


def _baggage_ids() -> dict[str, str]:
    """Return the ids in the baggage, and the arm that a request asks for.

    Ids from the environment reach threads and children anyway.
    """
    ids = {
        name: baggage.get_baggage(name)
        for name in (attributes.ROLLOUT_ID, attributes.TASK_ID, attributes.ASKED_ARM)
    }
    return {name: str(value) for name, value in ids.items() if value}


def _note(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Store the ids and arms on a thread or process object, then start it."""
    ids, choices = _baggage_ids(), arms.in_force()
    if ids or choices:
        vars(instance)[_CARRIED] = (ids, choices)
    return wrapped(*args, **kwargs)


def _run(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    # Taken off again: the object may outlive the rollout.
    ids, choices = vars(instance).pop(_CARRIED, ({}, {}))
    return run_with_arms(choices, run_with_ids, ids, wrapped, *args, **kwargs)


def _bootstrap(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a child process and deliver its spans, because it ends without Python's exit handlers."""
    ids, choices = vars(instance).pop(_CARRIED, ({}, {}))
    try:
        return run_with_arms(choices, run_with_ids, ids, wrapped, *args, **kwargs)
    finally:
        delivery.flush()


def _deliver_first(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    del instance
    delivery.flush()
    return wrapped(*args, **kwargs)


def _submit(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    del instance
    ids, choices = _baggage_ids(), arms.in_force()
    if args and (ids or choices):
        # A process pool pickles the function. Both wrappers are module-level, so pickle finds them.
        function = partial(run_with_arms, choices, run_with_ids, ids, args[0])
        return wrapped(function, *args[1:], **kwargs)
    return wrapped(*args, **kwargs)


def run_with_arms(choices: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with the arms that were in force in another thread or process.

    Args:
        choices: The result of `arms.in_force` in the other thread or process.
        function: The function to call.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    # Also if there are none: a thread of a pool would keep the arms of its task for the next one.
    with arms.put_in_force(choices):
        return function(*args, **kwargs)
