"""Say in a sentence what a refused candidate needs to pass the gate."""

import math
from collections.abc import Collection

from otel_lightning.collector.terminal.quantities import decimal, number_of
from otel_lightning.learner.evaluate.gate import Verdict
from otel_lightning.learner.evaluate.refusals import BY_MORE_TASKS, Cause

ROUNDING = 1e-9
"""Largest gain that is an error of rounding, as a share of the range of the rewards."""

OTHERWISE = {"policy": "other arms", "weights": "another training"}
"""What to try where more data would not help, by the command that learned."""


def what_would_pass(verdict: Verdict, command: str) -> str:
    """Estimate how many more held-out tasks the gate needs to pass, as a sentence.

    Args:
        verdict: The verdict that refused.
        command: The command that learned the candidate: `policy` or `weights`.
    """
    if not verdict.tasks:
        return "hold tasks out: collect rollouts of more tasks, or raise --held-out."
    causes = {reason.cause for reason in verdict.reasons}
    # The gain of the live policy over itself is 0, which is above a negative least gain.
    low, high = verdict.reward_range
    rounding = ROUNDING * (high - low)
    if Cause.NOTHING_NEW in causes or not verdict.gain - verdict.least_gain > rounding:
        return _of_no_gain(verdict, causes, OTHERWISE[command])
    if not causes & BY_MORE_TASKS:
        return "the number of held-out tasks is enough; remove the causes of the refusal."
    if_right = f"if the estimated gain is right ({decimal(verdict.gain, '+')})."
    if not causes <= BY_MORE_TASKS:
        if_right += " They do not remove the other reasons of the refusal."
    if verdict.tasks_needed is None:
        return f"more held-out tasks like these (how many cannot be estimated), {if_right}"
    # At least one: the causes say that there are too few.
    more = max(1, math.ceil(verdict.tasks_needed) - verdict.tasks)
    tasks = f"about {number_of(more, 'more held-out task')} like these"
    if not verdict.rollouts_needed:
        return f"{tasks}, {if_right}"
    most = sorted(verdict.rollouts_needed.items(), key=lambda item: -item[1])
    arms = ", ".join(f"{count:,} of '{arm}'" for arm, count in most)
    return (
        f"about this many more rollouts: {arms} (the smallest numbers that are enough); or "
        f"{tasks}, {if_right}"
    )


def _of_no_gain(verdict: Verdict, causes: Collection[Cause], otherwise: str) -> str:
    if Cause.NOTHING_NEW in causes:
        return f"learn again when there is more data, or try {otherwise}: this is the live policy."
    shown = "the held-out rollouts show no gain"
    if verdict.least_gain > 0 and verdict.gain > 0:
        shown = f"the gain is not above the least gain of {verdict.least_gain:g}"
    if verdict.upper > verdict.least_gain:
        return (
            f"{shown} so far, but it may be up to {decimal(verdict.upper, '+')}: learn again when "
            f"there is more data, or try {otherwise}."
        )
    remedy = ", or a smaller --least-gain" if verdict.least_gain > 0 and verdict.gain > 0 else ""
    return (
        f"{shown}, and the held-out rollouts rule out a larger one, so more rollouts like these "
        f"would not help: try {otherwise}{remedy}."
    )
