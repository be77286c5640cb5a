"""Accept a store as a path, as text, or already open."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from otel_lightning.collector.store.connection import Store
from otel_lightning.collector.store.opening import open_store

StoreLike: TypeAlias = Store | str | Path
"""The path of a store, or an open store."""


@contextmanager
def opened(store: StoreLike, *, read_only: bool = False) -> Iterator[Store]:
    """Use an open store and leave it open, or open one and close it afterwards.

    Args:
        store: The path of an existing store, or an open store.
        read_only: Open a path for reading only. Ignored for an open store.

    Raises:
        StoreError: If there is no store at the path, or it cannot be opened.
    """
    if isinstance(store, Store):
        yield store
        return
    with open_store(store, create=False, read_only=read_only) as found:
        yield found
