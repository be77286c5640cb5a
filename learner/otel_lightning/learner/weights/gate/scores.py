"""The gate of a reward model: does it rank pairs of held-out completions better than chance?"""

import numpy as np
import torch

from otel_lightning.learner.arrays import Floats, Integers
from otel_lightning.learner.evaluate.gate import MIN_TASKS, Verdict
from otel_lightning.learner.evaluate.refusals import Cause, Refusal
from otel_lightning.learner.weights.examples import Example
from otel_lightning.learner.weights.job import Job
from otel_lightning.learner.weights.preparation.pairs import preference_pairs

RANDOM_ACCURACY = 0.5
PAIRS_PER_STATE = 4
RESAMPLES = 1000


def judge_scores(job: Job, held_out: list[Example]) -> Verdict:
    """Judge a reward model by the share of held-out pairs that it ranks right.

    Returns:
        The verdict: its value is that share, its gain the share less one half, with bounds from a
        bootstrap over tasks.
    """
    pairs = preference_pairs(held_out, PAIRS_PER_STATE)
    better = completion_scores(job, [chosen for chosen, _ in pairs])
    worse = completion_scores(job, [rejected for _, rejected in pairs])
    # A tie counts as half right, as a coin would rank it.
    right = (better > worse).astype(np.float64) + RANDOM_ACCURACY * (better == worse)
    tasks = sorted({chosen.task for chosen, _ in pairs})
    number = {task: i for i, task in enumerate(tasks)}
    of_task = np.array([number[chosen.task] for chosen, _ in pairs], dtype=np.int64)
    value = float(right.mean()) if len(right) else float("nan")
    lower, upper = _bounds(right, of_task, len(tasks), job.training.seed)
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


@torch.no_grad()
def completion_scores(job: Job, examples: list[Example]) -> Floats:
    """Score completions in their states by a reward model, shape [N]."""
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
        outputs = model(input_ids=tokens.to(device), attention_mask=mask.to(device))
        scores[start : start + size] = outputs.logits.squeeze(-1).double().cpu().numpy()
    return scores


def _bounds(right: Floats, tasks: Integers, count: int, seed: int) -> tuple[float, float]:
    """Bound the mean less one half by resampling tasks: its 5 % and 95 % quantiles."""
    if count == 0:
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    totals, sizes = np.bincount(tasks, right, count), np.bincount(tasks, minlength=count)
    # Resample tasks, not pairs: pairs of one task share completions.
    drawn = rng.integers(count, size=(RESAMPLES, count))
    gains = totals[drawn].sum(1) / sizes[drawn].sum(1) - RANDOM_ACCURACY
    lower, upper = np.quantile(gains, [0.05, 0.95])
    return float(lower), float(upper)
