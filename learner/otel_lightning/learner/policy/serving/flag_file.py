"""A learned policy as a flagd flag file, which any language's OpenFeature SDK serves."""

import copy
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from otel_lightning.collector.files.atomic import (
    PRIVATE,
    locked,
    rename_durably,
    sync,
    temporary_beside,
)
from otel_lightning.instrumentation.attributes import POLICY, POLICY_VERSION, PROPENSITY
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving import flag_rules, joint
from otel_lightning.learner.policy.serving.flag_text import (
    member_text,
    with_member_text,
    with_members,
    without_member,
)


class ProviderPolicy(NamedTuple):
    """A policy that only our OpenFeature provider can serve."""

    policy: Mapping[str, Any]
    """The JSON of `lightning.policy`, without the version."""


InContext = tuple[Sequence[str], Callable[[Mapping[str, bool]], Mapping[str, int]]]
"""Names of features, and a function from a combination of their values to the arms' weights."""
Weights = Mapping[str, int] | InContext | ProviderPolicy

PARTS = ("targeting", "metadata")
"""Members of a flag that a policy writes."""
WHOLE = 10_000
"""Sum of a flag's weights: the unit of a weight is 0.01 %."""


class ChangedError(DataError):
    """The flag file was changed by another process while a command worked on it."""


class FlagFile(NamedTuple):
    """A flag file as it was when it was read."""

    path: Path
    text: str
    document: dict[str, Any]


def read_flag_file(path: Path, key: str) -> dict[str, Any]:
    """Read a flagd flag file that has the flag `key`, and return its content.

    Raises:
        DataError: If the file is missing, is not JSON, lacks the flag, or has targeting rules for
            it that a learned policy would overwrite.
    """
    return reading(path, key).document


def reading(path: Path, key: str) -> FlagFile:
    """Read a flagd flag file that has the flag `key`: its text and its content.

    Raises:
        DataError: As `read_flag_file`.
    """
    try:
        text = path.read_bytes().decode()  # read_text would change Windows line endings
    except FileNotFoundError as error:
        raise DataError(
            f"There is no flag file at '{path}'. Give --flags the flagd file that serves '{key}'."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"'{path}' is not a readable flagd flag file ({error}).") from error
    return parsed(path, text, key)


def parsed(path: Path, text: str, key: str) -> FlagFile:
    """Parse the text of a flag file. Several flags that `key` names become one in the document.

    Raises:
        DataError: If it is not JSON, lacks the flag, or has targeting rules for it that a learned
            policy would overwrite.
    """
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise DataError(f"'{path}' is not a readable flagd flag file ({error}).") from error
    flags = document.get("flags") if isinstance(document, dict) else None
    for name in joint.flags_of(key, flags or {}):
        if not isinstance(flags, dict) or not isinstance(flags.get(name), dict):
            known = ", ".join(sorted(flags)) if isinstance(flags, dict) and flags else "none"
            raise DataError(f"'{path}' has no flag '{name}'. Its flags: {known}.")
        _check_rules(flags[name], path, name)
    together = joint.flags_of(key, document["flags"])
    if len(together) > 1:
        document["flags"][key] = joint.combined(document["flags"], together)
    return FlagFile(path, text, document)


def variants(document: Mapping[str, Any], key: str) -> list[str]:
    """List the variants of a flag, in the order of the file."""
    return list(document["flags"][key].get("variants") or {})


def check_serves(document: Mapping[str, Any], key: str, path: Path) -> None:
    """Refuse a flag that serves no variant: agents get the default in their own code then.

    Raises:
        DataError: If the flag is disabled, or has neither targeting nor a default variant.
    """
    if document["flags"][key].get("state", "ENABLED") != "ENABLED":
        raise DataError(
            f"Flag '{key}' in '{path}' is disabled, so no variant would be served. Set its state "
            "to ENABLED."
        )
    if not live_shares(document, key):
        raise DataError(
            f"Flag '{key}' in '{path}' serves nothing: it has no targeting and no default variant. "
            "Give it one of the two."
        )


def check_logged(logged: Collection[str], served: Collection[str], key: str, path: Path) -> None:
    """Refuse rollouts that are all of other variants than a flag may serve.

    Args:
        logged: Variants of the rollouts.
        served: Variants that the flag file may serve.
        key: The flag.
        path: The flag file.

    Raises:
        DataError: If none of the variants was logged.
    """
    if not set(logged) & set(served):
        raise DataError(
            f"No rollout of flag '{key}' is of a variant in '{path}', which has: "
            f"{', '.join(served)}. The rollouts are of: {', '.join(sorted(logged))}. Collect "
            "rollouts of the present variants, or give the flag file that was served."
        )


