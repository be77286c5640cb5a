"""What a refused candidate needs to pass the gate, as a sentence."""

import math

from otel_lightning.learner.evaluate.gate import Verdict


def what_would_pass(verdict: Verdict) -> str:
    """Estimate how many more held-out tasks the gate needs to pass, as a sentence."""
    if verdict.tasks_needed is None or not verdict.gain > verdict.least_gain:
        return (
            "the held-out rollouts show no gain, so more rollouts of the same arms would not help; "
            "try other arms, or learn again when there is more data."
        )
    more = max(0, math.ceil(verdict.tasks_needed) - verdict.tasks)
    if more == 0:
        return "the number of held-out tasks is enough; remove the causes of the refusal."
    tasks = f"about {more} more held-out tasks like these"
    if not verdict.rollouts_needed:
        return f"{tasks}, if the estimated gain is right ({verdict.gain:+.4f})."
    most = sorted(verdict.rollouts_needed.items(), key=lambda item: -item[1])
    arms = ", ".join(f"{count:,} of '{arm}'" for arm, count in most)
    return (
        f"about {arms} more rollouts (the smallest number that is enough), or {tasks}, if the "
        f"estimated gain is right ({verdict.gain:+.4f})."
    )
