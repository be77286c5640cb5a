"""Receive OTLP, keep every span in DuckDB, read every GenAI dialect into the same tables.

For notebooks and scripts: `open_store`, `Store` and `StoreError`. They are imported when they are
first used, so that importing this package loads neither DuckDB nor pyarrow.

A span passes `receive`, `spool`, `load`, `refresh` and `derive`, in this order. The page
docs/explanation/architecture.md says what each folder does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_lightning.collector.store import Store, StoreError, open_store

__all__ = ["Store", "StoreError", "open_store"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.store"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
