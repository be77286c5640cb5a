"""An OpenFeature provider that serves learned policies from a flagd flag file, in this process.

flagd's targeting rules can test features of 0 and 1. A policy over numbers, or over more than six
features, is written into the flag's metadata as JSON (`lightning.policy`), and this provider
evaluates it:

    from openfeature import api
    from otel_lightning.instrumentation.provider import LightningProvider

    api.set_provider(LightningProvider("flags.json"))

The evaluation context needs the features by name. Each answer carries the exact propensity of its
variant in the flag's metadata, which the arm hook records. Flags without such a policy are served
by their `fractional` targeting, or by the rules that a learned policy has.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import FlagNotFoundError, ParseError, TypeMismatchError
from openfeature.flag_evaluation import FlagResolutionDetails, Reason
from openfeature.provider import AbstractProvider, Metadata

from otel_lightning.instrumentation import arms, attributes, flagd

_Value = TypeVar("_Value")
_RANDOM: Final = random.SystemRandom()
"""Draws that neither `random.seed()` in the agent nor a fork repeats: the variant of a draw that is
repeated does not have the propensity that is recorded."""
_IF_LENGTH: Final = 3
"""Length of an `if` rule: condition, then, otherwise."""


class _Served(NamedTuple):
    split: flagd.Split
    reason: Reason
    version: str | None
    propensity: float | None = None
    """Propensity of the only variant, if the request asks for it."""

    @property
    def propensities(self) -> dict[str, float]:
        if self.propensity is not None:
            return {self.split.places[0][0]: self.propensity}
        return self.split.shares


class LightningProvider(AbstractProvider):
    """Serve the flags of a flagd file; read it again when it changes.

    Args:
        path: The flag file that `lightning-learn promote` writes.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = Path(path)

    def get_metadata(self) -> Metadata:
        """Return the name of the provider, as it appears in spans."""
        return Metadata(name="otel-lightning")

    def resolve_boolean_details(
        self,
        flag_key: str,
        default_value: bool,  # noqa: FBT001 - OpenFeature's signature
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[bool]:
        """Resolve a flag whose variants are true and false."""
        return self._resolve(flag_key, default_value, bool, evaluation_context)

    def resolve_string_details(
        self,
        flag_key: str,
        default_value: str,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[str]:
        """Resolve a flag whose variants are texts."""
        return self._resolve(flag_key, default_value, str, evaluation_context)

    def resolve_integer_details(
        self,
        flag_key: str,
        default_value: int,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[int]:
        """Resolve a flag whose variants are integers."""
        return self._resolve(flag_key, default_value, int, evaluation_context)

    def resolve_float_details(
        self,
        flag_key: str,
        default_value: float,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[float]:
        """Resolve a flag whose variants are numbers."""
        return self._resolve(flag_key, default_value, float, evaluation_context)

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[Any] | Mapping[str, Any],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Any]:
        """Resolve a flag whose variants are lists or objects."""
        return self._resolve(flag_key, default_value, object, evaluation_context)

    def _resolve(
        self,
        key: str,
        default: Any,
        kind: type[_Value],
        context: EvaluationContext | None,
    ) -> FlagResolutionDetails[_Value]:
        path = str(self._path)
        flag = _read(path, flagd.file_state(path)).get(key)
        if flag is None:
            raise FlagNotFoundError(f"'{self._path}' has no flag '{key}'.")
        context = context or EvaluationContext()
        if requested := arms.requested_arm(key, flag["variants"]):
            split = flagd.Split(((requested.variant, 1.0),))
            served = _Served(split, Reason.TARGETING_MATCH, requested.version, requested.propensity)
        elif flag.get("state", "ENABLED") != "ENABLED":
            return FlagResolutionDetails(default, reason=Reason.DISABLED)
        else:
            served = _served(flag, context.attributes)
        if not served.split.places:
            return FlagResolutionDetails(default, reason=Reason.DEFAULT)
        variant = _draw(key, served.split, context.targeting_key)
        value: Any = flag["variants"][variant]
        allowed: tuple[type, ...] = (int, float) if kind is float else (kind,)
        fits = isinstance(value, allowed)  # in the condition, mypy would narrow `value` to object
        if not fits:
            raise TypeMismatchError(f"Variant '{variant}' of flag '{key}' is no {kind.__name__}.")
        metadata = {f"{attributes.PROPENSITY}.{arm}": p for arm, p in served.propensities.items()}
        if served.version is not None:
            metadata[attributes.POLICY_VERSION] = served.version  # type: ignore[assignment]
        return FlagResolutionDetails(
            value, variant=variant, reason=served.reason, flag_metadata={**metadata}
        )


@lru_cache(maxsize=4)
def _read(path: str, state: tuple[int, ...]) -> dict[str, Any]:
    """Read the flags of a file; `state` is part of the cache key: a changed file is read again."""
    del state
    try:
        return flagd.read_flags(path)
    except (ValueError, KeyError, TypeError) as error:
        raise ParseError(f"'{path}' is no flagd flag file ({error}).") from error


def _served(flag: Mapping[str, Any], context: Mapping[str, Any]) -> _Served:
    metadata = flag.get("metadata") or {}
    if attributes.POLICY in metadata:
        policy = json.loads(metadata[attributes.POLICY])
        shares = probabilities(policy, context)
        return _Served(
            flagd.Split(tuple(shares.items())), Reason.TARGETING_MATCH, policy["version"]
        )
    version = metadata.get(attributes.POLICY_VERSION)
    version_text = None if version is None else str(version)
    targeting = flag.get("targeting") or {}
    # Without targeting, flagd serves the default variant.
    if not targeting:
        default = flag.get("defaultVariant")
        split = flagd.Split(((str(default), 1.0),) if default else ())
        return _Served(split, Reason.STATIC, version_text)
    return _Served(flagd.split(_fractional(targeting, context)), Reason.SPLIT, version_text)


def _fractional(targeting: Mapping[str, Any], context: Mapping[str, Any]) -> list[Any]:
    """Follow `if` rules that test one attribute to a `fractional` rule, and return its parts."""
    rule = targeting.get("if")
    if isinstance(rule, list) and len(rule) == _IF_LENGTH and set(rule[0]) == {"var"}:
        return _fractional(rule[1] if context.get(rule[0]["var"]) else rule[2], context)
    if set(targeting) != {"fractional"}:
        raise ParseError(f"The targeting {sorted(targeting)} is none of a learned policy.")
    return list(targeting["fractional"])


def probabilities(policy: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, float]:
    """Evaluate a linear softmax policy: pi = floor + rest * softmax(W [1, x]).

    Args:
        policy: The JSON of `lightning.policy`.
        features: The features by name; true counts as 1. An absent feature counts as 0 if the
            policy has features of 0 and 1 only, otherwise as the mean.

    Returns:
        The probability of each arm that is served.

    Example:
        >>> policy = {"arms": ["a", "b"], "features": ["x"], "mean": [0.0], "deviation": [1.0],
        ...           "weights": [[0.0, 0.0], [0.0, 1.0]], "floor": [0.1, 0.1], "learned": [1, 1]}
        >>> probabilities(policy, {"x": 0})
        {'a': 0.5, 'b': 0.5}
    """
    inputs = [1.0]
    numbers = zip(policy["features"], policy["mean"], policy["deviation"], strict=True)
    for name, mean, deviation in numbers:
        value = features.get(name)
        is_known = isinstance(value, int | float) and math.isfinite(value)
        absent = 0.0 if policy.get("binary") else mean
        inputs.append(((float(value) if is_known else absent) - mean) / deviation)  # type: ignore[arg-type]
    logits = [
        sum(w * x for w, x in zip(row, inputs, strict=True)) if learned else -math.inf
        for row, learned in zip(policy["weights"], policy["learned"], strict=True)
    ]
    # Subtracted before exp, which would overflow; the shares do not change by it.
    highest = max(logits)
    powers = [math.exp(logit - highest) for logit in logits]
    total, learned_share = sum(powers), 1 - sum(policy["floor"])
    own_shares = {
        arm: floor + learned_share * power / total
        for arm, floor, power in zip(policy["arms"], policy["floor"], powers, strict=True)
    }
    share, base = policy.get("share", 1.0), policy.get("base") or {}
    mixed = {
        arm: share * own_shares.get(arm, 0.0) + (1 - share) * base.get(arm, 0.0)
        for arm in own_shares | base
    }
    return {arm: p for arm, p in mixed.items() if p > 0}


def _draw(key: str, split: flagd.Split, unit: str | None) -> str:
    """Draw a variant by a hash of the targeting key, so that one unit always gets the same one."""
    # Without a unit there is nothing to be consistent with: each evaluation draws for itself.
    bucketing = split.bucketing or key
    position = _RANDOM.random() if unit is None else arms.position(bucketing, unit)
    return arms.variant_at(position, split.places)
