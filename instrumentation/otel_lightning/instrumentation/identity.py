"""Ids of the rollout and the task that the running code works on."""

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
"""Environment variable of each id, which is read if the baggage does not have the id."""


def current_ids(context: Context | None = None) -> dict[str, str]:
    """Read the rollout and task ids from OpenTelemetry baggage, else from the environment.

    Baggage has priority, because it can differ between tasks of one process and is sent to other
    processes with a request. The environment has one value for the whole process.

    Args:
        context: OpenTelemetry context with the baggage; the current one by default.

    Returns:
        The known ids by attribute name.
    """
    carried = baggage.get_all(context)
    ids = {}
    for name, variable in ENVIRONMENT_VARIABLES.items():
        # An empty value counts as absent in both.
        if value := carried.get(name) or os.environ.get(variable):
            ids[name] = str(value)
    return ids


@contextmanager
def rollout(*, task_id: str | None = None, rollout_id: str | None = None) -> Iterator[str]:
    """Mark the block as one rollout: one run of the agent on one task.

    The ids are OpenTelemetry baggage, so they reach the same services as the trace context.

    Args:
        task_id: Id of the task.
        rollout_id: Id of this rollout; a random one by default.

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
    """Call a function in the rollout of another thread or process.

    Args:
        ids: Ids by attribute name, from the other thread or process.
        function: The function to call.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    inside: Any = None
    for name, value in ids.items():
        inside = baggage.set_baggage(name, value, inside)
    # Nothing to carry: the function keeps the context that it runs in.
    if inside is None:
        return function(*args, **kwargs)
    token = context.attach(inside)
    try:
        return function(*args, **kwargs)
    finally:
        context.detach(token)
