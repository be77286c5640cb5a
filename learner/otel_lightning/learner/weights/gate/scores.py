"""The gate of a reward model: does it rank pairs of held-out completions better than chance?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.evaluate.betting import Scores
from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.gains import per_task
from otel_lightning.learner.evaluate.gate import MIN_TASKS, Verdict
from otel_lightning.learner.evaluate.refusals import Cause, Refusal
from otel_lightning.learner.evaluate.star_bets import bound_beside
from otel_lightning.learner.weights.examples import Example
from otel_lightning.learner.weights.preparation.pairs import Pair, preference_pairs

if TYPE_CHECKING:
    from otel_lightning.learner.weights.job import Job

RANDOM_ACCURACY = 0.5
PAIRS_PER_STATE = 4


def judge_scores(job: "Job", held_out: list[Example]) -> Verdict:
    """Judge a reward model by the share of held-out pairs that it ranks right."""
    pairs = preference_pairs(held_out, PAIRS_PER_STATE)
    better = completion_scores(job, [chosen for chosen, _ in pairs])
    worse = completion_scores(job, [rejected for _, rejected in pairs])
    return judge_ranking(pairs, better, worse, job.training.seed)


def judge_ranking(pairs: Sequence[Pair], better: Floats, worse: Floats, seed: int) -> Verdict:
    """Judge the scores of pairs.

    Args:
        pairs: A better and a worse completion each, shape [N].
        better: Score of the better one, shape [N].
        worse: Score of the worse one, shape [N].
        seed: Seed of the order in which tasks are bet on.

    Returns:
        The verdict: its value is the mean over tasks of the share of their pairs that are ranked
        right, its gain the value less one half, with bounds from betting.
    """
    # A tie counts as half right, as a coin would rank it.
    right = (better > worse).astype(np.float64) + RANDOM_ACCURACY * (better == worse)
    tasks, number = np.unique([chosen.task for chosen, _ in pairs], return_inverse=True)
    # One value per task, since pairs of one task share completions.
    shares = per_task(right, number)
    value = float(shares.mean()) if len(shares) else float("nan")
    lower, upper = _bounds(shares, seed)
    reasons = []
    if len(tasks) < MIN_TASKS:
        text = (
            f"{len(tasks)} held-out tasks have pairs, too few to judge by ({MIN_TASKS} needed: "
            "run more tasks several times)"
        )
        reasons.append(Refusal(Cause.FEW_TASKS, text))
    if not lower > 0:
        text = (
            f"ranking may be chance: the lower 95 % bound of the share ranked right less one half "
            f"is {lower:.4g}, not above 0"
        )
        reasons.append(Refusal(Cause.CHANCE, text))
    return Verdict(
        estimator="share of pairs ranked right",
        rollouts=len({e.rollout_id for pair in pairs for e in pair}),
        tasks=len(tasks),
        # No importance weights: each pair counts as it is.
        effective_sample_size=float("nan"),
        behavior_value=RANDOM_ACCURACY,
        value=value,
        gain=value - RANDOM_ACCURACY,
        lower=lower,
        upper=upper,
        reasons=tuple(reasons),
        mean_weight=float("nan"),
    )


def completion_scores(job: "Job", examples: list[Example]) -> Floats:
    """Score completions in their states by a reward model, shape [N]."""
    import torch

    scores = np.empty(len(examples))
    model, size = job.model, job.training.batch_size
    model.train(mode=False)
    device = next(model.parameters()).device
    for start in range(0, len(examples), size):
        batch = examples[start : start + size]
        longest = max(e.length for e in batch)
        tokens = torch.full((len(batch), longest), job.pad_token, dtype=torch.long)  # [B, T]
        mask = torch.zeros_like(tokens)
        for i, e in enumerate(batch):
            tokens[i, : e.length] = torch.tensor(e.prompt + e.completion)
            mask[i, : e.length] = 1
        with torch.no_grad():
            outputs = model(input_ids=tokens.to(device), attention_mask=mask.to(device))
        scores[start : start + size] = outputs.logits.squeeze(-1).double().cpu().numpy()
    return scores


def _bounds(shares: Floats, seed: int) -> tuple[float, float]:
    """Bound the mean share of pairs ranked right, less one half, each side with 95 % confidence.

    A bootstrap lets more than 5 % of the models without skill pass: it knows nothing of a task that
    is ranked wrong and is not among these.

    Args:
        shares: Share of the pairs ranked right of each task, shape [T].
        seed: Seed of the order of the tasks.
    """
    if not len(shares):
        return float("nan"), float("nan")
    gains = np.random.default_rng(seed).permutation(shares) - RANDOM_ACCURACY
    lower, upper = (
        bound_beside(Scores(values, -RANDOM_ACCURACY), RANDOM_ACCURACY, 0.0, ALPHA)
        for values in (gains, -gains)
    )
    return lower, -upper
