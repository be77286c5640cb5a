"""The error for data, files and settings that learning cannot use."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_lightning.collector.store import StoreLike


class DataError(ValueError):
    """Learning cannot use the data or the settings; the message says why, and what to do next."""


def no_transitions(store: "StoreLike") -> DataError:
    """Return the error that says which command builds the missing transitions."""
    named = f" --store {store}" if isinstance(store, str | Path) else ""
    return DataError(
        "The store has no transitions, so there is nothing to learn from. Build them with: "
        f"lightning-learn transitions{named}"
    )
