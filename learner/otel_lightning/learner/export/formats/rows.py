"""What all formats share: a stored row's JSON as chat messages, and the columns that name it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from otel_lightning.learner.chat import chat_messages, chat_tools

Row = Mapping[str, Any]

MESSAGES = pa.list_(pa.json_(pa.utf8()))
"""A list of chat messages."""
ORIGIN: dict[str, pa.DataType] = {
    "rollout_id": pa.utf8(),
    "step": pa.int32(),
    "task_id": pa.utf8(),
    "reward": pa.float64(),
    "advantage": pa.float64(),
}
"""Where a row comes from, and what it earned."""
NOTHING_ABOVE = "No advantage in split '{split}' is above {threshold:g}. Lower --threshold."


@dataclass(frozen=True, slots=True)
class Format:
    """One shape of rows.

    Attributes:
        summary: What the rows are for, in one line.
        statement: Name of the file in `sql/` that answers the source rows.
        row: Turns a source row into a row of the export; None if it lacks what the format needs.
            Without it, source rows are written as they are.
        columns: The export's columns and their Arrow types.
        above_threshold: Whether only advantages above the threshold are exported.
        empty: What to say where there is no row; `{split}` and `{threshold}` are put in.
    """

    summary: str
    statement: str
    row: Callable[[Row], dict[str, Any] | None] | None
    columns: Mapping[str, pa.DataType]
    above_threshold: bool = False
    empty: str = "Split '{split}' has no transitions. Choose another --split."

    @property
    def by_call(self) -> bool:
        """Whether a source row is one call, so that calls can be read a piece at a time."""
        return self.statement == "export_transitions"


def origin(row: Row) -> dict[str, Any]:
    """Return the columns that say where a row comes from."""
    return {name: row[name] for name in ORIGIN}


def prompt_of(row: Row) -> list[dict[str, Any]]:
    """Return what the model saw; empty if no text was recorded."""
    return chat_messages(json.loads(row["messages"] or "[]"))


def answer_of(completion: str | None) -> list[dict[str, Any]]:
    """Return the first choice of what the model said; empty if no text was recorded."""
    return chat_messages(json.loads(completion or "[]")[:1])


def tools_of(row: Row) -> str | None:
    """Return the tools as JSON text, which every trainer parses and no loader reshapes."""
    if not row["tools"]:
        return None
    return json.dumps(chat_tools(json.loads(row["tools"])), ensure_ascii=False)
