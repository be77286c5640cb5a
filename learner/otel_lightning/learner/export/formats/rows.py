"""Shared by all formats: stored JSON as chat messages, and the columns that name the source."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from otel_lightning.learner.chat import (
    NOT_JSON,
    chat_messages,
    chat_tools,
    uncarried_parts,
    uncarried_tools,
)

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
NO_TEXT = "no text of the prompt or of the answer"


class LeftOutError(Exception):
    """A source row that the format cannot carry as it is; the message says why."""

    def __init__(self, reason: str, *, in_tokens: bool = True) -> None:
        """Say why, and whether token ids would still say exactly what the model read and wrote."""
        super().__init__(reason)
        self.in_tokens = in_tokens


@dataclass(frozen=True, slots=True)
class Format:
    """One shape of rows.

    Attributes:
        summary: What the rows are for, in one line.
        statement: Name of the file in `sql/` that reads the source rows.
        row: Turns a source row into a row of the export, or raises `LeftOutError`. Without it,
            source rows are written as they are.
        columns: The export's columns and their Arrow types.
        above_threshold: Whether only advantages above the threshold are exported.
        is_label: Whether a row says if its advantage is above the threshold. An advantage of 0
            then is no label where rollouts were compared: nothing is known of the answer.
        without: Names what the format drops of a source row that it carries otherwise.
        empty: What to say if there is no row; `{split}` and `{threshold}` are filled in.
    """

    summary: str
    statement: str
    row: Callable[[Row], dict[str, Any]] | None
    columns: Mapping[str, pa.DataType]
    above_threshold: bool = False
    is_label: bool = False
    without: Callable[[Row], Sequence[str]] | None = None
    empty: str = "Split '{split}' has no transitions. Choose another --split."

    @property
    def by_call(self) -> bool:
        """Whether a source row is one call, so that calls can be read a piece at a time."""
        return self.statement == "transitions"


def origin(row: Row) -> dict[str, Any]:
    """Return the columns that say where a row comes from."""
    return {name: row[name] for name in ORIGIN}


def prompt_of(row: Row, *, text_arguments: bool = False) -> list[dict[str, Any]]:
    """Return what the model saw.

    Args:
        row: A source row.
        text_arguments: Whether the format takes arguments as the text that the model wrote.

    Raises:
        LeftOutError: If no text was recorded, or chat messages cannot carry a part.
    """
    return _chat(json.loads(row["messages"] or "[]"), text_arguments=text_arguments)


def answer_of(completion: str | None, *, text_arguments: bool = False) -> list[dict[str, Any]]:
    """Return the first choice of what the model said.

    Raises:
        LeftOutError: If no text was recorded, or chat messages cannot carry a part.
    """
    return _chat(json.loads(completion or "[]")[:1], text_arguments=text_arguments)


def tools_of(row: Row) -> str | None:
    """Return the tools as JSON text, which every trainer parses and no loader reshapes.

    Raises:
        LeftOutError: If one of them is not a function.
    """
    tools = functions_of(row)
    return json.dumps(tools, ensure_ascii=False) if tools else None


def functions_of(row: Row) -> list[Mapping[str, Any]]:
    """Return the tools as functions.

    Raises:
        LeftOutError: If one of them is not a function.
    """
    tools = json.loads(row["tools"] or "[]")
    if lost := uncarried_tools(tools):
        raise LeftOutError(f"a tool that is not a function: {lost[0]}")
    return chat_tools(tools)


def _chat(messages: list[dict[str, Any]], *, text_arguments: bool) -> list[dict[str, Any]]:
    if not messages:
        raise LeftOutError(NO_TEXT)
    for lost in uncarried_parts(messages, text_arguments=text_arguments):
        if lost == NOT_JSON:
            raise LeftOutError(lost)
        raise LeftOutError(f"a part that is not text: {lost}", in_tokens=False)
    return chat_messages(messages)
