"""Recordings of unchanged agents: rows equal what the provider and the tools logged.

`RECORD=1 make test-frameworks` records them again. Those above 64 kB are left out.
"""

import pytest
from support import trial_rows
from support.captures import load
from support.dialects_page import DATA
from support.frameworks import FRAMEWORKS, Framework

from otel_lightning.collector.derive.assemble import derive

RECORDED = [one for one in FRAMEWORKS if (DATA / one.recording / "tasks.truth.json").exists()]


@pytest.mark.parametrize("framework", RECORDED, ids=lambda framework: framework.name)
def test_calls_tools_and_rollouts_of_an_unchanged_agent_are_what_happened(
    framework: Framework,
) -> None:
    capture = load(DATA / framework.recording / "tasks.truth.json")
    derived = derive(capture.spans, capture.logs)
    assert trial_rows.of_derived(derived) == trial_rows.of_truth(capture.truth, framework)


def test_most_frameworks_are_recorded() -> None:
    assert len(RECORDED) >= len(FRAMEWORKS) - 2
