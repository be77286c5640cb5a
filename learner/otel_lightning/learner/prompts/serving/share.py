"""Give new variants a small share of the traffic in the flag file, and record the change."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from otel_lightning.collector.store import Store, statement
from otel_lightning.instrumentation.attributes import POLICY_VERSION
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving import flag_document, flag_file, flag_rules, joint
from otel_lightning.learner.policy.serving.flag_text import with_members
from otel_lightning.learner.policy.serving.versions import TEXTS, promotion_recorded, promotions_of
from otel_lightning.learner.runs import to_json

CANDIDATE = "lightning.candidate"
"""Beginning of the name of the flag's metadata that says where a proposed variant comes from. The
value is a text, `<parent> <run id>`: flagd allows no objects in metadata."""
ACTION = "candidates"
"""The action in the table `promotions`."""
ATTEMPTS = 5
"""How often a file that was changed in the meantime is read and written again."""

Shares = dict[str, float]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A new variant."""

    name: str
    parent: str
    value: Any
    """Its value in the flag file: a text, or an object of texts."""
    parent_value: Any
    """The parent's value when the variant was written; it must still be the same."""


@dataclass(frozen=True, slots=True)
class VariantChange:
    """The variants that a run adds to a flag, and those that it retires."""

    flags: Path
    """The flag file."""
    key: str
    """The flag."""
    run_id: str
    """Id of the run, which becomes the version of the shares."""
    candidates: Sequence[Candidate] = ()
    """The new variants."""
    share: float = 0.0
    """Share of the traffic for all new variants together, in [0, 1)."""
    retired: Collection[str] = ()
    """Variants that get weight 0; their text stays."""


@dataclass(frozen=True, slots=True)
class Change:
    """Shares of the traffic before and after."""

    before: Shares
    after: Shares
    attempts: int = 1
    """How often the file was read, because another program changed it."""


def candidates_of(document: Mapping[str, Any], key: str) -> dict[str, str]:
    """Read which variants were proposed, with the parent of each."""
    metadata = document["flags"][key].get("metadata") or {}
    return {
        name.removeprefix(f"{CANDIDATE}."): str(value).split(" ")[0]
        for name, value in metadata.items()
        if name.startswith(f"{CANDIDATE}.")
    }


def written_by(document: Mapping[str, Any], key: str, run_id: str) -> bool:
    """Return whether a run has written its variants into the flag file already."""
    metadata = document["flags"][key].get("metadata") or {}
    return any(
        name.startswith(f"{CANDIDATE}.") and str(value).split(" ")[-1] == run_id
        for name, value in metadata.items()
    )


def check_flag(path: Path, document: Mapping[str, Any], key: str) -> None:
    """Refuse a flag to which no variant can be added.

    Raises:
        DataError: If the flag is disabled, serves nothing, serves a canary, or is drawn together
            with other flags.
    """
    joint.check_alone(document["flags"], key)
    flag_document.check_serves(document, key, path)
    flag = document["flags"][key]
    version = str((flag.get("metadata") or {}).get(POLICY_VERSION) or "")
    if "@" in version:
        policy = version.split("@", maxsplit=1)[0]
        raise DataError(
            f"Flag '{key}' in '{path}' serves a canary of policy {policy}. Finish it first, by the "
            "command `promote` or `rollback` of lightning-learn."
        )


def change_variants(store: Store, variant_change: VariantChange) -> Change:
    """Write new variants into the flag file with a small share, and record the change.

    If this run wrote them before it was killed, nothing is changed. The file is read right before
    it is written. If another program changes it in between, it is read and written again: that
    program's change is kept.

    Args:
        store: An open store.
        variant_change: The flag, its new variants, and those to retire.

    Raises:
        ChangedError: If the file is changed again and again, or a parent has another text now.
        DataError: If the flag cannot be used.
    """
    # Optimistic locking: read, compute, write only if the file is still the same; else begin again.
    for attempt in range(1, ATTEMPTS + 1):
        file = flag_file.read_with_text(variant_change.flags, variant_change.key)
        if written_by(file.document, variant_change.key, variant_change.run_id):
            live = flag_document.live_shares(file.document, variant_change.key)
            return Change(live, live, attempt)
        _check_parents(file, variant_change)
        try:
            before, after = _write(store, file, variant_change)
        except flag_file.ChangedError:
            if attempt == ATTEMPTS:
                raise
        else:
            return Change(before, after, attempt)
    raise AssertionError


def shares_of(candidates: Sequence[Candidate], share: float) -> Shares:
    """Divide a share of the traffic evenly between new variants."""
    return {candidate.name: share / len(candidates) for candidate in candidates}


