"""TRL's preference pairs, for `DPOTrainer` and `RewardTrainer`."""

from typing import Any

import pyarrow as pa

from otel_lightning.learner.export.formats.rows import (
    MESSAGES,
    Format,
    Row,
    answer_of,
    prompt_of,
    tools_of,
)


def row(source: Row) -> dict[str, Any]:
    """Return one pair: a better and a worse answer to the same prompt."""
    return {
        "prompt": prompt_of(source),
        "chosen": answer_of(source["chosen"]),
        "rejected": answer_of(source["rejected"]),
        "tools": tools_of(source),
        "task_id": source["task_id"],
        "margin": source["margin"],
    }


FORMAT = Format(
    summary="a better and a worse answer in the same state, for TRL's DPOTrainer",
    statement="pairs",
    row=row,
    columns={
        "prompt": MESSAGES,
        "chosen": MESSAGES,
        "rejected": MESSAGES,
        "tools": pa.utf8(),
        "task_id": pa.utf8(),
        "margin": pa.float64(),
    },
    empty=(
        "No two different answers to one prompt in split '{split}' differ by more than "
        "{threshold:g} in their advantage. Collect several rollouts a task, or use trl-kto, "
        "which needs no pairs."
    ),
)
