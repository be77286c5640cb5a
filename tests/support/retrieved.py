"""What retrievers found, as derived rows say and as the retrievers logged."""

from pathlib import Path
from typing import Any

from otel_lightning.collector.derive.assemble import derive
from support.captures import read_spans

Found = list[tuple[str | None, list[tuple[str | None, str]]]]
"""Each query with its documents: text, and page as text."""


def of_spans(sent: Path) -> Found:
    """Return what the rows of a recording say."""
    rows = derive(read_spans(sent), []).retrievals
    assert {row.kind for row in rows} <= {"retriever"}
    return [(row.query, [_document(one) for one in row.documents or ()]) for row in rows]


def _document(one: dict[str, Any]) -> tuple[str | None, str]:
    """Return a document's text and page: LangWatch's documents have an id and no metadata."""
    return one.get("content"), str(one.get("metadata", {}).get("page", one.get("id")))


def of_truth(logged: list[dict[str, Any]]) -> Found:
    """Return what the retriever logged."""
    return [
        (one["query"], [(text, str(data["page"])) for text, data in one["documents"]])
        for one in logged
    ]
