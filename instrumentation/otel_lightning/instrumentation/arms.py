"""Arms: an OpenFeature hook that records each flag evaluation on the spans that it applies to.

A choice of an arm is in force in its context (`contextvars`) until the same flag is evaluated
again. So a flag that the agent evaluates before its first span is not lost: spans that start later
in that context get the choice.

A server may handle one request after the other in one context. So a choice that was made inside a
span is over when that span has ended and another trace begins: it belongs to the earlier request.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry import baggage, trace
from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from otel_lightning.instrumentation import attributes
from otel_lightning.instrumentation.guard import never_raise

if TYPE_CHECKING:
    from openfeature.flag_evaluation import FlagEvaluationDetails
    from openfeature.hook import Hook, HookContext

ACCEPT_VARIABLE: Final = "LIGHTNING_ACCEPT_ARMS"
"""`true` serves the arm that a request asks for. It is off by default: anybody who can send a
request could choose the arm."""

SECRET_VARIABLE: Final = "LIGHTNING_POLICY_SECRET"  # noqa: S105  the name of a variable
"""A text that goes into the hash of each draw. Without it, whoever may name the rollout or the
trace of a request can find a name that draws the arm they want."""

Choice = Mapping[str, AttributeValue]
"""The attributes of one `feature_flag.evaluation` event."""

_NO_CHOICE: Final = frozenset({"default", "disabled", "error"})
"""Reasons of an evaluation in which the policy made no choice."""


class InForce(NamedTuple):
    """A choice, and the span in which it was made."""

    choice: Choice
    made_in: Span | None = None
    """None if the choice was made in another context and passed to this one."""

    def is_over(self, span: Span) -> bool:
        """Return whether the choice no longer applies to a span that starts now.

        That is so if the span in which it was made has ended, and the new span is in another trace.
        """
        if self.made_in is None or self.made_in.is_recording():
            return False
        made_in = self.made_in.get_span_context()
        # A remote span, such as the one that TRACEPARENT names, may go on in another process.
        is_local = made_in.is_valid and not made_in.is_remote
        return is_local and made_in.trace_id != span.get_span_context().trace_id


_in_force: ContextVar[Mapping[str, InForce]] = ContextVar(
    "lightning_arms_in_force", default=MappingProxyType({})
)
"""The choices in force in this context, by flag key."""


class RequestedArm(NamedTuple):
    """The arm that the request asks for."""

    variant: str
    propensity: float
    version: str


def requested_arm(key: str, variants: Mapping[str, object]) -> RequestedArm | None:
    """Return the arm that the baggage of the request asks for; None if that is not to be served.

    Args:
        key: The flag's key.
        variants: Its variants. If the request asks for another one, the flag file decides.
    """
    if os.environ.get(ACCEPT_VARIABLE, "").lower() != "true":
        return None
    carried = baggage.get_baggage(attributes.ASKED_ARM)
    if not carried:
        return None
    try:
        arm = json.loads(str(carried))
        requested = RequestedArm(str(arm["arm"]), float(arm["propensity"]), str(arm["version"]))
        is_meant = arm["key"] == key and requested.variant in variants
    except (ValueError, TypeError, KeyError):
        return None
    return requested if is_meant and 0 < requested.propensity <= 1 else None


def position(bucketing: str, unit: str) -> float:
    """Return the position in [0, 1) of a unit, such as a rollout, in the shares of the variants.

    A unit has the same position in each process that has the same secret (`SECRET_VARIABLE`).

    Args:
        bucketing: Text that the flags of one policy share.
        unit: Id of the rollout, user or conversation that keeps its variant.
    """
    return _position(os.environ.get(SECRET_VARIABLE, ""), bucketing, unit)


def variant_at(position: float, shares: Sequence[tuple[str, float]]) -> str:
    """Return the variant at a position in [0, 1), where each has a part as long as its share.

    Args:
        position: The position.
        shares: Variants with their shares, which add up to 1, in order; a variant may repeat.

    Example:
        >>> variant_at(0.3, [("a", 0.25), ("b", 0.75)])
        'b'
    """
    for variant, share in shares:
        position -= share
        if position < 0:
            return variant
    return shares[-1][0]  # rounding left `position` just above 0


@lru_cache(maxsize=1024)
def _position(secret: str, bucketing: str, unit: str) -> float:
    drawn = f"{bucketing}\0{unit}".encode()
    digest = (
        hmac.digest(secret.encode(), drawn, "sha256") if secret else hashlib.sha256(drawn).digest()
    )
    return int.from_bytes(digest[:8]) / 2**64


def stamp(span: Span) -> None:
    """Add the arms in force to a span that has just started.

    Args:
        span: A span that has none of our events yet.
    """
    for one in _in_force.get().values():
        if not one.is_over(span):
            span.add_event(attributes.FEATURE_FLAG_EVALUATION, one.choice)


def any_in_force() -> bool:
    """Return whether any choice is in force in this context."""
    return bool(_in_force.get())


def in_force() -> dict[str, dict[str, AttributeValue]]:
    """Return the choices in force in this context by flag key, to pass them to another context."""
    span = trace.get_current_span()
    arms = {key: one for key, one in _in_force.get().items() if not one.is_over(span)}
    return {key: dict(one.choice) for key, one in arms.items()}


@contextmanager
def put_in_force(choices: Mapping[str, Choice]) -> Iterator[None]:
    """Put choices of another context in force in this one, instead of its own, in the block.

    Args:
        choices: Choices by flag key.
    """
    before = _in_force.set({key: InForce(choice) for key, choice in choices.items()})
    try:
        yield
    finally:
        _in_force.reset(before)


def write_choice(choice: Choice, span: Span) -> None:
    """Write a choice to a span that has not ended, once.

    Args:
        choice: Attributes of a `feature_flag.evaluation` event.
        span: The span that it applies to.
    """
    # The hook may have written it already, if the flag was evaluated inside this span.
    if span.is_recording() and not _carries(span, choice):
        span.add_event(attributes.FEATURE_FLAG_EVALUATION, choice)


def register() -> Callable[[], None]:
    """Register a hook that records every evaluation of the OpenFeature SDK in this process.

    Returns:
        A function that removes the hook.

    Raises:
        ImportError: If the OpenFeature SDK is not installed.
    """
    from openfeature import api

    hook = _make_hook()
    api.add_hooks([hook])

    def unregister() -> None:
        # OpenFeature can only remove all hooks, so the others are added again.
        other_hooks = [other for other in api.get_hooks() if other is not hook]
        api.clear_hooks()
        api.add_hooks(other_hooks)

    return unregister


def _make_hook() -> "Hook":
    from openfeature.hook import Hook

    class ArmHook(Hook):
        # Not `after`: an error there would change the value that the agent gets. And only here it
        # is certain that no later hook replaced the result by the default.
        def finally_after(
            self,
            hook_context: "HookContext",
            details: "FlagEvaluationDetails[Any]",
            hints: object,
        ) -> None:
            del hints
            _record(hook_context, details)

    return ArmHook()


@never_raise
def _record(hook_context: "HookContext", details: "FlagEvaluationDetails[Any]") -> None:
    """Put the choice of an evaluation in force, and write it to the current span."""
    choice, span = _choice(hook_context, details), trace.get_current_span()
    other_arms = {
        key: in_force for key, in_force in _in_force.get().items() if key != details.flag_key
    }
    # Without a choice the agent now uses the flag's default value, so an earlier choice for this
    # flag is no longer in force either.
    new_arm = {} if choice is None else {details.flag_key: InForce(choice, span)}
    _in_force.set({**other_arms, **new_arm})
    if choice is not None:
        write_choice(choice, span)


def _choice(hook_context: "HookContext", details: "FlagEvaluationDetails[Any]") -> Choice | None:
    """Return the event attributes of a choice; None if the agent got the default value."""
    reason = str(details.reason or "unknown").lower()
    if details.error_code or not details.variant or reason in _NO_CHOICE:
        return None
    metadata = details.flag_metadata
    provider = hook_context.provider_metadata
    version = metadata.get(attributes.POLICY_VERSION)
    attribute_values = {
        attributes.FEATURE_FLAG_KEY: details.flag_key,
        attributes.FEATURE_FLAG_VARIANT: details.variant,
        attributes.FEATURE_FLAG_REASON: reason,
        attributes.FEATURE_FLAG_CONTEXT_ID: hook_context.evaluation_context.targeting_key,
        attributes.FEATURE_FLAG_PROVIDER_NAME: provider.name if provider else None,
        attributes.PROPENSITY: _propensity(metadata, details.variant),
        attributes.POLICY_VERSION: None if version is None else str(version),
    }
    return {name: value for name, value in attribute_values.items() if value is not None}


def _propensity(metadata: Mapping[str, object], variant: str) -> float | None:
    value = metadata.get(f"{attributes.PROPENSITY}.{variant}")
    # Anything else is no probability; a wrong propensity would be worse than none.
    return float(value) if isinstance(value, int | float) and 0 < value <= 1 else None


def _carries(span: Span, choice: Choice) -> bool:
    return any(
        event.name == attributes.FEATURE_FLAG_EVALUATION and dict(event.attributes or {}) == choice
        for event in getattr(span, "events", ())
    )
