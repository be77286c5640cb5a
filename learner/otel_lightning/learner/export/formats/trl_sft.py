"""TRL's conversational prompt and completion, for `SFTTrainer`."""

from typing import Any

import pyarrow as pa

from otel_lightning.learner.export.formats.rows import (
    MESSAGES,
    NOTHING_ABOVE,
    ORIGIN,
    Format,
    Row,
    answer_of,
    origin,
    prompt_of,
    tools_of,
)


def row(source: Row) -> dict[str, Any] | None:
    """Return what was seen and what was said; only the latter is learned."""
    prompt, completion = prompt_of(source), answer_of(source["completion"])
    if not prompt or not completion:
        return None
    said = {"prompt": prompt, "completion": completion, "tools": tools_of(source)}
    return said | origin(source)


FORMAT = Format(
    summary="prompt and completion of what earned a reward, for TRL's SFTTrainer",
    statement="export_transitions",
    row=row,
    columns={"prompt": MESSAGES, "completion": MESSAGES, "tools": pa.utf8()} | ORIGIN,
    above_threshold=True,
    empty=NOTHING_ABOVE,
)
