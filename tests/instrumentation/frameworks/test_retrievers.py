"""Retrievers and rerankers in real libraries: the table `retrievals` has what they found.

With `RECORD=1` each run is kept in `tests/data/retrievers`, where the fast tests read it again.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.agent_trials import ROOT, start, unplaced
from support.frameworks import RETRIEVERS, Framework
from support.provider.server import running_provider
from support.retrieved import of_spans, of_truth, reranked, reranked_truth

DATA = ROOT / "tests" / "data" / "retrievers"


@pytest.mark.frameworks
@pytest.mark.parametrize("library", RETRIEVERS, ids=lambda library: library.name)
def test_queries_and_documents_equal_what_retriever_and_reranker_logged(
    library: Framework, sink: Any, tmp_path: Path
) -> None:
    with running_provider() as provider:
        found = start(library, provider, sink, tmp_path)
    sent = unplaced(sink.bodies)
    if os.environ.get("RECORD"):
        (DATA / f"{library.script}.otlp.pb").write_bytes(sent)
        (DATA / f"{library.script}.json").write_text(json.dumps(found, indent=1) + "\n")
    spans = tmp_path / "sent.otlp.pb"
    spans.write_bytes(sent)
    assert of_spans(spans) == of_truth(found)
    assert reranked(spans) == reranked_truth(found)
