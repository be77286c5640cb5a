"""Sampling from a causal model, many requests in one batch, with the logprob of each token.

Logprobs are natural logarithms under the distribution that the token was drawn from, temperature
included. At temperature 0 the most likely token is certain, so its logprob is 0.
"""

import queue
import random
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from transformers import PreTrainedModel

MAX_BATCH = 64


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to sample. With a seed, its draws do not depend on other requests."""

    prompt_ids: tuple[int, ...]
    temperature: float = 1.0
    max_tokens: int = 64
    seed: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled tokens, the end token included, and the logprob of each."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]


class Draw(NamedTuple):
    """The next token of each row and its logprob, both of shape [rows]."""

    tokens: torch.Tensor
    logprobs: torch.Tensor


@torch.inference_mode()
def sample(model: PreTrainedModel, requests: Sequence[Request]) -> list[Completion]:
    """Sample a completion for each request, all of them in step."""
    ends = end_tokens(model)
    limits = torch.tensor([request.max_tokens for request in requests])
    temperatures = torch.tensor([request.temperature for request in requests])
    # One generator per request, so that its draws do not depend on who shares the batch.
    rngs = [random.Random(request.seed) for request in requests]  # noqa: S311 - no cryptography
    decoder = _decode(model, [request.prompt_ids for request in requests])
    logits = next(decoder)
    draws: list[Draw] = []
    is_done = torch.zeros(len(requests), dtype=torch.bool)
    while True:
        # Rows that are done go on drawing until all are: their further tokens are cut off below.
        uniforms = torch.tensor([rng.random() for rng in rngs], dtype=torch.float64)
        draws.append(draw(logits.cpu(), temperatures, uniforms))
        is_done |= torch.isin(draws[-1].tokens, torch.tensor(ends)) | (limits <= len(draws))
        if is_done.all():
            break
        logits = decoder.send(draws[-1].tokens)
    tokens = torch.stack([step.tokens for step in draws], dim=1).tolist()
    logprobs = torch.stack([step.logprobs for step in draws], dim=1).tolist()
    return [
        _completion(row_tokens, row_logprobs, request.max_tokens, ends)
        for row_tokens, row_logprobs, request in zip(tokens, logprobs, requests, strict=True)
    ]


def draw(logits: torch.Tensor, temperatures: torch.Tensor, uniforms: torch.Tensor) -> Draw:
    """Draw one token a row by inverting the cumulative distribution.

    Args:
        logits: Shape [rows, vocabulary].
        temperatures: Shape [rows]; 0 takes the most likely token.
        uniforms: Numbers from [0, 1), shape [rows].
    """
    greedy = temperatures == 0
    scale = torch.where(greedy, 1.0, temperatures)[:, None]
    # In float64: cumulative sums over a large vocabulary lose small probabilities in float32.
    logprobs = torch.log_softmax(logits.double() / scale, dim=-1)
    below = (logprobs.exp().cumsum(-1) <= uniforms[:, None]).sum(-1)
    # Rounding can leave the last sum just under 1, and a draw above it.
    drawn = below.clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logits.argmax(-1), drawn)
    chosen = logprobs.gather(-1, tokens[:, None])[:, 0]
    return Draw(tokens, torch.where(greedy, 0.0, chosen))


def _decode(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]]
) -> Generator[torch.Tensor, torch.Tensor, None]:
    """Yield the logits after the prompts, then after each column of tokens sent."""
    width = max(map(len, prompts))
    # Padded on the left, so that all rows continue in the same column. [B, T]
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    ids, mask = ids.to(model.device), mask.to(model.device)
    cache: dict[str, Any] = {}
    while True:
        # Positions count real tokens only, so padding does not change what the model computes.
        # After the first pass `ids` has one column, hence the slice.
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **cache,
        )
        # Since transformers 5.24 the field and the argument are named `cache`.
        name = "cache" if "cache" in out else "past_key_values"
        cache = {name: out[name]}
        ids = (yield out.logits[:, -1])[:, None].to(model.device)
        mask = torch.nn.functional.pad(mask, (0, 1), value=1)


def end_tokens(model: PreTrainedModel) -> tuple[int, ...]:
    """List the tokens that end a completion; models have none, one or several."""
    end: int | list[int] | None = model.generation_config.eos_token_id
    if end is None:
        return ()
    return (end,) if isinstance(end, int) else tuple(end)


def _completion(
    tokens: Sequence[int], logprobs: Sequence[float], max_tokens: int, ends: Sequence[int]
) -> Completion:
    end = next((length for length, token in enumerate(tokens, start=1) if token in ends), None)
    length = min(end or len(tokens), max_tokens)
    reason: Literal["stop", "length"] = "stop" if tokens[length - 1] in ends else "length"
    return Completion(tuple(tokens[:length]), tuple(logprobs[:length]), reason)


class Sampler:
    """A thread that samples all waiting requests in one batch, then those that came meanwhile."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._waiting: queue.Queue[tuple[Request, Future[Completion]]] = queue.Queue()
        threading.Thread(target=self._work, name="sampler", daemon=True).start()

    def submit(self, request: Request) -> Future[Completion]:
        """Ask for a completion."""
        future: Future[Completion] = Future()
        self._waiting.put((request, future))
        return future

    def _work(self) -> None:
        # Several servers and agents share the machine; small models gain nothing from more threads.
        torch.set_num_threads(1)
        while True:
            batch = [self._waiting.get()]
            while len(batch) < MAX_BATCH and not self._waiting.empty():
                batch.append(self._waiting.get())
            self._answer([request for request, _ in batch], [future for _, future in batch])

    def _answer(self, requests: Sequence[Request], futures: Sequence[Future[Completion]]) -> None:
        try:
            completions = sample(self._model, requests)
        except Exception as error:  # noqa: BLE001 - the thread that waits for the future raises it
            for future in futures:
                future.set_exception(error)
            return
        for future, completion in zip(futures, completions, strict=True):
            future.set_result(completion)
