"""Stores of earlier schemas, as `tests/data/stores` keeps them."""

import shutil
from pathlib import Path
from typing import Any

import zstandard

from otel_lightning.collector.store import Store, open_store

DATA = Path(__file__).parents[1] / "data"
RELEASED = ("0.1.0",)
UNRELEASED = ("unreleased-9a6e502", "unreleased-e033f44", "unreleased-e514c8b")
PRIMARY_TABLES = ("spans", "logs", "runs", "policies", "rejected")
"""Tables that each of them has, and that hold what cannot be derived."""


def unpacked(name: str, folder: Path) -> Path:
    """A store of an earlier schema, ready to open."""
    path = folder / "old.duckdb"
    packed = (DATA / "stores" / f"{name}.duckdb.zst").read_bytes()
    path.write_bytes(zstandard.decompress(packed, max_output_size=1 << 24))
    spool = DATA / "stores" / f"{name}.spool"
    if spool.exists():
        (folder / "old.duckdb.spool").mkdir()
        shutil.copy(spool, folder / "old.duckdb.spool" / "0000000001.spool")
    return path


def counts(store: Store, tables: tuple[str, ...] = PRIMARY_TABLES) -> dict[str, int]:
    return {t: store.query(f"SELECT count(*) AS n FROM {t}")["n"][0].as_py() for t in tables}


def ask(store: Path, sql: str) -> list[dict[str, Any]]:
    """Answer a SELECT, also from a store that is being served."""
    with open_store(store, read_only=True) as opened:
        rows: list[dict[str, Any]] = opened.query(sql).to_pylist()
    return rows
