"""The error for data, files and settings that cannot be learned from."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_lightning.collector.store import StoreLike


class DataError(ValueError):
    """The data or the settings cannot be learned from; the message says why and what to do."""


def no_transitions(store: "StoreLike") -> DataError:
    """Say that transitions have to be built first, and how."""
    named = f" --store {store}" if isinstance(store, str | Path) else ""
    return DataError(
        "The store has no transitions, so there is nothing to learn from. Build them with: "
        f"lightning-learn transitions{named}"
    )
