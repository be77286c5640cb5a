"""Retrievals and rerankings under the keys of OpenTelemetry's GenAI conventions."""

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.rows import Retrieval, Span
from otel_lightning.collector.derive.text import json_text

RETRIEVER = "retriever"
OPERATIONS = {"retrieval": RETRIEVER, "rerank": "reranker", "reranking": "reranker"}
QUERIES = ("gen_ai.retrieval.query.text", "gen_ai.retriever.query")
DOCUMENTS = ("gen_ai.retrieval.documents", "gen_ai.retriever.results")
"""The conventions' keys, then those of Azure's tracer for LangChain."""
TOOL_TYPE = "gen_ai.tool.type"


def kind(span: Span, operation: str) -> str | None:
    """Return the kind of the retrieval that a span records, or None for any other span.

    Azure's tracer for LangChain calls a retriever a tool of this type.
    """
    is_tool = span.attributes.get(TOOL_TYPE) == RETRIEVER
    return RETRIEVER if is_tool else OPERATIONS.get(operation)


def read(span: Span, kind: str) -> Retrieval:
    """Read a retrieval or a reranking."""
    query, found = (reading.text(span.attributes, *keys) for keys in (QUERIES, DOCUMENTS))
    return span_rows.retrieval(span, kind, query, json_text.parse(found))
