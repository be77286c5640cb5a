"""The gate of a run, as the table `runs` has it."""

import json
from collections.abc import Mapping
from typing import Any

ALPHA = 0.05
"""Error probability of each bound, unless the settings of the run have another one."""


def as_object(text: str | None) -> dict[str, Any]:
    """Read a JSON object; an empty one if the text is something else."""
    value = json.loads(text or "{}")
    return value if isinstance(value, dict) else {}


def gate_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the gate of a run with its `refusals`; an empty one if nothing was judged."""
    gate = as_object(row["gate"])
    if gate and row["command"] == "evaluate":  # by model: the reasons to refuse it
        reasons = [f"{model}: {reason}" for model, found in gate.items() for reason in found]
        return {"refusals": reasons}
    return {**gate, "refusals": gate.get("refusals") or []} if gate else {}


def is_control(row: Mapping[str, Any]) -> bool:
    """Return whether a run learned from shuffled rewards, which its transitions may have had."""
    seeds = (as_object(row["config"]).get("shuffle_rewards"), gate_of(row).get("shuffled"))
    return any(seed is not None for seed in seeds)


def confidence_of(gate: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Say what the bounds of a gain mean."""
    if "pairs" in gate:  # two variants on the same tasks
        return "95 % interval"
    return f"Each bound with {100 * (1 - (config.get('alpha') or ALPHA)):.4g} %"
