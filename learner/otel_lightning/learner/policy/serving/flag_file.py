"""The flagd flag file that serves a policy: read it, and replace it without losing others' changes.

Any language's OpenFeature SDK serves such a file. `flag_document.py` has what is done with its
content in memory, and `flag_text.py` keeps the formatting of its text.
"""

import json
from collections.abc import Iterator, Mapping
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
from otel_lightning.collector.files.reason import reason
from otel_lightning.instrumentation.attributes import POLICY_VERSION
from otel_lightning.learner.errors import DataError, MissingFileError
from otel_lightning.learner.policy.serving import flag_document, flag_rules, joint
from otel_lightning.learner.policy.serving.flag_text import (
    member_text,
    with_member_text,
    with_members,
    without_member,
)

PARTS = ("targeting", "metadata")
"""Members of a flag that a policy writes."""


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
    return read_with_text(path, key).document


def read_with_text(path: Path, key: str) -> FlagFile:
    """Read a flagd flag file that has the flag `key`: its text and its content.

    Raises:
        DataError: As `read_flag_file`.
    """
    try:
        text = path.read_bytes().decode()  # read_text would change Windows line endings
    except FileNotFoundError as error:
        raise MissingFileError(
            f"There is no flag file at '{path}'. Give --flags the flagd file that serves '{key}'."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"'{path}' is not a readable flagd flag file ({reason(error)}).") from error
    return parse_flag_file(path, text, key)


def parse_flag_file(path: Path, text: str, key: str) -> FlagFile:
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
            names = ", ".join(sorted(flags)) if isinstance(flags, dict) and flags else "none"
            raise DataError(f"'{path}' has no flag '{name}'. Its flags: {names}.")
        _check_rules(flags[name], path, name)
        _check_served(flags[name], path, name)
    together = joint.flags_of(key, document["flags"])
    if len(together) > 1:
        document["flags"][key] = joint.combined(document["flags"], together)
    return FlagFile(path, text, document)


def text_with_policy(file: FlagFile, key: str, weights: flag_document.Weights, version: str) -> str:
    """Write a policy into the text of a flag file; every other character stays as it was.

    Args:
        file: The flag file.
        key: The flag.
        weights: Integer weight of each variant, which add up to `WHOLE`; or the names of features
            and a function from a combination of their values to such weights; or a policy for our
            OpenFeature provider.
        version: Version of the policy.

    Returns:
        The new text, with new targeting and with metadata for the version and each propensity.
        A contextual policy has no fixed propensities: readers look them up by its version.
    """
    part = flag_document.policy_part(file.document, key, weights, version)
    return text_with_part(file, flag_document.with_flag_part(file.document, key, part), key)


def part_texts(file: FlagFile, key: str) -> dict[str, dict[str, str | None]]:
    """Return how targeting and metadata are written, for each flag of the file that `key` names.

    Returns:
        By flag and member: its text, to be written back by `text_with_former_part`; None if it is
        not there.
    """
    flags: dict[str, Any] = json.loads(file.text)["flags"]
    return {
        name: {member: member_text(file.text, ("flags", name), member) for member in PARTS}
        for name in joint.flags_of(key, flags)
        if name in flags
    }


def text_with_former_part(
    file: FlagFile,
    changed: Mapping[str, Any],
    key: str,
    texts: Mapping[str, Mapping[str, str | None]],
) -> str:
    """Return the text of a flag file with a flag as it was, to the character.

    Args:
        file: The flag file.
        changed: The document with the flag's former targeting and metadata.
        key: The flag.
        texts: How these were written, from `part_texts`.

    Returns:
        The former text. It is as `text_with_part` writes it if the texts do not give the former
        values, for example because a flag of them is gone.
    """
    text = file.text
    for name, members in texts.items():
        for member in reversed(PARTS) if name in file.document["flags"] else ():
            text = with_member_text(text, ("flags", name), member, members.get(member))
    restored = flag_document.flag_part(parse_flag_file(file.path, text, key).document, key)
    if restored == flag_document.flag_part(changed, key):
        return text
    return text_with_part(file, changed, key)