def diluted(
    document: Mapping[str, Any], key: str, new: Shares, retired: Collection[str]
) -> flag_document.Weights:
    """Compute the weights of a flag in which new variants take their shares from all live ones.

    Args:
        document: The content of the file.
        key: The flag.
        new: Share of each new variant.
        retired: Variants that lose their share to the other live ones.

    Returns:
        Integer weights that add up to `WHOLE`; or, if the targeting depends on features, their
        names and a function to such weights. Retired variants have weight 0.

    Raises:
        DataError: If no variant would be left.
    """
    kept_at_0 = flag_document.retired(document, key) | set(retired)

    def of_cell(cell: Mapping[str, bool] | None) -> dict[str, int]:
        live = flag_document.live_shares(document, key, cell)
        kept_shares = {arm: share for arm, share in live.items() if arm not in retired}
        if not kept_shares:
            raise DataError(f"No variant of flag '{key}' would be left beside the new ones.")
        # All live variants shrink by the same factor, and take over what retired ones had.
        factor = (1 - sum(new.values())) / sum(kept_shares.values())
        shares = {arm: share * factor for arm, share in kept_shares.items()} | new
        return dict.fromkeys(sorted(kept_at_0), 0) | flag_document.integer_weights(shares)

    names = flag_rules.features_of(document["flags"][key].get("targeting") or {})
    return (names, of_cell) if names else of_cell(None)


def _write(
    store: Store, file: flag_file.FlagFile, variant_change: VariantChange
) -> tuple[Shares, Shares]:
    key, run_id, candidates = variant_change.key, variant_change.run_id, variant_change.candidates
    document = file.document
    check_flag(file.path, document, key)
    new = shares_of(candidates, variant_change.share)
    weights = diluted(document, key, new, variant_change.retired)
    part = flag_document.policy_part(document, key, weights, run_id)
    part["metadata"] |= {
        f"{CANDIDATE}.{candidate.name}": f"{candidate.parent} {run_id}" for candidate in candidates
    }
    changed = flag_document.with_flag_part(document, key, part)
    text = flag_file.text_with_part(file, changed, key)
    text = with_members(text, ("flags", key, "variants"), {c.name: c.value for c in candidates})
    before, after = (flag_document.live_shares(state, key) for state in (document, changed))
    row = _row(file, variant_change, part | {"arms": after})
    # Rollback and reports want the learned policy beneath, not the run that added variants to it.
    row["version"] = _base(store, key, row["version"])
    # A killed run may have recorded the change without writing the file.
    store.execute(statement(__package__, "forget_share", key=key, action=ACTION, run_id=run_id))
    with (
        flag_file.locked_flag_file(file.path),
        promotion_recorded(store, row, None),
        flag_file.replacing(file.path, text, file),
    ):
        pass
    return before, after


def _base(store: Store, key: str, served: str | None) -> str | None:
    """Find the policy beneath: variants that were added before may have changed the version."""
    versions = {row["served_version"]: row["version"] for row in promotions_of(store, key)}
    return versions.get(served, served)


def _row(
    file: flag_file.FlagFile, variant_change: VariantChange, after: Mapping[str, Any]
) -> dict[str, Any]:
    before = flag_document.flag_part(file.document, variant_change.key)
    return {
        "key": variant_change.key,
        "version": before["metadata"].get(POLICY_VERSION),
        "served_version": variant_change.run_id,
        "action": ACTION,
        "share": variant_change.share,
        "arms": to_json(after["arms"]),
        "flags": str(file.path.resolve()),
        "before": to_json(before | {TEXTS: flag_file.part_texts(file, variant_change.key)}),
        "after": to_json({name: after[name] for name in ("targeting", "metadata")}),
        "time": datetime.now(UTC).replace(tzinfo=None),
    }


def _check_parents(file: flag_file.FlagFile, variant_change: VariantChange) -> None:
    key = variant_change.key
    variants = file.document["flags"][key].get("variants") or {}
    for candidate in variant_change.candidates:
        if variants.get(candidate.parent) != candidate.parent_value:
            raise flag_file.ChangedError(
                f"Variant '{candidate.parent}' of flag '{key}' in '{file.path}' was changed while "
                "the model was asked, so the proposals do not fit it. Nothing was written. Run the "
                "command again."
            )
        if candidate.name in variants:
            raise flag_file.ChangedError(
                f"Flag '{key}' in '{file.path}' got a variant '{candidate.name}' while the model "
                "was asked. Nothing was written. Run the command again."
            )
