"""Compare what a flag file serves with the recorded promotions."""

from pathlib import Path

from otel_lightning.collector.store import Store
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving import flag_document, flag_file, joint
from otel_lightning.learner.policy.serving.settled import settle
from otel_lightning.learner.policy.serving.versions import promotions_of
from otel_lightning.learner.promotions import Row, changes_of_file


def describe_served(store: Store, key: str, flags: Path | None) -> str:
    """Say which policy the flag file serves, and whether the record agrees.

    The record of a change that was cut off before it was made is withdrawn first.

    Args:
        store: An open store.
        key: The flag.
        flags: The flag file; None uses the file of the last change.
    """
    changes = promotions_of(store, key)
    if flags is None and not changes:
        return f"No policy of flag '{key}' was promoted."
    path = flags or Path(changes[-1]["flags"])
    settle(store, key, path)
    changes = changes_of_file(promotions_of(store, key), path)
    try:
        document = flag_file.read_flag_file(path, key)
    except DataError as error:
        return f"Not to be compared: {error}"
    served = flag_document.flag_part(document, key)
    version = flag_document.served_version(served)
    name = f"policy {version}" if version else "no policy of ours"
    serves = f"'{path}' serves {name} for flag '{key}'"
    if not changes:
        return f"{serves}; the store has no record of a promotion."
    last = changes[-1]
    if served == last["after"]:
        return f"{serves}, as recorded."
    if change := _joint_change(store, key, last, path):
        return f"{serves}. Since the last change of it, {_describe(change)}"
    recorded = last["served_version"] or "the flag as it was before"
    is_older = any(served in (row["before"], row["after"]) for row in changes)
    origin = "an older state that was restored by hand" if is_older else "changed by hand"
    return f"{serves}: NOT as recorded ({recorded}), but {origin}."


def changed_since(store: Store, key: str, last: Row, path: Path) -> DataError:
    """Return the error that says what changed a flag after its last promotion."""
    if change := _joint_change(store, key, last, path):
        back = next_command("lightning-learn rollback", store, key=change["key"], flags=path)
        return DataError(
            f"Since policy {last['served_version']} of flag '{key}' was promoted, "
            f"{_describe(change)} Take that back first: {back}"
        )
    return DataError(
        f"Flag '{key}' in '{path}' is neither as policy {last['served_version']} left it nor "
        "as it was before: somebody changed it. To go back, restore one of the two by hand. "
        f"Compare with: {next_command('lightning-learn policies', store, key=key)}"
    )


def _joint_change(store: Store, key: str, last: Row, path: Path) -> Row | None:
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


def _describe(change: Row) -> str:
    version = change["served_version"] or change["version"]
    return (
        f"'{change['key']}' was changed, which has a flag in common: {change['action']} of policy "
        f"{version}."
    )
