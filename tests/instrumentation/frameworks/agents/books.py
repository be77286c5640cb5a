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


def ranked(query, texts):
    """Return the place and the score of each text, the best first: here the shortest."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    chosen = [(i, 10 / len(texts[i])) for i in order]
    with Path(os.environ["TOOL_LOG"]).open("a") as log:
        documents, scores = [texts[i] for i, _ in chosen], [score for _, score in chosen]
        row = {"reranked": query, "documents": documents, "scores": scores}
        log.write(json.dumps(row) + "\n")
    return chosen
