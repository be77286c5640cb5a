"""The formats in which other trace stores export: one file each.

A format is a module with

- `NAME`: the store, as messages name it
- `matches(row)`: whether a JSON object, or a row of a table, is a record of this store
- `read(row)`: yield what the record holds

Only one format may match a record, so their order is free.
"""

from collections.abc import Iterator
from typing import Protocol

from otel_lightning.collector.trace_files.formats import (
    bedrock,
    clickhouse,
    jaeger,
    langfuse,
    langsmith,
    mlflow,
    phoenix,
    tempo,
)
from otel_lightning.collector.trace_files.records import Exported, Json


class Format(Protocol):
    """A module of this folder: what each format has to define."""

    NAME: str

    def matches(self, row: Json) -> bool:
        """Return whether this is a record of the store."""

    def read(self, row: Json) -> Iterator[Exported]:
        """Yield what the record holds.

        Raises:
            KeyError: If a needed field is missing.
            ValueError: If a field has a wrong value.
            TypeError, AttributeError: If a field has a wrong type.
        """


FORMATS: tuple[Format, ...] = (
    bedrock,
    clickhouse,
    jaeger,
    langfuse,
    langsmith,
    mlflow,
    phoenix,
    tempo,
)
