"""LangSmith: a traceable function of the type `retriever`."""

from books import QUERIES, found
from langsmith import Client, traceable

client = Client()


@traceable(run_type="retriever", client=client)
def search(query):
    return [
        {"page_content": text, "type": "Document", "metadata": metadata}
        for text, metadata in found(query)
    ]


for query in QUERIES:
    search(query)
client.flush()
