"""Promote a policy into the flag file, and roll it back."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from otel_lightning.collector.store import Store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving import flag_document, flag_file, joint
from otel_lightning.learner.policy.serving.canary import (
    Mixture,
    Shares,
    mix_with_live,
    stable_document,
)
from otel_lightning.learner.policy.serving.compare_record import changed_since
from otel_lightning.learner.policy.serving.eligible import check_gate, check_live, chosen_policy
from otel_lightning.learner.policy.serving.served import features_of
from otel_lightning.learner.policy.serving.settled import settle
from otel_lightning.learner.policy.serving.versions import (
    TEXTS,
    promotion_recorded,
    promotions_of,
)
from otel_lightning.learner.promotions import Row, changes_of_file, standing_promotions
from otel_lightning.learner.runs import to_json


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
    is_restored: bool = False
    """Whether the file already has what the rollback would write, because somebody restored it."""
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
    joint.check_alone(file.document["flags"], key, store)
    policy = chosen_policy(store, key, flags, version)
    check_gate(policy)
    stable = stable_document(store, key, file.document)
    check_live(policy, flag_document.live_shares(stable, key))
    share = 1.0 if canary is None else canary
    retired = dict.fromkeys(flag_document.retired(file.document, key), 0)
    mixture = mix_with_live(policy, stable, key, share, retired)
    # A canary mixes two policies, so its propensities are not those of the version alone: it is a
    # version of its own.
    served_version = policy["version"] if canary is None else f"{policy['version']}@{canary:g}"
    change = Change(
        policy["version"],
        served_version,
        before=flag_document.live_shares(file.document, key),
        after=mixture.after,
        written=not dry_run,
        needs_provider=isinstance(mixture.weights, flag_document.ProviderPolicy),
        in_context="contextual" in policy["learned"],
    )
    if not dry_run:
        action = "promote" if canary is None else "canary"
        row = _row(change, key, target, file) | {"action": action, "share": share}
        _write(store, file, target, mixture, row)
    return change


def _write(
    store: Store, file: flag_file.FlagFile, target: Path, mixture: Mixture, row: Row
) -> None:
    """Write the weights of a policy into a flag file, and record the change."""
    key = str(row["key"])
    text = flag_file.text_with_policy(file, key, mixture.weights, str(row["served_version"]))
    # Recorded as it is read back from the text, so that a later comparison with the file is exact.
    written = flag_document.flag_part(flag_file.parse_flag_file(target, text, key).document, key)
    columns = {"arms": to_json(mixture.arms), "after": to_json(written)}
    _record_and_replace(store, row | columns, target, text, file)


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
    changes = promotions_of(store, key)
    if not changes:
        raise DataError(
            f"No policy of flag '{key}' was promoted, so there is nothing to go back to."
        )
    path = flags or Path(changes[-1]["flags"])
    standing = standing_promotions(changes_of_file(changes, path))
    if not standing:
        raise DataError(
            f"Each promotion of flag '{key}' in '{path}' was rolled back already, so there is "
            "nothing to go back to. Name another file with --flags."
        )
    last = standing[-1]
    file = flag_file.read_with_text(path, key)
    served, before = flag_document.flag_part(file.document, key), last["before"]
    # `before` is allowed: a promotion that was killed between its record and its file is taken back
    # too.
    if served not in (last["after"], before):
        raise changed_since(store, key, last, path)
    restored_version = flag_document.served_version(before)
    restored = flag_document.with_flag_part(file.document, key, before)
    change = Change(
        version=restored_version or "",
        served_version=restored_version or "",
        before=flag_document.live_shares(file.document, key),
        after=flag_document.live_shares(restored, key),
        written=not dry_run,
        is_restored=served == before,
        in_context=bool(features_of(served) or features_of(before)),
    )
    if dry_run:
        return change
    row = _row(change, key, path, file) | {
        # Without the share of a canary, which is part of the version that was served.
        "version": (restored_version or "").split("@")[0] or None,
        "served_version": restored_version,
        "action": "rollback",
        "share": None,
        "arms": to_json(change.after),
        "after": to_json(before),
    }
    text = flag_file.text_with_former_part(file, restored, key, last[TEXTS])
    _record_and_replace(store, row, path, text, file)
    return change


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
