"""Arms for agents that evaluate no flags: a flag file changes the model call itself.

`LIGHTNING_POLICY=flags.json` names a flagd flag file. If all variants of a flag are objects, each
variant is an arm that sets arguments of the model call: `model`, `temperature`, `top_p`,
`max_tokens`, `seed`, `system` (the system prompt), and `tools` (names of the offered tools). One
variant is drawn per rollout, with the weights of the `fractional` targeting. The span records the
names of the arguments that it changed.
"""

import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from otel_lightning.instrumentation import arms, attributes, flagd
from otel_lightning.instrumentation.changed_request import tool_name
from otel_lightning.instrumentation.identity import current_ids
from otel_lightning.instrumentation.model_call import ModelCall, field_of

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

_logger = logging.getLogger(__name__)

POLICY_VARIABLE: Final = "LIGHTNING_POLICY"
"""Path of the flag file. If it is not set, no call is changed."""

_PLAIN: Final = ("model", "temperature", "top_p", "max_tokens", "max_completion_tokens", "seed")
_KNOWN: Final = frozenset({*_PLAIN, "system", "tools"})
# Hashes of messages become ids in spans. With a salt of this process, nobody can find the text of a
# short message by trying.
_SALT: Final = os.urandom(8).hex()
_MOST_REMEMBERED: Final = 10_000
"""Number of response ids whose rollout is remembered; beyond it, the oldest is forgotten."""

_rollouts_of_responses: OrderedDict[str, str] = OrderedDict()
"""Rollout of each response id, the oldest first: a later call may continue the response."""


@dataclass(frozen=True, slots=True)
class _Flag:
    key: str
    variants: Mapping[str, Mapping[str, Any]]
    split: flagd.Split
    shares: Mapping[str, float]
    version: str | None
    propensities: Mapping[str, float]
    """Propensities that the file states, where the share alone does not tell them."""


