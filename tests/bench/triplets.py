"""What agentlightning 0.3's adapter costs; run in its own environment by `transitions.py`.

Reads traces from a file, a line of spans each; measures `adapt` alone, not the reading.
"""

import json
import sys
import time
from pathlib import Path

from agentlightning.adapter import TracerTraceToTriplet
from agentlightning.types import OtelResource, Span, TraceStatus


def span(rollout: str, number: int, made: dict) -> Span:
    return Span(
        rollout_id=rollout,
        attempt_id="attempt-1",
        sequence_id=number,
        status=TraceStatus(status_code="OK"),
        events=[],
        links=[],
        context=None,
        parent=None,
        resource=OtelResource(attributes={}, schema_url=""),
        **made,
    )


def main(path: Path) -> None:
    """Print how many spans, triplets and rewarded triplets there were, and the CPU seconds."""
    adapter = TracerTraceToTriplet()
    spans = triplets = rewarded = 0
    seconds = 0.0
    with path.open() as file:
        for line in file:
            trace = [span("r", number, made) for number, made in enumerate(json.loads(line))]
            begun = time.process_time()
            found = adapter.adapt(trace)
            seconds += time.process_time() - begun
            spans += len(trace)
            triplets += len(found)
            rewarded += sum(triplet.reward is not None for triplet in found)
    print(json.dumps({"spans": spans, "rows": triplets, "rewarded": rewarded, "seconds": seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
