"""Drop log records of OpenTelemetry that do not help the agent's owner."""

import logging
from collections.abc import Callable
from typing import Final

_NOT_GIVEN: Final = frozenset({"Omit", "NotGiven"})
"""Class names of openai's markers for an argument that was not given."""

_LATE: Final = ("on ended span.", "on an ended span.")
"""Ends of OpenTelemetry's warnings about a change of a span that has ended."""


def drop_marker_warnings() -> Callable[[], None]:
    """Drop the warnings about openai's markers for arguments that were not given.

    Some frameworks pass every argument on, given or not. The bundled OpenAI instrumentation
    sets those as attributes, and OpenTelemetry logs `Invalid type ...Omit` for each one.

    Returns:
        A function that removes the log filter.
    """
    logger = logging.getLogger("opentelemetry.attributes")
    logger.addFilter(_is_wanted)
    return lambda: logger.removeFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    arguments = record.args if isinstance(record.args, tuple) else ()
    # The first argument of OpenTelemetry's message is the type of the value.
    marker = arguments[0] if arguments else None
    return not (
        isinstance(marker, type)
        and marker.__name__ in _NOT_GIVEN
        and marker.__module__.partition(".")[0] == "openai"
    )


def drop_late_warnings() -> None:
    """Drop the warnings about spans that we ended when the process ends.

    A thread that still works, or an open stream that is collected later, ends or changes them too.
    """
    logging.getLogger("opentelemetry.sdk.trace").addFilter(_is_not_late)


def _is_not_late(record: logging.LogRecord) -> bool:
    return not str(record.msg).endswith(_LATE)
