"""Promote a policy into the flag file, roll it back, and compare the file with the record."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from otel_lightning.collector.store import Store
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.learner.errors import DataError, RefusedError
from otel_lightning.learner.evaluate.gate import recorded_verdict
from otel_lightning.learner.evaluate.to_pass import what_would_pass
from otel_lightning.learner.policy.serving import flag_document, flag_file, flag_rules, joint
from otel_lightning.learner.policy.serving.served import features_of
from otel_lightning.learner.policy.serving.settled import settle
from otel_lightning.learner.policy.serving.versions import (
    TEXTS,
    Row,
    policies_of,
    promotion_recorded,
    promotions_of,
)
from otel_lightning.learner.policy.softmax import contextual
from otel_lightning.learner.runs import to_json

Shares = dict[str, float]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a flag: the shares of the arms before and after."""

    version: str
    served_version: str
    before: Shares
    after: Shares
    written: bool
    needs_provider: bool = False
    """Whether only our OpenFeature provider can serve the policy."""
    was_so: bool = False
    """Whether the file already was as the rollback would leave it, restored by hand."""
    in_context: bool = False
    """Whether the policy sees the input; then the shares are means over the logged inputs."""


def promote(  # noqa: PLR0913 - what, where and how
    store: Store,
    key: str,
    flags: Path,
    *,
    output: Path | None = None,
    version: str | None = None,
    canary: float | None = None,
    dry_run: bool = False,
) -> Change:
    """Write a policy into a flag file if the gate passed against the policy that is live now.

    Args:
        store: An open store.
        key: The flag.
        flags: The flag file that serves it.
        output: The file to write; None writes `flags`.
        version: Version of the policy; None chooses the newest one whose gate passed.
        canary: Share of the traffic for the policy; the live policy keeps the rest. None gives the
            policy all traffic.
        dry_run: Compute the change and write nothing.

    Raises:
        RefusedError: If the gate refused the policy, or compared it with another live policy.
        DataError: If there is no such policy, or the flag file cannot be used.
    """
    target = output or flags
    if not dry_run:
        settle(store, key, target)
    file = flag_file.read_with_text(flags, key)
    document = file.document
    joint.check_alone(document["flags"], key, store)
    policy = _chosen(store, key, flags, version)
    _check_gate(policy)
    stable = stable_document(store, key, document)
    live = flag_document.live_shares(stable, key)
    _check_live(policy, live)
    share = 1.0 if canary is None else canary
    # A canary mixes two policies, so its propensities are not those of the version alone: it is a
    # version of its own.
    served_version = policy["version"] if canary is None else f"{policy['version']}@{canary:g}"
    # A retired variant keeps its line with weight 0. Without the line it would count as never
    # retired.
    retired = dict.fromkeys(flag_document.retired(document, key), 0)
    weights = _weights(policy, stable, key, share, retired)
    arms = after = _mixed(live, policy["arms"], share)
    if isinstance(weights, dict):
        # Told and recorded as it is written, in whole weights, and not as it was computed.
        arms = {arm: weight / flag_document.WHOLE for arm, weight in weights.items()}
        after = {arm: part for arm, part in arms.items() if part > 0}
    change = Change(
        policy["version"],
        served_version,
        before=flag_document.live_shares(document, key),
        after=after,
        written=not dry_run,
        needs_provider=isinstance(weights, flag_document.ProviderPolicy),
        in_context="contextual" in policy["learned"],
    )
    if dry_run:
        return change
    text = flag_file.text_with_policy(file, key, weights, served_version)
    # Recorded as it is read back from the text, so that a later comparison with the file is exact.
    written = flag_document.flag_part(flag_file.parse_flag_file(target, text, key).document, key)
    row = _row(change, key, target, file) | {
        "action": "promote" if canary is None else "canary",
        "share": share,
        "arms": to_json(arms),
        "after": to_json(written),
    }
    _record_and_replace(store, row, target, text, file)
    return change


def roll_back(store: Store, key: str, flags: Path | None, *, dry_run: bool = False) -> Change:
    """Restore the flag as it was before the last promotion that was not rolled back yet.

    Args:
        store: An open store.
        key: The flag.
        flags: The flag file; None uses the file of that promotion.
        dry_run: Compute the change and write nothing.

    Raises:
        DataError: If there is no such promotion, or the flag was changed by hand since.
    """
    standing = _standing(promotions_of(store, key))
    if not standing:
        raise DataError(
            f"No policy of flag '{key}' was promoted, so there is nothing to go back to."
        )
    last = standing[-1]
    path = flags or Path(last["flags"])
    file = flag_file.read_with_text(path, key)
    now, before = flag_document.flag_part(file.document, key), last["before"]
    # `before` is allowed: a promotion that was killed between its record and its file is taken back
    # too.
    if now not in (last["after"], before):
        raise _changed_since(store, key, last, path)
    former_version = flag_document.served_version(before)
    former = flag_document.with_flag_part(file.document, key, before)
    change = Change(
        version=former_version or "",
        served_version=former_version or "",
        before=flag_document.live_shares(file.document, key),
        after=flag_document.live_shares(former, key),
        written=not dry_run,
        was_so=now == before,
        in_context=bool(features_of(now) or features_of(before)),
    )
    if dry_run:
        return change
    row = _row(change, key, path, file) | {
        # Without the share of a canary, which is part of the version that was served.
        "version": (former_version or "").split("@")[0] or None,
        "served_version": former_version,
        "action": "rollback",
        "share": None,
        "arms": to_json(change.after),
        "after": to_json(before),
    }
    text = flag_file.text_with_former_part(file, former, key, last[TEXTS])
    _record_and_replace(store, row, path, text, file)
    return change


