"""The state of a call does not depend on the ids that the provider invented for tool calls."""

from pathlib import Path

import pytest
from support.call_ids import Recording, recordings, with_other_ids
from support.captures import read_spans

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall


def calls(spans: bytes, folder: Path) -> list[LlmCall]:
    sent = folder / "sent.otlp.pb"
    sent.write_bytes(spans)
    return derive(read_spans(sent), []).llm_calls


@pytest.mark.parametrize("recording", recordings(), ids=lambda recording: recording.name)
def test_recordings_with_other_call_ids_have_the_same_states(
    recording: Recording, tmp_path: Path
) -> None:
    again = with_other_ids(recording, 1)
    assert again != recording.spans
    states = [call.state_hash for call in calls(recording.spans, tmp_path)]
    assert [call.state_hash for call in calls(again, tmp_path)] == states
