"""Rewards: send the score of a response or a rollout as OpenTelemetry's own evaluation event."""

import math
import time
from numbers import Real
from typing import Any

from opentelemetry._logs import get_logger

from otel_lightning.instrumentation import attributes, privacy
from otel_lightning.instrumentation.identity import current_ids


def evaluation_result(  # noqa: PLR0913 - the event's own fields
    name: str,
    value: float,
    *,
    label: str | None = None,
    explanation: str | None = None,
    response_id: str | None = None,
    rollout_id: str | None = None,
    task_id: str | None = None,
) -> None:
    """Emit one judgement as the standard log event `gen_ai.evaluation.result`.

    It judges the given response or rollout; if none is given, the current span and the current
    rollout. It may be sent long after the response or rollout.

    Args:
        name: Name of the measure, such as "solved".
        value: The reward. A boolean counts as 1 or 0.
        label: The judgement as a word, such as "pass".
        explanation: Reason for the judgement.
        response_id: Id of the judged model response.
        rollout_id: Id of the judged rollout.
        task_id: Id of the rollout's task.

    Raises:
        ValueError: If `value` is not a finite number. For an unknown outcome send no reward.
    """
    if not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(
            f"Reward {name!r} has the value {value!r}, which is not a finite number. "
            "Pass a number, or emit nothing where the outcome is unknown."
        )
    named = {attributes.ROLLOUT_ID: rollout_id, attributes.TASK_ID: task_id}
    # A judge that gives an id may itself run in another rollout, whose ids would be wrong here.
    inherited = {} if rollout_id or response_id else current_ids()
    event_attributes = {
        attributes.EVALUATION_NAME: name,
        attributes.EVALUATION_SCORE_VALUE: float(value),
        attributes.EVALUATION_SCORE_LABEL: label,
        attributes.EVALUATION_EXPLANATION: explanation,
        attributes.RESPONSE_ID: response_id,
        **{key: named[key] or inherited.get(key) for key in named},
    }
    # Ids too: those of spans are redacted, and a reward must still match its rollout.
    redact = privacy.safe_redactor() or _unchanged
    get_logger("otel_lightning.instrumentation").emit(
        timestamp=time.time_ns(),
        event_name=attributes.EVALUATION_RESULT,
        attributes={
            key: redact(event_attributes[key])
            for key in event_attributes
            if event_attributes[key] is not None
        },
    )


def _unchanged(value: Any) -> Any:
    return value
