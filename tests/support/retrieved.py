"""What retrievers and rerankers found, as derived rows say and as they logged."""

from pathlib import Path
from typing import Any

from otel_lightning.collector.derive.assemble import derive
from support.captures import read_spans

Retrieved = list[tuple[str | None, list[tuple[str | None, str]]]]
"""Each query with its documents: text, and page as text."""
Reranked = list[tuple[str | None, list[str | None], list[float] | None]]
"""Each query with the texts that a reranker kept, the best first, and their scores."""


def of_spans(sent: Path) -> Retrieved:
    """Return what the rows of a recording say that retrievers found."""
    rows = derive(read_spans(sent), []).retrievals
    assert {row.kind for row in rows} <= {"retriever", "reranker"}
    return [
        (row.query, [_document(one) for one in row.documents or ()])
        for row in rows
        if row.kind == "retriever"
    ]


def reranked(sent: Path) -> Reranked:
    """Return what the rows of a recording say that rerankers kept."""
    rows = derive(read_spans(sent), []).retrievals
    return [
        (row.query, [one.get("content") for one in row.documents or ()], row.scores)
        for row in rows
        if row.kind == "reranker"
    ]


def _document(one: dict[str, Any]) -> tuple[str | None, str]:
    """Return a document's text and page: LangWatch's documents have an id and no metadata."""
    return one.get("content"), str(one.get("metadata", {}).get("page", one.get("id")))


def of_truth(logged: list[dict[str, Any]]) -> Retrieved:
    """Return what the retriever logged."""
    return [
        (one["query"], [(text, str(data["page"])) for text, data in one["documents"]])
        for one in logged
        if "query" in one
    ]


def reranked_truth(logged: list[dict[str, Any]]) -> Reranked:
    """Return what the reranker logged. It keeps the best document of those that it scores."""
    return [
        (one["reranked"], one["documents"][:1], one["scores"][:1])
        for one in logged
        if "reranked" in one
    ]
