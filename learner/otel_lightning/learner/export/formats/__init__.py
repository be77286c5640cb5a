"""Transitions in the shapes that trainers read: one file a format.

Each names the statement in `sql/` that answers its source rows, turns one source row into one row
of the export, and says which Arrow type each column has. Messages are lists of JSON values
(Arrow's own `arrow.json`), so tools with different arguments never share one struct.
"""

from otel_lightning.learner.export.formats import (
    openai_chat,
    plain,
    trl_dpo,
    trl_grpo,
    trl_kto,
    trl_sft,
    verl,
)
from otel_lightning.learner.export.formats.rows import Format

FORMATS: dict[str, Format] = {
    "trl-sft": trl_sft.FORMAT,
    "trl-dpo": trl_dpo.FORMAT,
    "trl-kto": trl_kto.FORMAT,
    "trl-grpo": trl_grpo.FORMAT,
    "verl": verl.FORMAT,
    "openai": openai_chat.FORMAT,
    "transitions": plain.FORMAT,
}
