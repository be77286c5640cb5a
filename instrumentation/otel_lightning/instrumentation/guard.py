"""Protect the agent from our errors: log them and continue."""

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_logger = logging.getLogger(__name__)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def never_raise(function: Callable[_P, _R]) -> Callable[_P, _R | None]:
    """Wrap `function` so that it logs its exceptions and returns None instead of raising.

    Each kind of exception is logged once as an error, and later at level DEBUG: an agent may make
    a thousand calls that fail in the same way.

    Args:
        function: Code of ours that runs inside the agent.
    """
    logged: set[type[Exception]] = set()

    @functools.wraps(function)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            _logger.log(
                logging.DEBUG if type(error) in logged else logging.ERROR,
                "otel-lightning could not run %s and stepped aside; the agent goes on.",
                getattr(function, "__qualname__", function),
                exc_info=True,
            )
            logged.add(type(error))
            return None

    return guarded
