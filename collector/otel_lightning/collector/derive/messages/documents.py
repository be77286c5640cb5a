"""Documents that a retriever found, in one form: id, content, score, metadata."""

from collections.abc import Iterable, Mapping
from typing import Any

from otel_lightning.collector.derive.text.json_text import parse

Document = dict[str, Any]
_IDS = ("id", "document_id", "doc_id", "_id")
_CONTENTS = ("content", "page_content", "pageContent", "text", "document")
_SCORES = ("score", "relevance_score", "similarity", "_score")
_INSIDE = ("document", "node", "kwargs", "doc")
"""Where OpenInference, LlamaIndex and LangChain put a document into another object."""


def documents(values: Any) -> list[Document] | None:
    """Return documents in one form, or None where there are none.

    Args:
        values: A list of documents of any framework: texts, or objects.

    Example:
        >>> documents([{"page_content": "Paris is in France.", "metadata": {"page": 1}}, "so"])
        [{'content': 'Paris is in France.', 'metadata': {'page': 1}}, {'content': 'so'}]
    """
    if isinstance(values, dict):
        listed = (values.get(key) for key in ("documents", "results", "output", "nodes", "matches"))
        values = next((value for value in listed if isinstance(value, list)), None)
    if not isinstance(values, list):
        return None
    parsed = [_document(value) for value in values]
    return [one for one in parsed if one] or None


def _document(value: Any) -> Document:
    if isinstance(value, str):
        return {"content": value}
    if not isinstance(value, dict):
        return {}
    inside: Mapping[str, Any] = next(
        (value[key] for key in _INSIDE if isinstance(value.get(key), dict)), {}
    )
    both = {**value, **inside}
    metadata = both.get("metadata")
    metadata = parse(metadata) if isinstance(metadata, str) else metadata
    fields = {
        "id": _first(both, _IDS),
        "content": _first(both, _CONTENTS),
        "score": number(_first(both, _SCORES)),
        "metadata": metadata or None,
    }
    return {key: field for key, field in fields.items() if field is not None}


def _first(value: Mapping[str, Any], keys: Iterable[str]) -> Any:
    values = (value[key] for key in keys if isinstance(value.get(key), str | int | float))
    return next(values, None)


def number(value: Any) -> float | None:
    """Return a number, which may have come as text, or None."""
    value = parse(value) if isinstance(value, str) else value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None