def _changed_since(store: Store, key: str, last: Row, path: Path) -> DataError:
    """Return the error that says what changed a flag after its last promotion."""
    if over := _changed_over(store, key, last, path):
        back = next_command("lightning-learn rollback", store, key=over["key"], flags=path)
        return DataError(
            f"Since policy {last['served_version']} of flag '{key}' was promoted, "
            f"'{over['key']}' was changed, which has a flag in common: {over['action']} of "
            f"policy {over['served_version'] or over['version']}. Take that back first: {back}"
        )
    return DataError(
        f"Flag '{key}' in '{path}' is neither as policy {last['served_version']} left it nor "
        "as it was before: somebody changed it. To go back, restore one of the two by hand. "
        f"Compare with: {next_command('lightning-learn policies', store, key=key)}"
    )


def _record_and_replace(
    store: Store, row: Row, path: Path, text: str, file: flag_file.FlagFile
) -> None:
    """Record a change, then replace the file; if it cannot be replaced, the record is withdrawn."""
    status = "canary" if "@" in (row["served_version"] or "") else "live"
    # A canary may still be taken back, so its run is not the one that was promoted.
    promoted = (str(row["version"]), path) if row["action"] == "promote" else None
    with (
        flag_file.locked_flag_file(path),
        promotion_recorded(store, row, status, promoted),
        flag_file.replacing(path, text, file),
    ):
        pass


def describe_served(store: Store, key: str, flags: Path | None = None) -> str:
    """Say which policy the flag file serves, and whether the record agrees.

    The record of a change that was cut off before it was made is withdrawn first.
    """
    changes = promotions_of(store, key)
    if flags is None and not changes:
        return f"No policy of flag '{key}' was promoted."
    path = flags or Path(changes[-1]["flags"])
    settle(store, key, path)
    changes = promotions_of(store, key)
    try:
        document = flag_file.read_flag_file(path, key)
    except DataError as error:
        return f"Not to be compared: {error}"
    now = flag_document.flag_part(document, key)
    version = flag_document.served_version(now)
    served = f"policy {version}" if version else "no policy of ours"
    serves = f"'{path}' serves {served} for flag '{key}'"
    if not changes:
        return f"{serves}; the store has no record of a promotion."
    last = changes[-1]
    if now == last["after"]:
        return f"{serves}, as recorded."
    if over := _changed_over(store, key, last, path):
        return (
            f"{serves}. Since the last change of it, '{over['key']}' was changed, which has a flag "
            f"in common: {over['action']} of policy {over['served_version'] or over['version']}."
        )
    recorded = last["served_version"] or "the flag as it was before"
    again = [row for row in changes if now in (row["before"], row["after"])]
    how = "an older state that was restored by hand" if again else "changed by hand"
    return f"{serves}: NOT as recorded ({recorded}), but {how}."


def _changed_over(store: Store, key: str, last: Row, path: Path) -> Row | None:
    """Return the newest change of a key that shares a flag with this one, if the file has it.

    `prompt+model` shares flags with `prompt` and with `model`.
    """
    later = [
        row
        for row in promotions_of(store, None)
        if row["key"] != key
        and row["flags"] == last["flags"]
        and row["time"] > last["time"]
        and joint.in_common(key, row["key"])
    ]
    if not later:
        return None
    newest = later[-1]
    try:
        document = flag_file.read_flag_file(path, newest["key"])
    except DataError:  # such as another file, without that flag
        return None
    return newest if flag_document.flag_part(document, newest["key"]) == newest["after"] else None


def _chosen(store: Store, key: str, flags: Path, version: str | None) -> dict[str, Any]:
    learn = next_command("lightning-learn policy", store, key=key, flags=flags)
    policies = policies_of(store, key)
    if not policies:
        raise DataError(f"The store has no policy for flag '{key}'. Learn one with: {learn}")
    if version is not None:
        named = [row for row in policies if row["version"] == version]
        if not named:
            known = ", ".join(row["version"] for row in policies[-5:])
            raise DataError(
                f"There is no policy '{version}' for flag '{key}'. The newest: {known}."
            )
        return named[0]
    candidates = [row for row in policies if row["status"] in ("candidate", "canary")]
    if not candidates:
        raise DataError(
            f"Flag '{key}' has no candidate: its newest policy is {policies[-1]['status']}. Name "
            f"another with --version, or learn one with: {learn}"
        )
    passed = [row for row in candidates if row["gate"].get("passed") and not _is_control(row)]
    # If none passed, the newest one is returned for its refusal to be reported.
    return (passed or candidates)[-1]


