"""Migrate a store's schema with the numbered files in `migrations/`.

Never edit a released migration: a store records the checksum of each migration that it ran, and a
store with another checksum is refused. Add a new file with the next number instead. If the
migration changes derived rows, its first line must be `-- derive: again`: then all received spans
and logs are marked as stale, and the next refreshes derive them again.
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
from otel_lightning.collector.store.sql_text import Sql, statement

DERIVE_AGAIN = "-- derive: again"
CHECKSUMS_SINCE = 5
"""The migration that adds the column `checksum`. Stores of release 0.1.0 lack it."""
COLUMNS = """
    SELECT table_name, column_name, data_type FROM duckdb_columns()
    WHERE database_name = current_database() AND schema_name = 'main' AND NOT internal
"""

ANY_TABLE = """
    SELECT table_name FROM duckdb_tables()
    WHERE database_name = current_database() AND NOT internal
    ORDER BY table_name LIMIT 1
"""

Layout = set[tuple[str, str, str]]
"""Table, column and type of every column of a database."""


class Migration(NamedTuple):
    """One numbered migration file."""

    version: int
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, in hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def derives_again(self) -> bool:
        """Whether this migration makes all derived rows stale."""
        return self.sql.startswith(DERIVE_AGAIN)


@cache
def migrations() -> Sequence[Migration]:
    """Read the migrations in the order of their numbers."""
    folder = resources.files(__package__) / "migrations"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [
        Migration(int(file.name.split("_")[0]), file.read_text(encoding="utf-8")) for file in files
    ]


def check(store: Store, path: Path) -> None:
    """Refuse a store whose schema this version does not support. Change nothing.

    Raises:
        StoreError: If the file is a database of another program, the schema is newer than ours, or
            a migration has another checksum.
    """
    all_migrations = migrations()
    applied = applied_files(store)
    if not applied and (foreign_tables := store.rows(ANY_TABLE)):
        raise StoreError(
            f"'{path}' is a DuckDB database, but no store of otel-lightning: it has the table "
            f"'{foreign_tables[0]['table_name']}' and none of ours. Nothing was changed. Choose "
            "another file with --store; a new one is created."
        )
    newest = all_migrations[-1].version
    if max(applied, default=0) > newest:
        raise StoreError(
            f"'{path}' has schema {max(applied)}; this otel-lightning knows up to {newest}. "
            f"Upgrade with: pip install -U otel-lightning"
        )
    checksums = {migration.version: migration.checksum for migration in all_migrations}
    differing = [n for n, checksum in applied.items() if checksum not in (None, checksums.get(n))]
    # A store of release 0.1.0 has no checksums: compare its tables and columns instead.
    if None in applied.values() and _layout(store) != _released_layout(applied, all_migrations):
        differing.append(max(applied))
    if differing:
        raise StoreError(
            f"'{path}' was made by an unreleased version of otel-lightning: its schema "
            f"{differing[0]} is not the one released. Move what it received into a new store "
            f"with: lightning-ingest copy '{path}' NEW.duckdb"
        )


def migrate(store: Store, all_migrations: Sequence[Migration] | None = None) -> None:
    """Run the migrations that a store lacks. Call `check` first.

    A new store gets all of them in one transaction, which takes a third of the time of one
    transaction each. In a store with rows each migration and its row in `schema_migrations` are one
    transaction: DuckDB cannot alter a table that the same transaction has filled. In both cases a
    crash leaves a migration either complete or not started.
    """
    all_migrations = migrations() if all_migrations is None else all_migrations
    applied = applied_files(store)
    missing = [migration for migration in all_migrations if migration.version not in applied]
    if not missing:
        return
    for together in [[migration] for migration in missing] if applied else [missing]:
        with store.transaction():
            _run(store, together, has_rows=bool(applied))
            # From here on the table has the column; the first time, the earlier migrations get
            # theirs too.
            if together[-1].version >= CHECKSUMS_SINCE:
                _keep_checksums(store, all_migrations)


def _run(store: Store, migrations: Sequence[Migration], *, has_rows: bool) -> None:
    for migration in migrations:
        store.execute(migration.sql)
        if migration.derives_again and has_rows:
            mark_all_stale(store)
    rows = ", ".join(f"({migration.version}, now()::TIMESTAMP)" for migration in migrations)
    store.execute(f"INSERT INTO schema_migrations (version, applied_at) VALUES {rows}")


def mark_all_stale(store: Store) -> None:
    """Mark all traces and log records as stale, so that the next refreshes derive them again.

    Derived rows stay readable until their trace is derived again.
    """
    store.execute(statement(__package__, "mark_all_stale"))


def applied_files(store: Store) -> Mapping[int, str | None]:
    """Read the number and checksum of each migration that a store ran; None if not recorded."""
    try:
        rows = store.rows("FROM schema_migrations ORDER BY version")
    except StoreError as error:
        # A new file has no such table. To list its tables first would take longer than all of this:
        # DuckDB binds every view for it.
        if isinstance(error.__cause__, duckdb.CatalogException):
            return {}
        raise
    return {row["version"]: row.get("checksum") for row in rows}


def _keep_checksums(store: Store, all_migrations: Sequence[Migration]) -> None:
    values = ", ".join(
        f"({migration.version}, '{migration.checksum}')" for migration in all_migrations
    )
    store.execute(statement(__package__, "keep_checksums", known=Sql(values)))


def _layout(store: Store) -> Layout:
    return {tuple(row.values()) for row in store.rows(COLUMNS)}


def _released_layout(
    applied: Mapping[int, str | None], all_migrations: Sequence[Migration]
) -> Layout:
    """Compute the columns that the released versions of the applied migrations create."""
    with duckdb.connect() as connection:
        for migration in all_migrations:
            if migration.version in applied:
                connection.execute(migration.sql)
        return set(connection.execute(COLUMNS).fetchall())
