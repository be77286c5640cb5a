"""Facts of a rollout that are not in its messages: tools, retrievals, rewards, credit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

TEN_MINUTES = 600


@dataclass(frozen=True, slots=True)
class Judgement:
    """One reward of a step or of the whole rollout."""

    name: str
    value: float | None
    label: str | None
    explanation: str | None
    source: str | None
    time_ns: int | None


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool call; `arguments` and `result` are JSON values."""

    name: str | None
    tool_call_id: str | None
    arguments: Any
    result: Any
    error_type: str | None
    told_error: bool
    """Whether the result says that the tool failed."""
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Retrieval:
    """One look-up of documents, or a reranking of them, that a call used."""

    name: str | None
    kind: str | None
    """`retriever` or `reranker`."""
    query: str | None
    documents: list[dict[str, Any]]
    """Each with `id`, `content`, `score` and `metadata`, as far as known."""
    error_type: str | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Credit:
    """The transition of a step, as `lightning-learn transitions` built it last."""

    split: str | None
    reward: float | None
    return_to_go: float | None
    advantage: float | None


def read_tool(row: Row) -> Tool:
    """Read a row of `tools.sql`."""
    return Tool(
        name=row["name"],
        tool_call_id=row["tool_call_id"],
        arguments=parse(row["arguments"]),
        result=parse(row["result"]),
        error_type=row["error_type"],
        told_error=row["told_error"],
        seconds=seconds_between(row["start_ns"], row["end_ns"]),
    )


def read_retrieval(row: Row) -> Retrieval:
    """Read a row of `retrievals.sql`."""
    return Retrieval(
        name=row["name"],
        kind=row["kind"],
        query=row["query"],
        documents=parse(row["documents"]) or [],
        error_type=row["error_type"],
        seconds=seconds_between(row["start_ns"], row["end_ns"]),
    )


def seconds_between(start_ns: int | None, end_ns: int | None) -> float | None:
    """Return a duration; None if one of its ends is unknown."""
    if start_ns is None or end_ns is None:
        return None
    return (end_ns - start_ns) / 1e9


def parse(text: str | None) -> Any:
    """Parse a JSON column; NULL is None."""
    return None if text is None else json.loads(text)


def seconds(duration: float | None) -> str:
    """Return a duration, for example `1.2 s`; unknown is an empty text."""
    if duration is None:
        return ""
    return f"{duration:.1f} s" if duration < TEN_MINUTES else f"{duration / 60:.0f} min"
