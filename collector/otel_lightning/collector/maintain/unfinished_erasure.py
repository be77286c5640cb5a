"""The work that is left to `lightning-ingest forget` after it has deleted the rows.

A file beside the store lists it, so that it can be done after a crash.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

from otel_lightning.collector.files.atomic import PRIVATE, replaced, sync
from otel_lightning.collector.files.overwrite import erase_file
from otel_lightning.collector.spool.folder import spool_folder


class UnfinishedErasure(NamedTuple):
    """Work that is left after rows were deleted: it is in a file, so that a crash does not lose it.

    As long as the file exists, the store's file must be rewritten, and these other files quote
    erased traces: judges' answers, and bodies that no decoder could read.
    """

    traces: list[str]
    caches: list[str]

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Return the work that is left for a store, or None."""
        file = _unfinished(path)
        return cls(**json.loads(file.read_text())) if file.exists() else None

    def keep(self, path: Path) -> None:
        """Add this to the file; call it before the transaction that deletes the rows ends."""
        before = UnfinishedErasure.of(path) or UnfinishedErasure([], [])
        all_of = zip(self._fields, before, self, strict=True)
        text = json.dumps({name: sorted({*old, *new}) for name, old, new in all_of})
        with replaced(_unfinished(path), PRIVATE) as file:
            file.write_text(text)

    def finish(self, path: Path) -> None:
        """Overwrite and delete the other files, when the store's file has been rewritten."""
        _erase_set_aside(spool_folder(path), self.traces)
        for cache in map(Path, self.caches):
            if cache.exists():
                erase_file(cache)
        _unfinished(path).unlink()
        sync(path.parent)


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + ".forget")


def _erase_set_aside(folder: Path, traces: Iterable[str]) -> None:
    """Erase the bodies that no decoder could read if they contain the id of one of these traces."""
    # Protobuf has ids as bytes; the copies of spans with repeated ids are JSON and have them as
    # hex.
    names = [name for trace in traces for name in (trace.encode(), _bytes(trace))]
    # The spool's segments lie in the folder itself, and bodies that were set aside in folders
    # below.
    aside = (file for file in folder.rglob("*") if file.parent != folder and file.is_file())
    for file in aside:
        content = file.read_bytes()
        if any(name in content for name in names):
            erase_file(file)


def _bytes(trace: str) -> bytes:
    try:
        return bytes.fromhex(trace)
    except ValueError:
        return trace.encode()
