"""The beginning of a search: a flag with one prompt, and a store with a few rollouts of it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Traces

KEY, FIRST = "support-prompt", "You answer the requests of customers."


def first_prompt(traces: "Traces", flags: Path) -> None:
    """Write the flag file, and store six rollouts of its only variant, half of them good."""
    flag = {"state": "ENABLED", "defaultVariant": "first", "variants": {"first": FIRST}}
    flags.write_text(json.dumps({"flags": {KEY: flag}}, indent=2))
    for i in range(6):
        traces.call(f"r{i}")
        traces.arm(f"r{i}", "first", 1.0)
        traces.task(f"r{i}", f"task-{i}")
        traces.reward(f"r{i}", float(i % 2))
    traces.store()