def text_with_part(file: FlagFile, changed: Mapping[str, Any], key: str) -> str:
    """Return the text of a flag file with a changed flag; the rest keeps its formatting."""
    flags, part = file.document["flags"], flag_document.flag_part(changed, key)
    real = {name: flag for name, flag in flags.items() if name != key}
    # A combined flag exists only in memory; in the file each of its flags gets its part.
    keys = joint.flags_of(key, real) if joint.FLAGS in part["metadata"] else [key]
    parts = joint.parted(part, real, keys) if len(keys) > 1 else {key: part}
    text = file.text
    for name, members in parts.items():
        changed_members = {
            member: value for member, value in members.items() if value or member in flags[name]
        }
        # A member that a policy added goes with it, instead of staying as an empty object.
        removed = [
            member for member, value in changed_members.items() if not value and flags[name][member]
        ]
        written = {
            member: value for member, value in changed_members.items() if member not in removed
        }
        text = with_members(text, ("flags", name), written)
        for member in removed:
            text = without_member(text, ("flags", name), member)
    return text


@contextmanager
def replacing(path: Path, text: str, file: FlagFile | None = None) -> Iterator[None]:
    """Replace the text of a file atomically when the block ends without an exception.

    The new text is written and synced before the block begins. After the block, only a rename is
    left, which rarely fails: so the block's database change and the file stay consistent.

    Args:
        path: The file to replace.
        text: Its new text.
        file: The flag file that the new text was made from. If it has changed since it was read,
            nothing is replaced; it is compared before the block and again before the rename. For
            our other commands, hold `locked_flag_file` meanwhile.

    Raises:
        ChangedError: If the flag file is no longer as it was read.
    """
    path = path.resolve()
    with temporary_beside(path, None if path.exists() else PRIVATE) as temporary:
        temporary.write_bytes(text.encode())
        sync(temporary)
        _check_unchanged(file)
        yield
        _check_unchanged(file)
        rename_durably(temporary, path)


def locked_flag_file(path: Path) -> AbstractContextManager[bool]:
    """Return a lock of a file, which our commands hold while they record and make a change of it.

    It is held from the record of the change until after the rename. So two of our commands cannot
    both find the file unchanged and then overwrite each other, and none takes the record of a
    change that is being made for one that was cut off. Editors and other programs do not know the
    lock: against them, the comparison right before the rename leaves a gap of some microseconds.
    The lock is on the folder, so no lock file is left behind.
    """
    return locked(path.resolve().parent)


def _check_unchanged(file: FlagFile | None) -> None:
    if file is None:
        return
    try:
        is_unchanged = file.path.read_bytes() == file.text.encode()
    except OSError:
        is_unchanged = False
    if not is_unchanged:
        raise ChangedError(
            f"'{file.path}' was changed by another program in the meantime, so it was left as it "
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
                flag_rules.shares_of_cell(targeting, cell)
            return
    raise DataError(
        f"Flag '{key}' in '{path}' is targeted by '{strange[0]}', which a learned policy would "
        "replace. Only 'fractional' targeting can be learned, and the rules of a learned policy."
    )


def _check_served(flag: Mapping[str, Any], path: Path, key: str) -> None:
    """Refuse a flag that serves a variant that it does not have: its share would have no value."""
    variants, targeting = flag.get("variants") or {}, flag.get("targeting") or {}
    if not isinstance(variants, dict):
        raise DataError(
            f"The variants of flag '{key}' in '{path}' must be an object: the name of each variant "
            "with its value."
        )
    cells = flag_rules.cells(flag_rules.features_of(targeting))
    try:
        shares = [flag_rules.shares_of_cell(targeting, cell) for cell in cells if targeting]
    except DataError as error:
        raise DataError(f"Flag '{key}' in '{path}' cannot be used: {error}") from error
    served = {arm for of_cell in shares for arm, share in of_cell.items() if share > 0}
    if flag.get("defaultVariant") is not None and not all(shares or [{}]):
        served.add(str(flag["defaultVariant"]))
    if unknown := sorted(served - set(variants)):
        raise DataError(
            f"Flag '{key}' in '{path}' serves '{unknown[0]}', which is none of its variants: "
            f"{', '.join(variants) or 'it has none'}. Correct the name, or add the variant."
        )
