"""The formats that trainers read, one file each.

A format names the statement in `sql/` that reads its source rows, a function that converts one
source row to one exported row, and the Arrow type of each column. Messages are lists of JSON
values (Arrow's type `arrow.json`): as structs, tools with different arguments would share one
schema with fields that most of them lack.
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