def live_shares(
    document: Mapping[str, Any], key: str, cell: Mapping[str, bool] | None = None
) -> dict[str, float]:
    """Compute the share of traffic that each variant gets now, by the flag's targeting.

    Args:
        document: The content of the file.
        key: The flag.
        cell: The features of an input; None averages over all combinations of features.

    Returns:
        Shares that add up to 1. Without targeting, the default variant has all traffic.
    """
    flag = document["flags"][key]
    if policy := policy_of_provider(flag):
        return dict(policy["mean_shares"])
    targeting = flag.get("targeting") or {}
    default = flag.get("defaultVariant")
    by_default = {str(default): 1.0} if default is not None else {}
    if not targeting or flag.get("state", "ENABLED") != "ENABLED":
        return by_default
    # Without a given input every combination of features counts equally: the true frequencies are
    # not in the file.
    among = flag_rules.cells(flag_rules.features_of(targeting)) if cell is None else [dict(cell)]
    shares: dict[str, float] = {}
    for one in among:
        for arm, share in (flag_rules.shares_given(targeting, one) or by_default).items():
            shares[arm] = shares.get(arm, 0.0) + share / len(among)
    return {arm: share for arm, share in shares.items() if share > 0}


def policy_of_provider(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the policy of a flag that our OpenFeature provider serves, or None."""
    text = (part.get("metadata") or {}).get(POLICY)
    policy: dict[str, Any] | None = None if text is None else json.loads(str(text))
    return policy


def served_version(part: Mapping[str, Any]) -> str | None:
    """Return the version of the policy that a flag serves, or None."""
    policy = policy_of_provider(part)
    version = policy["version"] if policy else part["metadata"].get(POLICY_VERSION)
    return None if version is None else str(version)


def retired(document: Mapping[str, Any], key: str) -> set[str]:
    """Find retired variants: the targeting gives them weight 0, so they are never served."""
    targeting = document["flags"][key].get("targeting") or {}
    if not targeting:  # the default variant gets all traffic
        return set()
    names = flag_rules.features_of(targeting)
    listed = [flag_rules.shares_given(targeting, cell) for cell in flag_rules.cells(names)]
    named = {arm for shares in listed for arm in shares}
    return {arm for arm in named if all(shares.get(arm, 0.0) == 0 for shares in listed)}


def integer_weights(probabilities: Mapping[str, float]) -> dict[str, int]:
    """Round probabilities to integer weights that add up to `WHOLE`, largest remainders first.

    Example:
        >>> integer_weights({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})
        {'a': 3334, 'b': 3333, 'c': 3333}
    """
    weights = {arm: int(WHOLE * share) for arm, share in probabilities.items()}
    # Rounded down, the weights miss at most one unit per arm. Those units go to the arms that lost
    # most by rounding (largest remainder method).
    by_remainder = sorted(probabilities, key=lambda arm: weights[arm] - WHOLE * probabilities[arm])
    for arm in by_remainder[: WHOLE - sum(weights.values())]:
        weights[arm] += 1
    return weights


def with_policy(seen: FlagFile, key: str, weights: Weights, version: str) -> str:
    """Write a policy into the text of a flag file; every other character stays as it was.

    Args:
        seen: The flag file.
        key: The flag.
        weights: Integer weight of each variant, which add up to `WHOLE`; or the names of features
            and a function from a combination of their values to such weights; or a policy for our
            OpenFeature provider.
        version: Version of the policy.

    Returns:
        The new text, with new targeting and with metadata for the version and each propensity.
        A contextual policy has no fixed propensities: readers look them up by its version.
    """
    part = policy_part(seen.document, key, weights, version)
    return replaced(seen, with_our_part(seen.document, key, part), key)


def policy_part(
    document: Mapping[str, Any], key: str, weights: Weights, version: str
) -> dict[str, Any]:
    """Return a flag's targeting and metadata for a policy; arguments as of `with_policy`."""
    flag = document["flags"][key]
    fractional = (flag.get("targeting") or {}).get("fractional") or []
    # flagd allows an expression before the pairs, which chooses by what a unit is bucketed. It is
    # the user's and stays.
    bucketing = [part for part in fractional if not isinstance(part, list)]
    # Propensities of the version before must not be logged with the new one. Beside a policy for
    # our provider they stay, since other providers go on serving that version.
    metadata = {
        name: value
        for name, value in (flag.get("metadata") or {}).items()
        if name != POLICY
        and (isinstance(weights, ProviderPolicy) or not name.startswith(f"{PROPENSITY}."))
    }
    targeting: dict[str, Any]
    if isinstance(weights, ProviderPolicy):
        # Other providers go on serving what they served, under its own version.
        policy = json.dumps({"version": version, **weights.policy})
        return {"targeting": flag.get("targeting") or {}, "metadata": metadata | {POLICY: policy}}
    if isinstance(weights, Mapping):
        metadata |= {f"{PROPENSITY}.{arm}": n / WHOLE for arm, n in weights.items()}
        targeting = {"fractional": bucketing + [[arm, n] for arm, n in weights.items()]}
    else:
        targeting = flag_rules.rule(*weights)
    return {"targeting": targeting, "metadata": metadata | {POLICY_VERSION: version}}


def our_part(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the part of a flag that a policy writes: its targeting and its metadata."""
    return joint.part_of(document["flags"][key])


def with_our_part(document: Mapping[str, Any], key: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the document in which a flag has other targeting and metadata."""
    changed = copy.deepcopy(dict(document))
    changed["flags"][key] |= part
    return changed


def part_texts(seen: FlagFile, key: str) -> dict[str, dict[str, str | None]]:
    """Return how targeting and metadata are written, for each flag of the file that `key` names.

    Returns:
        By flag and member: its text, to be written back by `restored`; None if it is not there.
    """
    flags: dict[str, Any] = json.loads(seen.text)["flags"]
    return {
        name: {member: member_text(seen.text, ("flags", name), member) for member in PARTS}
        for name in joint.flags_of(key, flags)
        if name in flags
    }


def restored(
    seen: FlagFile,
    changed: Mapping[str, Any],
    key: str,
    texts: Mapping[str, Mapping[str, str | None]],
) -> str:
    """Return the text of a flag file with a flag as it was, to the character.

    Args:
        seen: The flag file.
        changed: The document with the flag's former targeting and metadata.
        key: The flag.
        texts: How these were written, from `part_texts`.

    Returns:
        The former text. It is as `replaced` writes it if the texts do not give the former values,
        for example because a flag of them is gone.
    """
    text = seen.text
    for name, members in texts.items():
        for member in reversed(PARTS) if name in seen.document["flags"] else ():
            text = with_member_text(text, ("flags", name), member, members.get(member))
    former = our_part(parsed(seen.path, text, key).document, key)
    return text if former == our_part(changed, key) else replaced(seen, changed, key)


def replaced(seen: FlagFile, changed: Mapping[str, Any], key: str) -> str:
    """Return the text of a flag file with a changed flag; the rest keeps its formatting."""
    flags, part = seen.document["flags"], our_part(changed, key)
    real = {name: flag for name, flag in flags.items() if name != key}
    # A combined flag exists only in memory; in the file each of its flags gets its part.
    keys = joint.flags_of(key, real) if joint.FLAGS in part["metadata"] else [key]
    parts = joint.parted(part, real, keys) if len(keys) > 1 else {key: part}
    text = seen.text
    for name, one in parts.items():
        new = {member: value for member, value in one.items() if value or member in flags[name]}
        # A member that a policy added goes with it, instead of staying as an empty object.
        gone = [member for member, value in new.items() if not value and flags[name][member]]
        kept = {member: value for member, value in new.items() if member not in gone}
        text = with_members(text, ("flags", name), kept)
        for member in gone:
            text = without_member(text, ("flags", name), member)
    return text


@contextmanager
def replacing(path: Path, text: str, seen: FlagFile | None = None) -> Iterator[None]:
    """Replace the text of a file atomically when the block ends without an exception.

    The new text is written and synced before the block begins. After the block, only a rename is
    left, which rarely fails: so the block's database change and the file stay consistent.

    Args:
        path: The file to replace.
        text: Its new text.
        seen: The flag file that the new text was made from. If it has changed since it was read,
            nothing is replaced; it is compared before the block and again before the rename. For
            our other commands, hold `alone_at` meanwhile.

    Raises:
        ChangedError: If the flag file is no longer as it was read.
    """
    path = path.resolve()
    with temporary_beside(path, None if path.exists() else PRIVATE) as temporary:
        temporary.write_bytes(text.encode())
        sync(temporary)
        _check_unchanged(seen)
        yield
        _check_unchanged(seen)
        rename_durably(temporary, path)


def alone_at(path: Path) -> AbstractContextManager[bool]:
    """Return a lock of a file, which our commands hold while they record and make a change of it.

    It is held from the record of the change until after the rename. So two of our commands cannot
    both find the file unchanged and then overwrite each other, and none takes the record of a
    change that is being made for one that was cut off. Editors and other programs do not know the
    lock: against them, the comparison right before the rename leaves a gap of some microseconds.
    The lock is on the folder, so no lock file is left behind.
    """
    return locked(path.resolve().parent)


def _check_unchanged(seen: FlagFile | None) -> None:
    if seen is None:
        return
    try:
        same = seen.path.read_bytes() == seen.text.encode()
    except OSError:
        same = False
    if not same:
        raise ChangedError(
            f"'{seen.path}' was changed by another program in the meantime, so it was left as it "
            "is. Run the command again."
        )


def _check_rules(flag: Mapping[str, Any], path: Path, key: str) -> None:
    """Refuse targeting rules that we cannot evaluate: a learned policy would overwrite them."""
    targeting = flag.get("targeting") or {}
    strange = sorted(set(targeting) - {"fractional"})
    if not strange:
        return
    # Rules of a policy that we wrote can be read back; a parse error means that somebody edited
    # them, and then the error below is raised.
    if POLICY_VERSION in (flag.get("metadata") or {}):
        with suppress(DataError):
            for cell in flag_rules.cells(flag_rules.features_of(targeting)):
                flag_rules.shares_given(targeting, cell)
            return
    raise DataError(
        f"Flag '{key}' in '{path}' is targeted by '{strange[0]}', which a learned policy would "
        "replace. Only 'fractional' targeting can be learned, and the rules of a learned policy."
    )
