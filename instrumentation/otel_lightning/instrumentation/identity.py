"""Which rollout and task the code that is running works on."""

import os

from opentelemetry import baggage
from opentelemetry.context import Context

from otel_lightning.instrumentation import attributes

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
