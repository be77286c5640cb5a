"""What a refused candidate needs to pass the gate, as a sentence."""

import math
from collections.abc import Mapping
from typing import Any

from otel_lightning.learner.evaluate.gate import CHANCE, MORE_NEEDED, Verdict


def recorded_verdict(gate: Mapping[str, Any]) -> Verdict:
    """Return the verdict that the column `gate` of a policy or a run holds as JSON."""
    # JSON has no NaN, so `to_json` wrote null. None as `tasks_needed` is no number of tasks at all.
    names = [name for name in Verdict.__dataclass_fields__ if name in gate]
    numbers = {name: math.nan if gate[name] is None else gate[name] for name in names}
    kept = {"tasks_needed": gate.get("tasks_needed"), "refusals": tuple(gate["refusals"])}
    return Verdict(**(numbers | kept))


def what_would_pass(verdict: Verdict) -> str:
    """Estimate how many more held-out tasks the gate needs to pass, as a sentence."""
    if not verdict.tasks:
        return "hold tasks out: collect rollouts of more tasks, or raise --held-out."
    if verdict.tasks_needed is None or not verdict.gain > verdict.least_gain:
        if verdict.gain > 0:
            return (
                f"the gain is not above the least gain of {verdict.least_gain:g}, so more rollouts "
                "of the same arms would not help; try other arms, or a smaller --least-gain."
            )
        return (
            "the held-out rollouts show no gain, so more rollouts of the same arms would not help; "
            "try other arms, or learn again when there is more data."
        )
    more = max(0, math.ceil(verdict.tasks_needed) - verdict.tasks)
    if more == 0:
        return "the number of held-out tasks is enough; remove the causes of the refusal."
    tasks = f"about {more:,} more held-out tasks like these"
    if_right = f"if the estimated gain is right ({verdict.gain:+.4f})."
    if any(CHANCE not in reason and MORE_NEEDED not in reason for reason in verdict.refusals):
        if_right += " They do not remove the other reasons of the refusal."
    if not verdict.rollouts_needed:
        return f"{tasks}, {if_right}"
    most = sorted(verdict.rollouts_needed.items(), key=lambda item: -item[1])
    arms = ", ".join(f"{count:,} of '{arm}'" for arm, count in most)
    return (
        f"about this many more rollouts: {arms} (the smallest numbers that are enough); or "
        f"{tasks}, {if_right}"
    )
