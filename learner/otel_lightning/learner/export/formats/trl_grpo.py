"""Prompts without answers, for trainers that generate them: `GRPOTrainer`, `RLOOTrainer`."""

from typing import Any

import pyarrow as pa

from otel_lightning.learner.export.formats.rows import MESSAGES, Format, Row, prompt_of, tools_of


def row(source: Row) -> dict[str, Any]:
    """Return the prompt of one state, with its number of visits."""
    return {
        "prompt": prompt_of(source),
        "tools": tools_of(source),
        "task_id": source["task_id"],
        "state_hash": source["state_hash"],
        "visits": source["visits"],
    }


FORMAT = Format(
    summary="each distinct prompt once, for TRL's GRPOTrainer and RLOOTrainer",
    statement="prompts",
    row=row,
    columns={
        "prompt": MESSAGES,
        "tools": pa.utf8(),
        "task_id": pa.utf8(),
        "state_hash": pa.utf8(),
        "visits": pa.int64(),
    },
)
