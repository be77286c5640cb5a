"""Which rollout and task the code that is running works on."""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from opentelemetry import baggage, context
from opentelemetry.context import Context

from otel_lightning.instrumentation import attributes

_P = ParamSpec("_P")
_R = TypeVar("_R")

ENVIRONMENT_VARIABLES = {
    attributes.ROLLOUT_ID: "LIGHTNING_ROLLOUT_ID",
    attributes.TASK_ID: "LIGHTNING_TASK_ID",
}
"""Where each id is read when no baggage says it."""


def current_ids(context: Context | None = None) -> dict[str, str]:
    """Find the rollout and task ids in force: OpenTelemetry baggage first, else the environment.

    Baggage goes first because it can differ between the tasks of one process and crosses to
    others with the request; the environment is one value for a whole process.

    Args:
        context: OpenTelemetry context to look in; the current one by default.

    Returns:
        Attribute name to id, for the ids that are known.
    """
    found = {
        name: baggage.get_baggage(name, context) or os.environ.get(variable)
        for name, variable in ENVIRONMENT_VARIABLES.items()
    }
    return {name: str(value) for name, value in found.items() if value}


@contextmanager
def rollout(*, task_id: str | None = None, rollout_id: str | None = None) -> Iterator[str]:
    """Say that what runs inside is one rollout: one run of the agent on one task.

    The ids are OpenTelemetry baggage, so they reach other services wherever trace context does.

    Args:
        task_id: The task that is worked on.
        rollout_id: Name of this run; a random one by default.

    Yields:
        The rollout's id.

    Example:
        >>> with rollout(task_id="ticket-4711", rollout_id="run-17") as name:
        ...     print(name, current_ids()["lightning.task.id"])
        run-17 ticket-4711
    """
    name = rollout_id or uuid.uuid4().hex
    inside = baggage.set_baggage(attributes.ROLLOUT_ID, name)
    if task_id is not None:
        inside = baggage.set_baggage(attributes.TASK_ID, task_id, inside)
    token = context.attach(inside)
    try:
        yield name
    finally:
        context.detach(token)


def run_with_ids(
    ids: Mapping[str, str], function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
) -> _R:
    """Call a function in a rollout that another thread or process was in.

    Args:
        ids: What `current_ids` gave there.
        function: What to call.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    inside: Any = None
    for name, value in ids.items():
        inside = baggage.set_baggage(name, value, inside)
    if inside is None:
        return function(*args, **kwargs)
    token = context.attach(inside)
    try:
        return function(*args, **kwargs)
    finally:
        context.detach(token)
