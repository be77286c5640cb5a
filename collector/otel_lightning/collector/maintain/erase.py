"""`lightning-ingest forget`: erase traces from every file of a store, so that no byte remains.

Deleted rows stay readable in a DuckDB file until DuckDB reuses their blocks, and requests stay on
the spool until a segment is full. So the command deletes the rows, writes the remaining rows to a
new file, and overwrites the old file, its log, the spool and the judges' answers with zeros.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from otel_lightning.collector.load.batches import load
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.load.position import spool_position
from otel_lightning.collector.maintain.copy_store import (
    SOURCE,
    copy_table,
    judge_cache,
    partial_store,
    waiting_requests,
)
from otel_lightning.collector.overwrite import erase_file, erase_spilled, overwrite
from otel_lightning.collector.spool import SET_ASIDE, spool_folder
from otel_lightning.collector.spool_format import segment_path, segments_of
from otel_lightning.collector.store import (
    Sql,
    Store,
    StoreError,
    is_select,
    open_store,
    quote_literal,
    read_server,
    statement,
)
from otel_lightning.collector.store.seen_ids import SeenIds
from otel_lightning.collector.store.sql_text import quote_name
from otel_lightning.collector.store.tables_with import tables_with

BYTES_AT_ONCE = 16 * 1024 * 1024
OF_THE_FILE = frozenset({"schema_migrations"})


@dataclass(frozen=True, slots=True)
class Selection:
    """The traces to erase: each trace that matches at least one of these fields."""

    traces: Sequence[str] = ()
    rollouts: Sequence[str] = ()
    conversations: Sequence[str] = ()
    where: str | None = None
    """SQL condition on a row of `spans`; the whole trace of each matching span is erased."""

    def check(self) -> None:
        """Refuse an empty selection, or a `where` that is not exactly one condition.

        Raises:
            StoreError: If the selection is refused.
        """
        if not (self.traces or self.rollouts or self.conversations or self.where):
            raise StoreError("Say what to forget: --trace, --rollout, --conversation or --where.")
        # The line break ends a comment (`--`) at the end of the condition, which would hide the
        # bracket.
        if self.where and not is_select(f"SELECT 1 FROM spans WHERE ({self.where}\n)"):
            raise StoreError(f"'{self.where}' is not one condition over spans.")


@dataclass(frozen=True, slots=True)
class Erased:
    """Number of erased traces, rollouts and rows."""

    traces: int
    rollouts: int
    rows: int


def erase(path: Path, selection: Selection, memory_bytes: int | None = None) -> Erased:
    """Erase traces from a store that no process serves, from its spool and the judges' answers.

    If no trace matches, the requests on the spool are stored and derived, and nothing is erased.

    Args:
        path: Path of the store.
        selection: The traces to erase.
        memory_bytes: DuckDB's memory limit; None for DuckDB's default.

    Raises:
        StoreError: If there is no store, a process serves it, or the selection is not valid.
    """
    selection.check()
    if server := read_server(path):
        raise StoreError(f"'{path}' is served by process {server.pid}, which answers no SQL.")
    with ExitStack() as old_files, open_store(path, create=False) as store:
        erase_spilled(path)
        if memory_bytes:
            store.limit(memory_bytes)
        _empty_spool(store, path)
        # Rollouts and conversations are found by derived rows, so all of these must exist.
        derive_all(store, path)
        erased = erase_rows(store, selection)
        if not erased.rows:
            return erased
        # `erase_rows` marked the traces that share a key with an erased one.
        derive_all(store, path)
        others = OtherFiles.of(store, path)
        log = path.with_name(path.name + ".wal")
        # Open the old files before they are replaced: afterwards no path leads to their bytes.
        files = [old_files.enter_context(one.open("r+b")) for one in (path, log) if one.exists()]
        store.close()
        _rewrite(path)
        for file in files:
            overwrite(file.fileno())
    others.erase()
    return erased


class OtherFiles(NamedTuple):
    """What else quotes erased traces: judges' answers, and bodies that no decoder could read."""

    spool: Path
    traces: list[str]
    caches: set[Path]

    @classmethod
    def of(cls, store: Store, path: Path) -> "OtherFiles":
        """Find them, after `erase_rows` on the same connection."""
        names = [str(name) for name in store.query("FROM erased_traces")["trace_id"].to_pylist()]
        return cls(spool_folder(path), names, _judge_caches(store, path))

    def erase(self) -> None:
        """Overwrite and delete them."""
        _erase_set_aside(self.spool, self.traces)
        for cache in self.caches:
            erase_file(cache)