def apply(call: ModelCall, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Change the arguments of a model call by the variants that the flag file selects.

    Args:
        call: The model call; it records the choices and the changed arguments.
        kwargs: The agent's arguments; not changed.

    Returns:
        The arguments to send; the same object if nothing changes.
    """
    path = os.environ.get(POLICY_VARIABLE)
    if not path:
        return kwargs
    changed, choices = kwargs, []
    for flag in _flags(path, _state_of(path)):
        rollout = _rollout(call)
        requested = arms.requested_arm(flag.key, flag.variants)
        variant = requested.variant if requested else _draw(flag, rollout)
        drawn = flag.propensities.get(variant, flag.shares.get(variant, 0.0))
        version = requested.version if requested else flag.version
        changed = _with_variant(call.endpoint, changed, flag.variants[variant])
        choice: dict[str, AttributeValue] = {
            attributes.FEATURE_FLAG_KEY: flag.key,
            attributes.FEATURE_FLAG_VARIANT: variant,
            attributes.FEATURE_FLAG_REASON: "targeting_match" if requested else "split",
            attributes.FEATURE_FLAG_CONTEXT_ID: rollout,
            attributes.FEATURE_FLAG_PROVIDER_NAME: "otel-lightning",
            attributes.PROPENSITY: requested.propensity if requested else drawn,
        }
        if version:
            choice[attributes.POLICY_VERSION] = version
        choices.append(choice)
    # Recorded at the end: after an error in any flag, the agent's own request is sent.
    call.choices += choices
    for choice in choices:
        if call.span is not None:
            arms.write_choice(choice, call.span)
    # Compared by identity: the agent's own objects are unchanged wherever no arm replaced them.
    if changed is not kwargs:
        every = {*changed, *kwargs}
        names = [n for n in every if changed.get(n) is not kwargs.get(n)]
        call.changed = tuple(sorted(names))
        call.facts[attributes.POLICY_CHANGED] = call.changed
    return changed


def _state_of(path: str) -> tuple[int, ...]:
    try:
        return flagd.file_state(path)
    except OSError:
        return ()


@lru_cache(maxsize=4)
def _flags(path: str, state: tuple[int, ...]) -> tuple[_Flag, ...]:
    """Read the flag file; `state` is part of the cache key, so a changed file is read again."""
    del state
    try:
        flags = flagd.read_flags(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error  # without the system's number
        _logger.warning(
            "%s=%s: no flag file (%s); no arm is chosen.", POLICY_VARIABLE, path, reason
        )
        return ()
    return tuple(readable for key, flag in flags.items() if (readable := _readable(str(key), flag)))


def _readable(key: str, flag: Any) -> _Flag | None:
    try:
        return _flag(key, flag)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        _logger.warning(
            "Flag %r cannot be read (%s: %s). It is left out; the others are in force.",
            key, type(error).__name__, error,
        )  # fmt: skip
        return None


def _flag(key: str, flag: Mapping[str, Any]) -> _Flag | None:
    variants = flag.get("variants") or {}
    if flag.get("state") == "DISABLED" or not variants:
        return None
    if not all(isinstance(variant, dict) for variant in variants.values()):
        return None  # a flag that the agent evaluates itself
    if unknown := {name for variant in variants.values() for name in variant} - _KNOWN:
        _logger.warning(
            "Flag %r sets %s, which is unknown. Known: %s. The flag is left out.",
            key,
            ", ".join(sorted(unknown)),
            ", ".join(sorted(_KNOWN)),
        )
        return None
    for name, variant in variants.items():
        if not isinstance(variant.get("tools", []), list):
            raise TypeError(f"the tools of variant {name!r} are no list")
    split = _split(flag, variants)
    metadata = flag.get("metadata") or {}
    version = metadata.get(attributes.POLICY_VERSION)
    stated = {
        variant: float(value)
        for variant in variants
        if isinstance(value := metadata.get(f"{attributes.PROPENSITY}.{variant}"), int | float)
        and 0 < value <= 1
        and not flag.get("targeting")  # a share of the targeting is what is drawn by
    }
    version_text = None if version is None else str(version)
    return _Flag(key, variants, split, split.shares, version_text, stated)


def _split(flag: Mapping[str, Any], variants: Mapping[str, Any]) -> flagd.Split:
    parts = (flag.get("targeting") or {}).get("fractional") or []
    # A variant that the flag lacks gets no traffic.
    split = flagd.split([p for p in parts if not isinstance(p, list) or (p and p[0] in variants)])
    if split.places:
        return split
    # No targeting, or only weights of 0: the default variant has all traffic, as with flagd.
    default = str(flag.get("defaultVariant") or next(iter(variants)))
    if default not in variants:
        raise KeyError(default)
    return flagd.Split(((default, 1.0),))


def _draw(flag: _Flag, rollout: str) -> str:
    """Draw a variant by a hash of the rollout, so that all calls of a rollout get the same one."""
    position = arms.position(flag.split.bucketing or flag.key, rollout)
    return arms.variant_at(position, flag.split.places)


def _rollout(call: ModelCall) -> str:
    """Return the rollout of a call: its rollout id, else its trace id, else its conversation."""
    if stated := current_ids(call.context).get(attributes.ROLLOUT_ID):
        return stated
    around = trace.get_current_span(call.context)
    parent = getattr(around, "parent", None) if around is call.span else None
    # If the model call is the root of its trace, the trace id would be another rollout for each
    # call. Then the conversation identifies the rollout.
    if around is not call.span or parent is not None:
        context = around.get_span_context()
        if context.is_valid:
            return f"{context.trace_id:032x}"
    previous = call.request.get("previous_response_id")
    if isinstance(previous, str) and previous in _rollouts_of_responses:
        return _rollouts_of_responses[previous]
    conversation = call.request.get("conversation")
    if conversation and isinstance(conversation, str | dict):
        return str(conversation["id"] if isinstance(conversation, dict) else conversation)
    return _beginning(call)


def _beginning(call: ModelCall) -> str:
    """Identify a conversation by a hash of its first messages, which later calls repeat."""
    sent = call.request.get("messages") or call.request.get("input") or call.request.get("prompt")
    head = []
    for item in sent if isinstance(sent, list) else [sent]:
        role = item.get("role") if isinstance(item, dict) else getattr(item, "role", "user")
        head.append(repr(item))
        if role == "user":
            break
    return hashlib.sha256("\0".join([_SALT, *head]).encode()).hexdigest()[:32]


def note_answer(call: ModelCall) -> None:
    """Remember the rollout of a response id, for a later call with `previous_response_id`.

    Args:
        call: A call that has received its answer.
    """
    if call.choices and call.answer.response_id:
        rollout = str(call.choices[0][attributes.FEATURE_FLAG_CONTEXT_ID])
        _rollouts_of_responses[call.answer.response_id] = rollout
        while len(_rollouts_of_responses) > _MOST_REMEMBERED:
            _rollouts_of_responses.popitem(last=False)


def _with_variant(
    endpoint: str, kwargs: dict[str, Any], variant: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a copy of the arguments in which a variant sets its own."""
    changed = dict(kwargs)
    for name in _PLAIN:
        if name in variant:
            changed[_spelled(endpoint, name)] = variant[name]
    if "system" in variant:
        _set_system(endpoint, changed, str(variant["system"]))
    offered = kwargs.get("tools")
    if "tools" in variant and isinstance(offered, list):
        changed["tools"] = [tool for tool in offered if tool_name(tool) in variant["tools"]]
        if not changed["tools"]:
            # The API refuses the other two without tools.
            for name in ("tools", "tool_choice", "parallel_tool_calls"):
                changed.pop(name, None)
    return changed


def _spelled(endpoint: str, name: str) -> str:
    return "max_output_tokens" if endpoint == "responses" and "max_" in name else name


def _set_system(endpoint: str, changed: dict[str, Any], text: str) -> None:
    if endpoint == "responses":
        changed["instructions"] = text
    elif endpoint == "chat":
        other_messages = [
            m
            for m in changed.get("messages") or ()
            if field_of(m, "role") not in ("system", "developer")
        ]
        changed["messages"] = [{"role": "system", "content": text}, *other_messages]
