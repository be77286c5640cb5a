"""Shared by all formats: stored JSON as chat messages, and columns that identify the source."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from otel_lightning.learner.chat import (
    CUT_OFF,
    INCOMPLETE,
    NOT_JSON,
    chat_messages,
    chat_tools,
    uncarried_parts,
    uncarried_tools,
)

Row = Mapping[str, Any]

MESSAGES = pa.list_(pa.json_(pa.utf8()))
"""Arrow type of a list of chat messages."""
ORIGIN: dict[str, pa.DataType] = {
    "rollout_id": pa.utf8(),
    "step": pa.int32(),
    "task_id": pa.utf8(),
    "reward": pa.float64(),
    "advantage": pa.float64(),
}
"""Columns that identify the source of a row, with its reward and advantage."""
NO_TEXT = "no text of the prompt or of the answer"


class LeftOutError(Exception):
    """A source row that the format cannot represent; the message says why."""

    def __init__(self, reason: str, *, in_tokens: bool = True) -> None:
        """Store the reason, and whether token ids (if recorded) still represent the whole call."""
        super().__init__(reason)
        self.in_tokens = in_tokens


@dataclass(frozen=True, slots=True)
class Format:
    """One export format.

    Attributes:
        summary: Use of the rows, in one line.
        statement: Name of the file in `sql/` that reads the source rows.
        row: Converts a source row to an exported row, or raises `LeftOutError`. If it is None,
            source rows are written unchanged.
        columns: The export's columns and their Arrow types.
        above_threshold: Whether only advantages above the threshold are exported.
        is_label: Whether a row has a label that tells if its advantage is above the threshold.
            If the credit compares rollouts, rows with an advantage of 0 are left out: such an
            answer is known neither as good nor as bad.
        without: Lists the parts that the format drops from a source row that it exports.
        empty: Error text if there is no row; `{split}` and `{threshold}` are filled in.
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
        """Whether a source row is one call, so that calls can be read in pieces."""
        return self.statement == "transitions"

    @property
    def has_pairs(self) -> bool:
        """Whether a source row is two calls with different answers."""
        return self.statement == "pairs"


def origin(row: Row) -> dict[str, Any]:
    """Return the columns that identify the source of a row."""
    return {name: row[name] for name in ORIGIN}


def prompt_of(row: Row, *, text_arguments: bool = False) -> list[dict[str, Any]]:
    """Return the input messages of the call as chat messages.

    Args:
        row: A source row.
        text_arguments: Whether the format accepts arguments as the text that the model wrote.

    Raises:
        LeftOutError: If no text was recorded, a part of the messages is missing, or a part does not
            fit into chat messages.
    """
    if row["content"] in INCOMPLETE:
        raise LeftOutError(f"incomplete messages ({row['content']})")
    return _chat(json.loads(row["messages"] or "[]"), text_arguments=text_arguments)


def answer_of(completion: str | None, *, text_arguments: bool = False) -> list[dict[str, Any]]:
    """Return the first choice of the model's output as chat messages.

    Raises:
        LeftOutError: If no text was recorded, or a part does not fit into chat messages.
    """
    # Several choices: the agent read the first one.
    return _chat(json.loads(completion or "[]")[:1], text_arguments=text_arguments)


def ended_answer_of(row: Row, *, text_arguments: bool = False) -> list[dict[str, Any]]:
    """Return the first choice of the output of a call as chat messages, if the model ended it.

    Raises:
        LeftOutError: As `answer_of`, or if a limit or a filter cut the answer off.
    """
    if row["finish_reason"] in CUT_OFF:
        raise LeftOutError(f"an answer that was cut off ({row['finish_reason']})")
    return answer_of(row["completion"], text_arguments=text_arguments)


def tools_of(row: Row) -> str | None:
    """Return the tools as JSON text: every trainer parses it, and no loader changes its schema.

    Raises:
        LeftOutError: If a tool is not a function.
    """
    tools = functions_of(row)
    return json.dumps(tools, ensure_ascii=False) if tools else None


def functions_of(row: Row) -> list[Mapping[str, Any]]:
    """Return the tools in the form of functions.

    Raises:
        LeftOutError: If a tool is not a function.
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
        # An image is more than its placeholder tokens, so token ids do not represent it either.
        raise LeftOutError(f"a part that is not text: {lost}", in_tokens=False)
    return chat_messages(messages)