def _is_control(policy: dict[str, Any]) -> bool:
    """Tell whether a policy was learned from shuffled rewards, so that its gate says nothing."""
    return policy["gate"].get("shuffled") is not None


def _check_gate(policy: dict[str, Any]) -> None:
    gate = policy["gate"]
    if _is_control(policy):
        raise RefusedError(
            f"Policy {policy['version']} is a control: it was learned from shuffled rewards, by "
            "--shuffle-rewards. Learn again without that option."
        )
    if gate.get("passed"):
        return
    if not gate.get("refusals"):
        raise RefusedError(
            f"Policy {policy['version']} was never judged, so it is not promoted. Learn again, "
            "which judges it."
        )
    reasons = "; ".join(gate["refusals"])
    would_pass = what_would_pass(recorded_verdict(gate))
    raise RefusedError(
        f"The gate refused policy {policy['version']}: {reasons}. To pass: {would_pass}"
    )


def stable_document(store: Store, key: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the flag file; during a canary, as it was before the canary.

    This is the policy to beat: a canary itself was not judged by the data so far.
    """
    part = flag_document.flag_part(document, key)
    # A larger canary may follow a smaller one, so go back to the first of them.
    for row in reversed(promotions_of(store, key)):
        version = flag_document.served_version(part) or ""
        if "@" in version and row["served_version"] == version and row["action"] == "canary":
            part = dict(row["before"])
    return flag_document.with_flag_part(document, key, part)


def _mixed(live: Shares, new: Shares, share: float) -> Shares:
    return {arm: share * new.get(arm, 0.0) + (1 - share) * live.get(arm, 0.0) for arm in live | new}


def _weights(
    policy: dict[str, Any], document: dict[str, Any], key: str, share: float, kept: dict[str, int]
) -> flag_document.Weights:
    """Mix a policy with the live one: weights, rules, or a policy for our OpenFeature provider."""
    if "contextual" not in policy["learned"]:
        live = flag_document.live_shares(document, key)
        return kept | flag_document.integer_weights(_mixed(live, policy["arms"], share))
    learned = contextual.from_parameters(policy["learned"]["contextual"])
    if not _for_flagd(policy):
        return _of_provider(policy, document, key, share)

    def of_cell(cell: Mapping[str, bool]) -> dict[str, int]:
        values = np.array([[float(cell[name]) for name in learned.features]])
        new = dict(zip(learned.arms, learned.probabilities(values)[0].tolist(), strict=True))
        served = {arm: p for arm, p in new.items() if p > 0}
        mixed = _mixed(flag_document.live_shares(document, key, cell), served, share)
        return kept | flag_document.integer_weights(mixed)

    return learned.features, of_cell


def _for_flagd(policy: dict[str, Any]) -> bool:
    """Return whether flagd's rules can express a policy with features."""
    learned = policy["learned"]
    few = len(learned["contextual"]["features"]) <= flag_rules.MAX_FEATURES
    return bool(learned["servable"]) and few


def _of_provider(
    policy: dict[str, Any], document: dict[str, Any], key: str, share: float
) -> flag_document.ProviderPolicy:
    part = flag_document.flag_part(document, key)
    if share < 1 and features_of(part):
        raise DataError(
            f"Policy {policy['version']} and the live policy of flag '{key}' both see the input, "
            "and a canary cannot mix them. Promote without --canary, or roll back first."
        )
    base = flag_document.live_shares(document, key)
    mean = {arm: p for arm, p in _mixed(base, policy["arms"], share).items() if p > 0}
    parameters = dict(policy["learned"]["contextual"])
    binary = bool(policy["learned"]["servable"])
    mixture = {"share": share, "base": base if share < 1 else {}, "mean_shares": mean}
    return flag_document.ProviderPolicy(parameters | mixture | {"binary": binary})


def _check_live(policy: dict[str, Any], live: Shares) -> None:
    judged = policy["gate"].get("live")
    if judged is None:
        return
    moved = [
        a
        for a in live | judged
        if abs(live.get(a, 0) - judged.get(a, 0)) > flag_document.SHARE_UNIT
    ]
    if moved:
        raise RefusedError(
            f"Policy {policy['version']} was judged against another live policy: arm '{moved[0]}' "
            f"had {judged.get(moved[0], 0):.2%} of the traffic and has {live.get(moved[0], 0):.2%} "
            "now. To pass: learn again, which compares with the live one."
        )


def _standing(history: list[Row]) -> list[Row]:
    """Return the promotions that were not rolled back; each rollback undoes the one before it."""
    standing: list[Row] = []
    for row in history:
        standing = standing[:-1] if row["action"] == "rollback" else [*standing, row]
    return standing


def _row(change: Change, key: str, path: Path, file: flag_file.FlagFile) -> Row:
    """Return the columns of `promotions` that every change of a flag file has."""
    before = flag_document.flag_part(file.document, key) | {TEXTS: flag_file.part_texts(file, key)}
    return {
        "key": key,
        "version": change.version,
        "served_version": change.served_version,
        "flags": str(path.resolve()),
        "before": to_json(before),
        "time": datetime.now(UTC).replace(tzinfo=None),
    }
