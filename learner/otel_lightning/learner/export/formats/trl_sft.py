"""TRL's conversational prompt and completion, for `SFTTrainer`."""

from typing import Any

import pyarrow as pa

from otel_lightning.learner.export.formats.rows import (
    MESSAGES,
    ORIGIN,
    Format,
    Row,
    ended_answer_of,
    origin,
    prompt_of,
    tools_of,
)


def row(source: Row) -> dict[str, Any]:
    """Return the prompt and the completion; the loss is computed on the completion only."""
    example = {"prompt": prompt_of(source), "completion": ended_answer_of(source)}
    return example | {"tools": tools_of(source)} | origin(source)


FORMAT = Format(
    summary="prompt and completion of what earned a reward, for TRL's SFTTrainer",
    statement="transitions",
    row=row,
    columns={"prompt": MESSAGES, "completion": MESSAGES, "tools": pa.utf8()} | ORIGIN,
    above_threshold=True,
)
