"""What every retriever here finds, and logs for the tests to compare with."""

import json
import os
from pathlib import Path

QUERIES = ("capital of France", "capital of Italy")
TEXTS = ("Paris is the capital.", "Rome is the capital.", 'A "quoted" line.')


def found(query):
    """Return the documents for a query, each with its metadata."""
    texts = TEXTS[:2] if "France" in query else TEXTS[1:]
    documents = [(text, {"page": TEXTS.index(text)}) for text in texts]
    with Path(os.environ["TOOL_LOG"]).open("a") as log:
        log.write(json.dumps({"query": query, "documents": documents}) + "\n")
    return documents


def kept(query, documents):
    """Log what a reranker kept: texts and scores, the best first."""
    with Path(os.environ["TOOL_LOG"]).open("a") as log:
        texts, scores = zip(*documents, strict=True)
        log.write(json.dumps({"reranked": query, "documents": texts, "scores": scores}) + "\n")
