"""Langfuse: an observed function of the type `retriever`."""

from books import QUERIES, found
from langfuse import get_client, observe


@observe(as_type="retriever")
def search(query):
    return [{"page_content": text, "metadata": metadata} for text, metadata in found(query)]


for query in QUERIES:
    search(query)
get_client().flush()