def _empty_spool(store: Store, path: Path) -> None:
    """Store the requests that wait on the spool, then erase all segments."""
    folder = spool_folder(path)
    known, batch, size = SeenIds(store), [], 0
    aside = folder / SET_ASIDE
    for request in waiting_requests(folder, spool_position(store), aside):
        batch.append(request)
        size += len(request.body)
        if size >= BYTES_AT_ONCE:
            load(store, batch, known, dead_letters=aside)
            batch, size = [], 0
    load(store, batch, known, dead_letters=aside)
    store.checkpoint()
    for segment in segments_of(folder) if folder.exists() else ():
        erase_file(segment_path(folder, segment))
    store.execute(statement(__package__, "forget_spool"))


def erase_rows(store: Store, selection: Selection) -> Erased:
    """Delete the rows of the selected traces, in one transaction.

    The connection's temporary table `erased_traces` has the ids of the traces afterwards.

    Args:
        store: A direct store; all of it is derived.
        selection: The traces.

    Raises:
        StoreError: If the rewritten file would lack something that a user made in the store.
    """
    for lost in store.rows(statement(__package__, "not_kept")):
        raise StoreError(
            f"The {lost['kind']} '{lost['name']}' would be lost, so nothing was erased: forget "
            "rewrites the store, and keeps the tables and views of the schema main only. Move it "
            "to another file, or drop it, and run forget again."
        )
    rollouts = ", ".join(map(quote_literal, selection.rollouts))
    store.execute(
        statement(
            __package__,
            "erased",
            traces=selection.traces,
            rollouts=selection.rollouts,
            conversations=selection.conversations,
            condition=Sql(f"{selection.where}\n" if selection.where else "FALSE"),
            rollout_list=Sql(f"[{rollouts}]::VARCHAR[]"),
        )
    )
    before = _rows(store)
    with store.transaction():
        store.execute(statement(__package__, "erase_rows"))
        for column, erased in (("trace_id", "erased_traces"), ("rollout_id", "erased_rollouts")):
            for table in tables_with(store, column):
                store.execute(f"DELETE FROM {table} WHERE {column} IN (FROM {erased})")
        store.execute(statement(__package__, "erase_hashes"))
    counts = [store.count(name) for name in ("erased_traces", "erased_rollouts")]
    return Erased(counts[0], counts[1], before - _rows(store))


def _rows(store: Store) -> int:
    return sum(store.count(quote_name(table)) for table in _tables(store))


def _tables(store: Store) -> list[str]:
    rows = store.query(statement(__package__, "tables", database=Sql("current_database()")))
    return [str(name) for name in rows["name"].to_pylist() if name not in OF_THE_FILE]


def _rewrite(path: Path) -> None:
    """Replace a store's file by a new file with the same rows, which has no deleted rows."""
    with partial_store(path) as partial:
        with open_store(partial) as store:
            store.execute(f"ATTACH {quote_literal(str(path))} AS {SOURCE} (READ_ONLY)")
            copy_all(store, SOURCE)
            store.execute(f"DETACH {SOURCE}")
        # A new file is private. The user may have given the old one other permissions.
        partial.chmod(path.stat().st_mode & 0o777)


def copy_all(store: Store, source: str) -> None:
    """Copy all tables of another attached database, and also make the views that users made there.

    Args:
        store: A new store.
        source: Name of the other database, which has the same schema.
    """
    own = store.rows(statement(__package__, "own_objects", source=source))
    for made in (one for one in own if one["kind"] == "table"):
        store.execute(made["sql"])
    for table in _tables(store):
        copy_table(store, table, source)
    for made in (one for one in own if one["kind"] == "view"):
        store.execute(made["sql"])


def _judge_caches(store: Store, path: Path) -> set[Path]:
    """Find the files with judges' answers, which quote traces: the default file and `--cache`."""
    rows = store.query(statement(__package__, "judge_caches"))
    found = {judge_cache(path), *map(Path, rows["cache"].to_pylist())}
    return {file for file in found if file.exists()}


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
