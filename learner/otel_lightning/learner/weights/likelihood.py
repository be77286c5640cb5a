"""How likely a model finds what another wrote."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from otel_lightning.learner.progress import Progress
from otel_lightning.learner.weights.examples import Example


def completion_logprobs(
    model: nn.Module, examples: Sequence[Example], batch_size: int, label: str
) -> NDArray[np.float64]:
    """Compute the logprob of each completion after its prompt, summed over its tokens.

    Args:
        model: A causal language model.
        examples: What to judge, each at the temperature that it was sampled with.
        batch_size: Examples in one forward pass.
        label: Named while this takes its time.

    Returns:
        Natural logarithms, shape [N].
    """
    logprobs = np.empty(len(examples))
    progress, done = Progress(label, len(examples)), 0
    model.eval()
    for rows in _batches(examples, batch_size):
        logprobs[rows] = _batch_logprobs(model, [examples[i] for i in rows])
        done += len(rows)
        progress.report(done)
    return logprobs


def _batches(examples: Sequence[Example], size: int) -> Iterator[list[int]]:
    """Group rows of similar length, so that little is padded."""
    order = sorted(
        range(len(examples)), key=lambda i: len(examples[i].prompt + examples[i].completion)
    )
    for start in range(0, len(order), size):
        yield order[start : start + size]


@torch.inference_mode()
def _batch_logprobs(model: nn.Module, batch: Sequence[Example]) -> NDArray[np.float64]:
    longest = max(len(e.prompt) + len(e.completion) for e in batch)
    tokens = torch.zeros(len(batch), longest, dtype=torch.long)  # [B, T]
    mask = torch.zeros_like(tokens)
    written = torch.zeros(len(batch), longest, dtype=torch.bool)
    for i, e in enumerate(batch):
        end = len(e.prompt) + len(e.completion)
        tokens[i, :end] = torch.tensor(e.prompt + e.completion)
        mask[i, :end] = 1
        written[i, len(e.prompt) : end] = True
    temperatures = torch.tensor([e.temperature for e in batch])[:, None, None]
    device = next(model.parameters()).device
    logits = model(input_ids=tokens.to(device), attention_mask=mask.to(device)).logits
    scaled = logits[:, :-1].float().cpu() / temperatures  # [B, T-1, V]
    token_logprobs = scaled.log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    summed = (token_logprobs * written[:, 1:]).double().sum(-1)  # [B]
    return np.asarray(summed.numpy(), dtype=np.float64)
