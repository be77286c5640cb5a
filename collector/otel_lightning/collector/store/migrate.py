"""Bring a store's schema up to date by the numbered files in `migrations/`.

A file that was released is never edited again: a store keeps the checksum of each file that made
it, and one whose files differ from ours is refused. A change is a new file with the next number. If
it changes what is derived, its first line is `-- derive: again`: then everything received is marked
as stale, and the next refreshes derive it again.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import duckdb

from otel_lightning.collector.store.connection import Store
from otel_lightning.collector.store.errors import StoreError
from otel_lightning.collector.store.sql_text import statement

DERIVE_AGAIN = "-- derive: again"
CHECKSUMS_SINCE = 5
"""The file that adds the column `checksum`; stores of release 0.1.0 end before it."""
COLUMNS = """
    SELECT table_name, column_name, data_type FROM duckdb_columns()
    WHERE database_name = current_database() AND schema_name = 'main' AND NOT internal
"""

Layout = set[tuple[str, str, str]]
"""Table, column and type of every column of a database."""


class Migration(NamedTuple):
    """One numbered file."""

    version: int
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, in hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def derives_again(self) -> bool:
        """Whether what was derived before must be derived again."""
        return self.sql.startswith(DERIVE_AGAIN)


@cache
def migrations() -> Sequence[Migration]:
    """The files in the order of their numbers."""
    folder = resources.files(__package__) / "migrations"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [
        Migration(int(file.name.split("_")[0]), file.read_text(encoding="utf-8")) for file in files
    ]


def check(store: Store, path: Path, known: Sequence[Migration] | None = None) -> None:
    """Refuse a store whose schema this version cannot work with; change nothing.

    Raises:
        StoreError: If the store is newer, or other files than ours made it.
    """
    known = migrations() if known is None else known
    applied = applied_files(store)
    newest = known[-1].version
    if max(applied, default=0) > newest:
        raise StoreError(
            f"'{path}' has schema {max(applied)}; this otel-lightning knows up to {newest}. "
            f"Upgrade with: pip install -U otel-lightning"
        )
    ours = {migration.version: migration.checksum for migration in known}
    different = [n for n, checksum in applied.items() if checksum not in (None, ours.get(n))]
    if None in applied.values() and _layout(store) != _released_layout(applied, known):
        different.append(max(applied))
    if different:
        raise StoreError(
            f"'{path}' was made by an unreleased version of otel-lightning: its schema "
            f"{different[0]} is not the one released. Move what it received into a new store "
            f"with: lightning-ingest copy '{path}' NEW.duckdb"
        )


def migrate(store: Store, known: Sequence[Migration] | None = None) -> None:
    """Run the files that a store, which was checked, does not have yet.

    Each file is one transaction with the row that says that it ran.
    """
    known = migrations() if known is None else known
    applied = applied_files(store)
    for migration in known:
        if migration.version in applied:
            continue
        with store.transaction():
            store.execute(migration.sql)
            store.execute(
                "INSERT INTO schema_migrations (version, applied_at)"
                f" VALUES ({migration.version}, now()::TIMESTAMP)"
            )
            if migration.version >= CHECKSUMS_SINCE:
                _keep_checksums(store, known)
            if migration.derives_again:
                mark_all_stale(store)


def mark_all_stale(store: Store) -> None:
    """Mark everything received, so that the next refreshes derive it again.

    The rows that were derived stay until their traces are derived again.
    """
    store.execute(statement(__package__, "mark_all_stale"))


def applied_files(store: Store) -> Mapping[int, str | None]:
    """The numbers of the files that made a store, with their checksums; None where not kept."""
    columns = {column for table, column, _ in _layout(store) if table == "schema_migrations"}
    if not columns:
        return {}
    checksum = "checksum" if "checksum" in columns else "NULL::VARCHAR"
    rows = store.query(f"SELECT version, {checksum} AS checksum FROM schema_migrations ORDER BY 1")
    return {row["version"]: row["checksum"] for row in rows.to_pylist()}


def _keep_checksums(store: Store, known: Sequence[Migration]) -> None:
    for migration in known:
        store.execute(
            f"UPDATE schema_migrations SET checksum = '{migration.checksum}'"
            f" WHERE version = {migration.version} AND checksum IS NULL"
        )


def _layout(store: Store) -> Layout:
    return {tuple(row.values()) for row in store.query(COLUMNS).to_pylist()}


def _released_layout(applied: Mapping[int, str | None], known: Sequence[Migration]) -> Layout:
    """What the released files make, as far as a store has them: it keeps no checksums itself."""
    with duckdb.connect() as connection:
        for migration in known:
            if migration.version in applied:
                connection.execute(migration.sql)
        return set(connection.execute(COLUMNS).fetchall())
