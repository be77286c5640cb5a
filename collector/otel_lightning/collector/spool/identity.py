"""An id for each spool, so that a store knows whether its position is in this spool or another.

A store that is restored without its spool, or whose spool was deleted, remembers a position in a
spool that is gone. In a new spool, which begins at 0, that position means nothing. Two copies of a
spool, one of them in a backup, go on with other requests. So each process that serves a store gives
its spool a new id.
"""

import secrets
from collections.abc import Sequence
from pathlib import Path

from otel_lightning.collector.files.atomic import PRIVATE, replaced

NAME = "id"


def spool_id(folder: Path) -> str:
    """Return the id of a spool; a spool without one gets it now."""
    file = folder / NAME
    try:
        return file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        new_id = secrets.token_hex(16)
        write_spool_id(folder, new_id)
        return new_id


def has_id(folder: Path, spool_ids: Sequence[str]) -> bool:
    """Return whether a spool has one of these ids; one without an id gets none."""
    file = folder / NAME
    return file.exists() and file.read_text(encoding="ascii").strip() in spool_ids


def write_spool_id(folder: Path, spool_id: str) -> None:
    """Give a spool this id."""
    with replaced(folder / NAME, PRIVATE) as temporary:
        temporary.write_text(spool_id + "\n", encoding="ascii")
