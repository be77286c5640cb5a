"""Write the schema of a new store from the migrations: `python tests/store_schema.py`.

A new store gets its tables and views from one file, which takes half of the CPU time that all
migrations take one after the other. Run this after a migration was added.
"""

from pathlib import Path

import duckdb

from otel_lightning.collector.store.migrate import digest, migrations

FILE = Path(__file__).parents[1] / "collector/otel_lightning/collector/store/sql/new_store.sql"
MADE = """
    SELECT sql FROM duckdb_tables()
    WHERE database_name = current_database() AND NOT internal ORDER BY table_oid
"""
VIEWS = """
    SELECT sql FROM duckdb_views()
    WHERE database_name = current_database() AND NOT internal ORDER BY view_oid
"""


def schema() -> str:
    """Return the tables and views that all migrations make."""
    with duckdb.connect() as connection:
        for migration in migrations():
            connection.execute(migration.sql)
        rows = [*connection.execute(MADE).fetchall(), *connection.execute(VIEWS).fetchall()]
    made = "\n".join(sql.strip().rstrip(";") + ";" for (sql,) in rows)
    return (
        f"-- {digest(migrations())}\n-- Made of the migrations by tests/store_schema.py.\n{made}\n"
    )


if __name__ == "__main__":
    FILE.write_text(schema(), encoding="utf-8")
