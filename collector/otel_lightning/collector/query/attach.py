"""`lightning-ingest attach`: the SQL with which another DuckDB reads the store."""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from otel_lightning.collector.store import Server, Store, quote_literal, server_file, statement
from otel_lightning.collector.store.clients.read_only import attach_line
from otel_lightning.collector.store.clients.reader_limits import ANSWERS
from otel_lightning.collector.store.extensions import EXTENSIONS
from otel_lightning.collector.store.sql_text import quote_name
from otel_lightning.collector.store.tables import INTERNAL


def attach_script(store: Store, path: Path) -> str:
    """Write the SQL for a DuckDB shell: extensions, the store, and a view for each table.

    Args:
        store: The store, opened read-only.
        path: The store's file.
    """
    if store.server is None:
        return (
            f"-- '{path}' is not served at present: any DuckDB from 1.5 on opens the file.\n"
            f"ATTACH {quote_literal(str(path.resolve()))} AS traces (READ_ONLY);\n"
            f"USE traces;"
        )
    return "\n".join([*_extensions(), *_views(store, store.server, path)])


def _extensions() -> list[str]:
    """Load the extensions from the files of their wheels; without the wheels, from the network."""
    installed = version("duckdb")
    files = [file for name in EXTENSIONS if (file := _extension_file(name))]
    load = " ".join(f"LOAD {quote_literal(str(file))};" for file in files)
    if len(files) < len(EXTENSIONS):
        return [f"-- For DuckDB 1.5 (tried: {installed}).", "INSTALL httpfs; INSTALL quack;"]
    return [
        f"-- For DuckDB 1.5 (tried: {installed}). These files fit {installed} and need no network;",
        "-- with another 1.5 write instead: INSTALL httpfs; INSTALL quack;",
        load,
    ]


def _extension_file(name: str) -> Path | None:
    """Find the file of an extension in its wheel, `duckdb-extension-…`; None if not installed."""
    spec = find_spec(f"duckdb_extension_{name}")
    folders = spec.submodule_search_locations if spec else None
    files = Path(folders[0]).rglob("*.duckdb_extension") if folders else iter(())
    return next(files, None)


def _views(store: Store, server: Server, path: Path) -> list[str]:
    """Attach the store and create a view for each table: `SHOW TABLES` lists no remote tables.

    Each view has a connection of its own: Quack reads one table at a time over a connection, so a
    statement could not join two views that share one.
    """
    rows = store.query(statement(__package__, "shown_tables", answers=ANSWERS))
    tables = rows["table_name"].to_pylist()
    names = [name for name in tables if name not in INTERNAL]
    uri = quote_literal(server.sql)
    return [
        attach_line(server.sql, server_file(path)),
        *(
            f"ATTACH {uri} AS {quote_name(f'traces_{name}')} (TOKEN getvariable('reader')); "
            f"CREATE OR REPLACE VIEW {quote_name(name)} "
            f"AS FROM {quote_name(f'traces_{name}')}.{quote_name(name)};"
            for name in names
        ),
    ]
