"""Transitions as tokens: what the model read, and what it wrote.

The token ids of the trace are used where it has them. Elsewhere the messages go through the
model's chat template, and only where the prompt is a prefix of the whole is it clear which
tokens the model wrote.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from otel_lightning.learner.chat import chat_messages, chat_tools

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Example:
    """One transition as tokens."""

    rollout_id: str
    task: str
    split: str
    state_hash: str | None
    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    logprob: float | None
    """Of the completion under the behavior policy, summed over its tokens; None if not logged."""
    temperature: float
    reward: float
    advantage: float


class Tokenized(NamedTuple):
    """The examples, and the rollout of each transition that could not be told apart in tokens."""

    examples: list[Example]
    skipped: list[str]


def tokenize(rows: pl.DataFrame, tokenizer: "PreTrainedTokenizerBase") -> Tokenized:
    """Turn transitions into token ids.

    Args:
        rows: The columns of `sql/completions.sql`.
        tokenizer: Of the model to be fine-tuned, with its chat template.
    """
    examples, skipped = [], []
    for row in rows.iter_rows(named=True):
        tokens = logged_tokens(row) or templated_tokens(row, tokenizer)
        if tokens is None:
            skipped.append(row["rollout_id"])
        else:
            examples.append(_example(row, *tokens))
    return Tokenized(examples, skipped)


def logged_tokens(row: Mapping[str, Any]) -> tuple[list[int], list[int]] | None:
    """Read the token ids that the server sent; None if it sent none."""
    prompt, completion = row["prompt_token_ids"], row["completion_token_ids"]
    return (prompt, completion) if prompt and completion else None


def templated_tokens(
    row: Mapping[str, Any], tokenizer: "PreTrainedTokenizerBase"
) -> tuple[list[int], list[int]] | None:
    """Write the messages by the chat template; None if the prompt is not a prefix of the whole."""
    if tokenizer.chat_template is None or not row["messages"] or not row["completion"]:
        return None
    messages = chat_messages(json.loads(row["messages"]))
    answer = chat_messages(json.loads(row["completion"])[:1])
    options: dict[str, Any] = {"return_dict": False}
    if row["tools"]:
        options["tools"] = chat_tools(json.loads(row["tools"]))
    template: Any = partial(tokenizer.apply_chat_template, **options)
    prompt: list[int] = template(messages, add_generation_prompt=True)
    whole: list[int] = template(messages + answer)
    completion = _until_end(whole[len(prompt) :], tokenizer.eos_token_id)
    return (prompt, completion) if whole[: len(prompt)] == prompt and completion else None


def _until_end(tokens: list[int], end: Any) -> list[int]:
    """Cut what templates write after the end of the answer, which no model writes."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def _example(row: Mapping[str, Any], prompt: list[int], completion: list[int]) -> Example:
    logprobs = row["completion_logprobs"]
    logged = bool(logprobs) and row["completion_token_ids"] and len(logprobs) == len(completion)
    return Example(
        rollout_id=row["rollout_id"],
        task=row["task"],
        split=row["split"],
        state_hash=row["state_hash"],
        prompt=tuple(prompt),
        completion=tuple(completion),
        logprob=sum(logprobs) if logged else None,
        temperature=1.0 if row["temperature"] is None else row["temperature"],
        reward=row["reward"],
        advantage=row["advantage"],
    )
