"""Unchanged agents in real frameworks: the tables equal what the model server and tools logged.

`make test-frameworks` runs these: each framework has an environment of its own in the cache.
With `RECORD=1` each run is kept in `tests/data`, where the fast tests read it again.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support import frameworks_page, trial_rows
from support.agent_trials import LARGEST, ROOT, record, run
from support.captures import load
from support.facts import facts
from support.frameworks import FRAMEWORKS, Framework
from support.provider.server import running_provider
from support.running import finish

DATA = ROOT / "tests" / "data"


@pytest.mark.frameworks
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda f: f.name)
def test_the_tables_equal_what_the_model_server_and_the_tools_logged(
    framework: Framework, sink: Any, tmp_path: Path
) -> None:
    with running_provider() as provider:
        ran = run(framework, provider, sink, tmp_path)
    if os.environ.get("RECORD") and len(ran.spans) <= LARGEST:
        record(ran, DATA / framework.recording)
    truth = record(ran, tmp_path / "recorded")
    bad = [fact for fact in facts(load(truth)) if fact.verdict in {"wrong", "missed"}]
    assert not bad, "\n".join(map(str, bad))
    parts = sorted(map(str, truth.parent.glob("*.pb")))
    store = tmp_path / "traces.duckdb"
    loading = [sys.executable, "-m", "otel_lightning.collector", "load", *parts]
    finish(*loading, "--store", store, check=True)
    assert trial_rows.of_store(store) == trial_rows.of_truth(ran.truth, framework)


def test_the_page_of_packages_is_as_the_frameworks_that_are_tried() -> None:
    assert frameworks_page.PAGE.read_text() == frameworks_page.page(), (
        "write it again with: PYTHONPATH=tests python -m support.frameworks_page"
    )
