"""TRL's unpaired preferences, for `KTOTrainer`."""

from typing import Any

import pyarrow as pa

from otel_lightning.learner.export.formats import trl_sft
from otel_lightning.learner.export.formats.rows import Format, Row


def row(source: Row) -> dict[str, Any] | None:
    """Return a completion with whether it did better than the threshold."""
    said = trl_sft.row(source)
    return None if said is None else said | {"label": source["above"]}


FORMAT = Format(
    summary="every completion with a label, good or bad, for TRL's KTOTrainer",
    statement="export_transitions",
    row=row,
    columns=dict(trl_sft.FORMAT.columns) | {"label": pa.bool_()},
)
