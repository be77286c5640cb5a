"""Refuse a gain that could be a loss if the missing rewards were known."""

from dataclasses import replace

import numpy as np

from otel_lightning.learner.arrays import Booleans
from otel_lightning.learner.evaluate.gains import Compared
from otel_lightning.learner.evaluate.gate import Requirements, Verdict, held_out_verdict
from otel_lightning.learner.evaluate.refusals import Cause, Refusal


def at_worst(
    compared: Compared, held_out: Booleans, requirements: Requirements
) -> tuple[list[Refusal], Verdict]:
    """Return a refusal if the gain is not proven whatever the missing rewards are.

    The verdict on the worst of them is returned as well.

    Missing rewards that differ between arms are refused before, but equal shares prove nothing:
    failures of one arm and successes of another may be missing equally often.

    Args:
        compared: All rollouts, shape [N]; the reward is NaN where it is missing.
        held_out: Which of them judge, shape [N].
        requirements: The range of the rewards, the least gain and the error probability.
    """
    worst = worst_verdict(compared, held_out, requirements)
    if worst.lower > requirements.least_gain:
        return [], worst
    missing = np.isnan(compared.new.rewards)
    count, total = int((missing & held_out).sum()), int(held_out.sum())
    text = (
        f"{count:,} of {total:,} held-out rollouts have no reward: if the arms that gain traffic "
        f"failed in these and the others succeeded, the gain is at least {worst.lower:+.4g}. Send "
        "these rewards, or say with --missing what a missing one means: worst, a number, or drop "
        "if it is missing by chance, whatever the outcome"
    )
    return [Refusal(Cause.MISSING_REWARDS, text)], worst


def worst_verdict(compared: Compared, held_out: Booleans, requirements: Requirements) -> Verdict:
    """Judge the gain with those values of the missing rewards that make it smallest.

    A missing reward counts as the least one where the new policy gives the arm more traffic than
    the live one, and as the greatest one elsewhere. No other rewards make the gain smaller.
    Arguments as of `at_worst`.

    Source:
        Manski, Nonparametric bounds on treatment effects (1990).
    """
    low, high = requirements.rewards.range
    worst = np.where(compared.new.weights > compared.live.weights, low, high)
    filled = np.where(np.isnan(compared.new.rewards), worst, compared.new.rewards)
    whole = replace(
        compared,
        new=replace(compared.new, rewards=filled),
        live=replace(compared.live, rewards=filled),
    )
    return held_out_verdict(whole.take(held_out), requirements, whole)
