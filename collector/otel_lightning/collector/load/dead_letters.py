"""Dead letters: what cannot be stored is kept in a file, which the table `rejected` names."""

import json
import os
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from otel_lightning.collector.files.atomic import PRIVATE, make_private, sync
from otel_lightning.collector.otlp.signals import Signal
from otel_lightning.collector.store import Store
from otel_lightning.collector.store.times_as_text import all_times_as_text

DAMAGED = "a part of the spool was damaged on disk; what is left of it is in this file"
REPEATED = (
    "repeated ids: span {span_id} of trace {trace_id} ('{name}', {start_time}) has the ids of"
    " another span, and is not stored. Let the sender draw random ids."
)


class DeadLetters:
    """Writes dead letters and the rows of `rejected`, in the caller's transaction."""

    def __init__(self, store: Store, folder: Path) -> None:
        """Write nothing yet.

        Args:
            store: A direct store, in a transaction.
            folder: Folder for the files.
        """
        self._store, self._folder = store, folder

    def add_records(self, signal: Signal, reasons: Sequence[str]) -> None:
        """Name records that cannot be stored; their request is stored without them."""
        self._reject(signal, reasons)

    def add_damage(self, file: Path) -> None:
        """Name the file with a copy of a damaged part of the spool."""
        self._reject("spool", [DAMAGED], file)

    def add_request(self, signal: Signal, body: bytes, received_ns: int, reason: str) -> None:
        """Keep the body of a request that cannot be decoded."""
        file = self._keep(body, received_ns, f"{signal}.pb")
        self._reject(signal, [f"cannot be decoded: {reason}"], file)

    def add_repeated_ids(self, spans: pa.Table, received_ns: int) -> None:
        """Keep the spans that are not stored because other spans have their ids."""
        rows = all_times_as_text(spans).to_pylist(maps_as_pydicts="lossy")
        lines = "".join(f"{json.dumps(span, default=str)}\n" for span in rows).encode()
        file = self._keep(lines, received_ns, "repeated-ids.jsonl")
        self._reject("traces", [REPEATED.format(**span) for span in rows], file)

    def _keep(self, content: bytes, received_ns: int, kind: str) -> Path:
        """Write a file and wait until the disk has it: it will be the only copy of the content.

        The hash in its name keeps apart what came at the same time, as all requests of one file do.
        A batch that is stored again, because its transaction was undone, writes the same file
        again.
        """
        file = self._folder / f"{received_ns}.{sha256(content).hexdigest()[:12]}.{kind}"
        make_private(file.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(file, flags, PRIVATE), "wb") as letter:
            letter.write(content)
        sync(file)
        sync(file.parent)
        return file

    def _reject(self, signal: str, reasons: Sequence[str], file: Path | None = None) -> None:
        """Insert a row of `rejected` for each reason."""
        if not reasons:
            return
        now = pa.scalar(time.time_ns(), pa.int64()).cast(pa.timestamp("ns"))
        name = pa.scalar(str(file) if file else None, pa.string())
        rows = {
            "received_at": pa.repeat(now, len(reasons)),
            "signal": pa.repeat(signal, len(reasons)),
            "reason": pa.array(reasons, pa.string()),
            "file": pa.repeat(name, len(reasons)),
        }
        self._store.insert("rejected", pa.table(rows))
