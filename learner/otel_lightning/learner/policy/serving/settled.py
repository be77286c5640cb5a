"""Withdraw the record of a change of a flag file that was not made, because it was cut off.

A change is recorded before the file is renamed. If the process is killed in between, the store says
that a policy is live, and the file is as it was before. A file that somebody restored by hand looks
the same, and its record must stay: the policy was served for a while. What tells them apart is the
time of the file, which is older than the record only if nothing has touched it since.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from otel_lightning.collector.store import Store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.serving import flag_document, flag_file
from otel_lightning.learner.policy.serving.versions import promotions_of, withdraw
from otel_lightning.learner.promotions import changes_of_file


def settle(store: Store, key: str, flags: Path) -> None:
    """Withdraw the record of the newest change of a flag if it was never made.

    Args:
        store: An open store.
        key: The flag.
        flags: The flag file.
    """
    if _cut_off(store, key, flags) is None:  # the lock is rarely needed
        return
    with flag_file.locked_flag_file(flags):
        # Again, alone: another process may have been making the change.
        if (last := _cut_off(store, key, flags)) is not None:
            withdraw(store, last)


def _cut_off(store: Store, key: str, flags: Path) -> dict[str, Any] | None:
    """Return the newest change of a flag if the file was not touched since before its record."""
    changes = changes_of_file(promotions_of(store, key), flags)
    if not changes or changes[-1]["flags"] != str(flags.resolve()):
        return None
    last = changes[-1]
    try:
        served = flag_document.flag_part(flag_file.read_flag_file(flags, key), key)
        status = flags.stat()
    except (DataError, OSError):  # the command that needs the file will say so
        return None
    touched = datetime.fromtimestamp(max(status.st_mtime, status.st_ctime), UTC)
    was_touched = touched.replace(tzinfo=None) >= last["time"]
    is_unchanged = served == last["before"] and served != last["after"]
    return last if is_unchanged and not was_touched else None
