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

    Args:
        function: Code of ours that runs inside the agent.
    """

    @functools.wraps(function)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        try:
            return function(*args, **kwargs)
        except Exception:
            _logger.exception(
                "otel-lightning could not run %s and stepped aside; the agent goes on.",
                function.__qualname__,
            )
            return None

    return guarded
