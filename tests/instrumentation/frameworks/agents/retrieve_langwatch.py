"""LangWatch: a span of the type `rag`, with the documents as its contexts."""

import langwatch
from books import QUERIES, found
from langwatch.domain import RAGChunk

langwatch.setup()


@langwatch.span(type="rag")
def search(query):
    chunks = [RAGChunk(document_id=str(data["page"]), content=text) for text, data in found(query)]
    langwatch.get_current_span().update(contexts=chunks)
    return chunks


for query in QUERIES:
    with langwatch.trace():
        search(query)
