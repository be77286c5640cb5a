"""Stores of every released schema open and stay current; others are refused with the way out."""

from pathlib import Path

import pytest
from support.running import cli_here
from support.stores import DATA, RELEASED, UNRELEASED, counts, unpacked

from otel_lightning.collector.check.deep import check_deep
from otel_lightning.collector.load.from_files import derive_all, load_file
from otel_lightning.collector.store import StoreError, open_store
from otel_lightning.collector.store.migrate import (
    Migration,
    applied_files,
    migrate,
    migrations,
)
from otel_lightning.collector.store.opening import open_file

FROZEN = {
    1: "3087dce823ad5b8ff7bbb2d795f39b93289365f8ce498cf7046f99c7bd130538",
    2: "63cebf5a2c254bbd203e88f22585b1a65826fa162ff8a056718505f761367cda",
    3: "cc8e2a314e409509439ccde457ad100405bec9454e7bbce8a8ee73a4103ca40a",
    4: "bfc044182f0b20d9903fddd5c6715aa5ddff825de1af2de638594901e1b8eaef",
}
"""SHA-256 of each file that was released: it is never edited again."""
NEW_SPANS = DATA / "agentops" / "tool.otlp.pb"


def test_a_released_migration_is_never_edited() -> None:
    ours = {migration.version: migration.checksum for migration in migrations()}
    assert {version: ours[version] for version in FROZEN} == FROZEN


def test_each_migration_has_a_number_of_its_own() -> None:
    versions = [migration.version for migration in migrations()]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("release", RELEASED)
def test_a_store_of_a_release_is_migrated_loaded_into_and_derived(
    release: str, tmp_path: Path
) -> None:
    path = unpacked(release, tmp_path)
    with open_store(path, read_only=True) as store:
        before, calls = counts(store), counts(store, ("llm_calls", "scores"))
        assert None in applied_files(store).values()
    with open_store(path) as store:
        assert applied_files(store) == {m.version: m.checksum for m in migrations()}
        assert counts(store) == before
        new = load_file(store, NEW_SPANS).new
        derive_all(store, path)
        assert new
        assert counts(store) == before | {"spans": before["spans"] + new}
        assert counts(store, ("llm_calls",))["llm_calls"] > calls["llm_calls"]
        assert counts(store, ("scores",))["scores"] == calls["scores"]
        assert [one for one in check_deep(store, path) if not one.is_fine] == []
    open_store(path).close()


@pytest.mark.parametrize("release", RELEASED)
def test_opening_for_reading_does_not_migrate(release: str, tmp_path: Path) -> None:
    path = unpacked(release, tmp_path)
    before = path.read_bytes()
    result = cli_here(
        "sql", "SELECT count(*) AS n FROM llm_calls", "--store", str(path), "--format=csv"
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert cli_here("check", "--store", str(path)).returncode == 1  # it has a rejected record
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", UNRELEASED)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_made_by_edited_files_is_refused_with_the_way_out(
    name: str,
    read_only: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    path = unpacked(name, tmp_path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"lightning-ingest copy '.*old\.duckdb' NEW\.duckdb$"):
        open_store(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize("file", [1, 4, 5])
def test_a_store_with_the_checksum_of_another_file_is_refused(file: int, tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as store:
        store.execute(f"UPDATE schema_migrations SET checksum = 'other' WHERE version = {file}")
    with pytest.raises(StoreError, match=rf"its schema {file} is not the one released"):
        open_store(path)


def test_a_migration_that_changes_what_is_derived_has_it_derived_again(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    changed = Migration(9_001, "-- derive: again\nCREATE TABLE extra (a INTEGER);")
    views = Migration(9_002, "CREATE OR REPLACE VIEW extra_view AS SELECT 1 AS one;")
    with open_store(path) as store:
        load_file(store, NEW_SPANS)
        derive_all(store, path)
        derived = counts(store, ("llm_calls", "tool_calls"))
        store.execute("UPDATE llm_calls SET operation = 'old'")
        migrate(store, [*migrations(), views])
        assert counts(store, ("stale",)) == {"stale": 0}
        migrate(store, [*migrations(), views, changed])
        assert counts(store, ("stale",))["stale"] > 0
        assert counts(store, ("llm_calls", "tool_calls")) == derived  # until they are replaced
        derive_all(store, path)
        again = store.query("SELECT count(*) AS n FROM llm_calls WHERE operation = 'old'")
        assert again["n"].to_pylist() == [0]
        assert counts(store, ("llm_calls", "tool_calls")) == derived


def test_a_new_store_equals_one_that_got_each_migration_alone(tmp_path: Path) -> None:
    schema = """
        SELECT 'table' AS kind, table_name AS name, sql FROM duckdb_tables() UNION ALL
        SELECT 'view', view_name, sql FROM duckdb_views() WHERE NOT internal UNION ALL
        SELECT 'index', index_name, sql FROM duckdb_indexes() ORDER BY ALL
    """
    with (
        open_store(tmp_path / "new.duckdb") as new,
        open_file(tmp_path / "upgraded.duckdb", read_only=False) as upgraded,
    ):
        for count in range(1, len(migrations()) + 1):
            migrate(upgraded, migrations()[:count])
        assert applied_files(new) == applied_files(upgraded)
        assert applied_files(new) == {m.version: m.checksum for m in migrations()}
        assert new.query(schema).to_pylist() == upgraded.query(schema).to_pylist()


def test_columns_of_a_new_store_are_compressed_as_the_migrations_say(tmp_path: Path) -> None:
    """The SQL of a table in DuckDB's catalog leaves out how its columns are compressed."""
    with open_store(tmp_path / "t.duckdb") as store:
        load_file(store, NEW_SPANS)
        store.checkpoint()
        segments = "SELECT compression AS one FROM pragma_storage_info('spans') WHERE segment_type"
        for column in ("trace_id", "span_id"):
            found = store.column(f"{segments} = 'VARCHAR' AND column_name = '{column}'")
            assert set(found) == {"DICT_FSST"}


@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_of_another_program_is_refused_and_stays_as_it_is(
    tmp_path: Path, *, read_only: bool
) -> None:
    path = tmp_path / "sales.duckdb"
    with open_file(path, read_only=False) as theirs:
        theirs.execute("CREATE TABLE orders (id INTEGER)")
    with pytest.raises(StoreError, match="no store of otel-lightning: it has the table 'orders'"):
        open_store(path, read_only=read_only)
    with open_file(path, read_only=True) as theirs:
        tables = theirs.query("SELECT table_name AS n FROM duckdb_tables()")["n"].to_pylist()
    assert tables == ["orders"]


def test_a_new_store_is_made_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    broken = Migration(9_001, "SELECT error('no');")
    with open_file(tmp_path / "t.duckdb", read_only=False) as store:
        with pytest.raises(StoreError, match="no"):
            migrate(store, [*migrations(), broken])
        assert store.query("SELECT table_name FROM duckdb_tables()").num_rows == 0
        migrate(store)
        assert len(applied_files(store)) == len(migrations())


def test_a_migration_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    broken = Migration(9_001, "CREATE TABLE half (a INTEGER); SELECT error('no');")
    with open_store(tmp_path / "t.duckdb") as store:
        before = applied_files(store)
        with pytest.raises(StoreError, match="no"):
            migrate(store, [*migrations(), broken])
        assert applied_files(store) == before
        tables = store.query("SELECT table_name AS n FROM duckdb_tables()")["n"].to_pylist()
        assert "half" not in tables
