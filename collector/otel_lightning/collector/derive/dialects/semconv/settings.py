"""Values that most calls of an agent repeat: their models, parameters and finish reasons."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.attributes.compiled_fields import Fields, lower, text
from otel_lightning.collector.derive.dialects.semconv.call_messages import (
    IN_PROGRESS,
    SENTRY_INPUT,
    SENTRY_TOOLS,
)
from otel_lightning.collector.derive.messages import finish, payloads
from otel_lightning.collector.derive.rows import Attributes
from otel_lightning.collector.derive.text import json_text

REQUEST = "gen_ai.request."
HISTORY_NAMES = ("previous_response_id", "conversation")
"""Parameters that name a history which the provider stores; the first is read under any prefix."""
PREVIOUS = "previous_response.id"
"""The conventions' own name of the first, since 1.42."""
REQUESTED_MODELS = ("model", "openai.request.model", "param.model")
"""Keys of the requested model where the conventions' key has the responding one."""
REQUESTED_MODEL_KEYS = frozenset(REQUESTED_MODELS)
REASONS = (
    "gen_ai.response.finish_reasons",
    "gen_ai.response.finish_reason",
    "anthropic.message.stop_reason",
    "cloudflare.agents.response.finish_reason",
)
"""Keys of the finish reasons: the first has a list of them, the others have one."""
PROVIDERS = ("gen_ai.provider.name", "gen_ai.system", "gen_ai.model.provider")
ANSWERING = ("gen_ai.response.model", "openai.response.model", "gen_ai.response.model_name")
SETTINGS = Fields(
    provider=lower(*PROVIDERS),
    request_model=text("gen_ai.request.model"),
    response_model=text(*ANSWERING),
)
SETTINGS_KEYS = frozenset((*PROVIDERS, *ANSWERING, *REQUESTED_MODELS, *REASONS))


class Settings:
    """Facts of a call that most calls of an agent repeat: models, parameters, finish reasons."""

    __slots__ = (
        "finish_reason",
        "parameters",
        "provider",
        "reasons",
        "request_model",
        "response_model",
    )

    provider: str | None
    request_model: str | None
    response_model: str | None

    def __init__(self, attributes: Attributes) -> None:
        """Read the attributes whose keys `is_setting` names; there may be others."""
        self.provider = self.request_model = self.response_model = None
        SETTINGS.fill(self, attributes)
        if not REQUESTED_MODEL_KEYS.isdisjoint(attributes):
            asked = _requested_model(attributes)
            if asked != self.request_model:
                self.response_model = self.response_model or self.request_model
            self.request_model = asked
        for name in ("request_model", "response_model"):
            if getattr(self, name) in payloads.NO_MODEL:
                setattr(self, name, None)
        self.parameters = _parameters(attributes, _parameter_names(tuple(attributes)))
        self.reasons = finish_reasons(attributes)
        self.finish_reason = finish.reason(self.reasons[0])


def is_setting(key: str) -> bool:
    """Return whether a key may hold one of the values of `Settings`."""
    return key in SETTINGS_KEYS or bool(_parameter_names((key,)))


def _requested_model(attributes: Attributes) -> str | None:
    """Return the requested model.

    MLflow, ddtrace and Pipecat write the responding model there, once it is known, and the
    requested one under their own keys.
    """
    model = json_text.parse(attributes.get("model")) or reading.text(
        attributes, *REQUESTED_MODELS[1:]
    )
    return model if isinstance(model, str) else attributes.get("gen_ai.request.model") or None


def _parameters(attributes: Attributes, given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    found = {}
    for key, name in given:
        value = json_text.parse(attributes[key])
        # Parameters are JSON, so any other text is not one; only ids are plain text.
        value = attributes[key] if value is None and name in HISTORY_NAMES else value
        if value is not None:
            found[name] = value
    return found


def _parameter_names(keys: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (key, parameter name) pairs."""
    found = [
        (key, HISTORY_NAMES[0] if key == f"{REQUEST}{PREVIOUS}" else key.removeprefix(REQUEST))
        for key in keys
        if key.startswith(REQUEST) and key not in {SENTRY_INPUT, SENTRY_TOOLS}
    ]
    ends = ((key, key.rpartition(".")[2]) for key in keys)
    return [*found, *((key, name) for key, name in ends if name == HISTORY_NAMES[0])]


def finish_reasons(attributes: Attributes) -> Sequence[Any]:
    """Return the reported finish reasons, one per choice."""
    listed = attributes.get(REASONS[0])
    return (listed and _reasons(listed)) or (reading.text(attributes, *REASONS[1:]),)


@lru_cache(maxsize=256)
def _reasons(text: str) -> tuple[Any, ...]:
    value = json_text.parse(text)
    if value is None and text.isidentifier():  # early Mastra writes the reason itself
        return (text,)
    # This belongs to a chunk of a stream, not to a choice.
    return tuple(one for one in value if one != IN_PROGRESS) if isinstance(value, list) else ()
