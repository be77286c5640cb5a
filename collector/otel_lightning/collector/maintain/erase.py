"""`lightning-ingest forget`: erase traces from every file of a store, so that no byte remains.

Deleted rows stay readable in a DuckDB file until DuckDB reuses their blocks, and requests stay on
the spool until a segment is full. So the command deletes the rows, writes the remaining rows to a
new file, and overwrites the old file, its log, the spool and the judges' answers with zeros.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from otel_lightning.collector.derive.tables import PER_TRACE
from otel_lightning.collector.files.overwrite import erase_file, overwrite
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.load.position import stored_until
from otel_lightning.collector.maintain.copy_store import (
    SOURCE,
    copy_table,
    judge_cache,
    partial_store,
    store_waiting,
)
from otel_lightning.collector.maintain.unfinished_erasure import UnfinishedErasure
from otel_lightning.collector.refresh.refresh import forget_kept
from otel_lightning.collector.spool.folder import dead_letters, spool_folder
from otel_lightning.collector.spool.format import segment_path, segments_of
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
from otel_lightning.collector.store.deduplication.kept_filters import filters_file
from otel_lightning.collector.store.files.spilling import erase_spilled
from otel_lightning.collector.store.sql_text import quote_name
from otel_lightning.collector.store.tables_with import tables_with

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
        if self.where and not _is_condition(self.where):
            raise StoreError(
                f"'{self.where}' is not one condition over spans. Write one such as: "
                "attributes['user.id'] = 'u1'"
            )


def _is_condition(text: str) -> bool:
    # The line break ends a comment (`--`) at the end of the condition, which would hide the
    # bracket.
    try:
        return is_select(f"SELECT 1 FROM spans WHERE ({text}\n)")
    except StoreError:  # it cannot be parsed
        return False


@dataclass(frozen=True, slots=True)
class Erased:
    """Number of erased traces, rollouts and rows."""

    traces: int
    rollouts: int
    rows: int
    has_finished: bool = False
    """Whether an erasure that was interrupted before has been brought to its end."""


def erase(path: Path, selection: Selection, memory_bytes: int | None = None) -> Erased:
    """Erase traces from a store that no process serves, from its spool and the judges' answers.

    If no trace matches, the requests on the spool are stored and derived, and nothing is erased,
    except for what an interrupted erasure left to do.

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
        filters_file(path).unlink(missing_ok=True)  # it has bits of the hashes of erased ids
        if memory_bytes:
            store.limit(memory_bytes)
        _empty_spool(store, path)
        # Rollouts and conversations are found by derived rows, so all of these must exist.
        derive_all(store, path)
        was_interrupted = UnfinishedErasure.of(path) is not None
        erased = erase_rows(store, path, selection)
        unfinished = UnfinishedErasure.of(path)
        if unfinished is None:
            return erased
        # `erase_rows` marked the traces that share a key with an erased one.
        derive_all(store, path)
        log = path.with_name(path.name + ".wal")
        # Open the old files before they are replaced: afterwards no path leads to their bytes.
        files = [old_files.enter_context(one.open("r+b")) for one in (path, log) if one.exists()]
        store.close()
        _rewrite(path)
        for file in files:
            overwrite(file.fileno())
    unfinished.finish(path)
    return replace(erased, has_finished=was_interrupted)


def _empty_spool(store: Store, path: Path) -> None:
    """Store the requests that wait on the spool, then erase all segments."""
    folder = spool_folder(path)
    store_waiting(store, folder, stored_until(store, folder), dead_letters(path))
    store.checkpoint()
    for segment in segments_of(folder) if folder.exists() else ():
        erase_file(segment_path(folder, segment))
    store.execute(statement(__package__, "forget_spool"))


def erase_rows(store: Store, path: Path, selection: Selection) -> Erased:
    """Delete the rows of the selected traces, in one transaction.

    `UnfinishedErasure` has what is left to do after it.

    Args:
        store: A direct store; all of it is derived.
        path: Path of the store.
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
        if erased_rows := before - _rows(store):
            names = store.column("SELECT trace_id FROM erased_traces")
            UnfinishedErasure(names, [str(file) for file in _judge_caches(store, path)]).keep(path)
    forget_kept(store)
    return Erased(counts[0], counts[1], erased_rows)


def delete_underived(store: Store) -> None:
    """Delete the derived rows of traces that should have been derived without an erased one.

    They may have texts of it. Traces on which workers died stay stale, and are derived later.
    """
    with store.transaction():
        for table in PER_TRACE:
            store.execute(statement(__package__, "delete_underived", table=Sql(table)))


def _rows(store: Store) -> int:
    return sum(store.count(quote_name(table)) for table in tables_of(store))


def tables_of(store: Store) -> list[str]:
    """Return the names of the tables of a store, except those that describe its file."""
    select = statement(__package__, "tables", database=Sql("current_database()"))
    return [name for name in store.column(select) if name not in OF_THE_FILE]


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
    make_tables(store, source)
    for table in tables_of(store):
        copy_table(store, table, source)
    make_views(store, source)


def make_tables(store: Store, source: str) -> None:
    """Make the tables that users made in another attached database, without rows."""
    _make(store, source, "table")


def make_views(store: Store, source: str) -> None:
    """Make the views that users made in another attached database; their tables must exist."""
    _make(store, source, "view")


def _make(store: Store, source: str, kind: str) -> None:
    for own_object in store.rows(statement(__package__, "own_objects", source=source)):
        if own_object["kind"] == kind:
            store.execute(own_object["sql"])


def _judge_caches(store: Store, path: Path) -> set[Path]:
    """Find the files with judges' answers, which quote traces: the default file and `--cache`."""
    rows = store.query(statement(__package__, "judge_caches"))
    caches = {judge_cache(path), *map(Path, rows["cache"].to_pylist())}
    return {file for file in caches if file.exists()}
