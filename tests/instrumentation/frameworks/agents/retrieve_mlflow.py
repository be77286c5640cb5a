"""MLflow: a traced function of the type `RETRIEVER`."""

import mlflow
from books import QUERIES, found
from mlflow.entities import Document


@mlflow.trace(span_type="RETRIEVER")
def search(query):
    return [Document(page_content=text, metadata=metadata) for text, metadata in found(query)]


for query in QUERIES:
    search(query)
