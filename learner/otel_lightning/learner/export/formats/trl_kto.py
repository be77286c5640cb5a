"""TRL's unpaired preferences, for `KTOTrainer`."""

from typing import Any

import pyarrow as pa

from otel_lightning.learner.export.formats import trl_sft
from otel_lightning.learner.export.formats.rows import Format, Row


def row(source: Row) -> dict[str, Any]:
    """Return a completion; its label is true if its advantage is above the threshold."""
    return trl_sft.row(source) | {"label": source["above"]}


FORMAT = Format(
    summary="every completion with a label, good or bad, for TRL's KTOTrainer",
    statement="transitions",
    row=row,
    columns=dict(trl_sft.FORMAT.columns) | {"label": pa.bool_()},
    is_label=True,
)
