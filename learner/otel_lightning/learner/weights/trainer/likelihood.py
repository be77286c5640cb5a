"""How likely a model finds completions that were logged."""

import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from otel_lightning.collector.terminal.progress import Progress
from otel_lightning.learner.arrays import Floats
from otel_lightning.learner.weights.examples import MASKED, Example
from otel_lightning.learner.weights.trainer.distributed import gathered, state, world_size
from otel_lightning.learner.weights.trainer.trl_overrides import scoring

LOGITS_BYTES = 128 * 2**20
"""Most bytes that the logits of a batch may take, in float32. A larger batch is computed by TRL.

Computing with them takes up to three times as much for a moment, which is less than the 512 MiB of
one tile of TRL.
"""


def completion_logprobs(
    model: nn.Module, examples: Sequence[Example], batch_size: int, label: str
) -> Floats:
    """Compute the logprob of each completion after its prompt, summed over its tokens.

    Args:
        model: A causal language model, on the device where it is to be judged.
        examples: What to judge, each at the temperature that it was sampled with.
        batch_size: Examples in one forward pass.
        label: Shown beside the progress.

    Returns:
        Natural logarithms, shape [N].
    """
    tokens = token_logprobs(model, examples, batch_size, label)
    return np.array([row.sum() for row in tokens], dtype=np.float64)


def token_logprobs(
    model: nn.Module, examples: Sequence[Example], batch_size: int, label: str
) -> list[Floats]:
    """Compute the logprob of each token of each completion.

    Memory is bounded: see `LOGITS_BYTES` and `trl_overrides.scoring`. Several processes share the
    work.

    Args:
        model: A causal language model, on the device where it is to be judged.
        examples: What to judge, each at the temperature that it was sampled with.
        batch_size: Examples in one forward pass.
        label: Shown beside the progress.

    Returns:
        One array of natural logarithms per example, as long as its completion.
    """
    logprobs: list[Floats] = [np.empty(0)] * len(examples)
    rank, world = (state().process_index, world_size()) if world_size() > 1 else (0, 1)
    progress, done = Progress(label, len(examples)), 0
    computed = []
    leaves_out = _can_leave_out_logits(model)
    was_training = model.training
    model.train(mode=False)
    # Process `rank` takes every `world`-th example. `gathered` brings the results of all together,
    # so every process returns the same list.
    for temperature, places in _by_temperature(examples, range(rank, len(examples), world)).items():
        for rows in _batches(examples, places, batch_size):
            batch = _batch_logprobs(
                model, [examples[i] for i in rows], temperature, leaves_out=leaves_out
            )
            # With their positions, because batches are sorted by length and not in the order of
            # the examples.
            computed += list(zip(rows, batch, strict=True))
            done += world * len(rows)
            if rank == 0:
                progress.report(min(done, len(examples)))
    for i, row in gathered(computed):
        logprobs[i] = row
    model.train(mode=was_training)
    return logprobs


def _by_temperature(examples: Sequence[Example], chosen: range) -> dict[float, list[int]]:
    places: dict[float, list[int]] = defaultdict(list)
    for i in chosen:
        places[examples[i].temperature].append(i)
    return places


def _batches(
    examples: Sequence[Example], places: Sequence[int], size: int
) -> Iterator[Sequence[int]]:
    """Group rows of similar length, so that little is padded."""
    order = sorted(places, key=lambda i: examples[i].length)
    for start in range(0, len(order), size):
        yield order[start : start + size]


@torch.no_grad()
def _batch_logprobs(
    model: nn.Module, batch: Sequence[Example], temperature: float, *, leaves_out: bool
) -> list[Floats]:
    lengths = [e.length for e in batch]
    longest = max(lengths)
    tokens = torch.zeros(len(batch), longest, dtype=torch.long)  # [B, T]
    mask = torch.zeros_like(tokens)
    for i, (e, length) in enumerate(zip(batch, lengths, strict=True)):
        tokens[i, :length] = torch.tensor(e.prompt + e.completion)
        mask[i, :length] = 1
    # The last position of the shortest prompt is the first one whose logits are needed.
    first = min(len(e.prompt) for e in batch) - 1 if leaves_out else 0
    vocabulary = cast("Any", model).config.get_text_config().vocab_size
    if 4 * len(batch) * (longest - first) * vocabulary <= LOGITS_BYTES:
        logprobs = _by_logits(model, tokens, mask, first, temperature)
    else:
        first = 0
        logprobs = _by_tiles(model, tokens, mask, batch, temperature)
    # Entry t is the logprob of token first + t + 1.
    return [
        row[len(e.prompt) - 1 - first : length - 1 - first]
        for row, e, length in zip(logprobs, batch, lengths, strict=True)
    ]


def _can_leave_out_logits(model: Any) -> bool:
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "logits_to_keep" in inspect.signature(inner.forward).parameters


def _by_logits(
    model: nn.Module, tokens: torch.Tensor, mask: torch.Tensor, first: int, temperature: float
) -> Floats:
    """Compute the logprobs of all tokens after position `first`, with their logits in memory.

    Returns:
        Shape [B, T - 1 - first].
    """
    device = next(model.parameters()).device
    options = {"logits_to_keep": tokens.shape[1] - first} if first else {}
    inputs = {"input_ids": tokens.to(device), "attention_mask": mask.to(device)}
    logits = model(**inputs, use_cache=False, **options).logits[:, :-1]
    scaled = logits.float() / temperature  # [B, T - 1 - first, V]
    targets = tokens[:, first + 1 :, None].to(scaled.device)
    logprobs = scaled.gather(-1, targets).squeeze(-1) - scaled.logsumexp(-1)
    return np.asarray(logprobs.double().cpu().numpy(), dtype=np.float64)


def _by_tiles(
    model: nn.Module,
    tokens: torch.Tensor,
    mask: torch.Tensor,
    batch: Sequence[Example],
    temperature: float,
) -> Floats:
    """Compute the logprobs of the completions' tokens without holding logits in memory.

    Returns:
        Shape [B, T - 1]; 0 at other tokens.
    """
    labels = torch.full_like(tokens, MASKED)
    for i, e in enumerate(batch):
        labels[i, len(e.prompt) : e.length] = tokens[i, len(e.prompt) : e.length]
    device = next(model.parameters()).device
    inputs = {"input_ids": tokens, "attention_mask": mask, "labels": labels}
    with scoring(model, temperature):
        outputs = model(**{k: v.to(device) for k, v in inputs.items()}, fused_lm_head=True)
    return np.asarray(outputs.log_probs.double().cpu().numpy(), dtype=np.float64)
