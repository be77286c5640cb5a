"""Checks before training: refusals, and warnings with numbers."""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.chat import chat_messages, chat_tools
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.task_splits import HELD_OUT, TRAIN
from otel_lightning.learner.weights.examples import (
    CUT,
    IMAGES,
    LOGGED,
    TOO_LONG,
    Example,
    Tokenized,
)

TOOL_CALL = "<tool_call>"
SAMPLE = 20
"""How many rows are compared with their text."""
FEW_GROUPS = 10
FACTOR = 0x9E3779B97F4A7C15
"""Factor of the hashes of tokens: odd, so that it is invertible modulo 2 ** 64."""


def check_template(rows: pl.DataFrame, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    """Refuse a chat template that is missing where it is needed, or that leaves tools out.

    Raises:
        DataError: If rows without token ids cannot be rendered as the agent's server did.
    """
    needing = rows.filter(
        pl.col("prompt_token_ids").is_null() | pl.col("completion_token_ids").is_null(),
        pl.col("messages").is_not_null(),
    )
    if needing.is_empty():
        return
    if tokenizer.chat_template is None:
        raise DataError(
            f"The tokenizer in '{path}' has no chat template, and {len(needing):,} of "
            f"{len(rows):,} transitions have no token ids. Add the template (chat_template.jinja) "
            "of the server that the agent used, or record token ids."
        )
    # One row is enough: a template writes tools or it does not.
    offering = needing.filter(pl.col("tools").is_not_null(), pl.col("tools") != "[]")
    if not offering.is_empty() and _drops_tools(offering.row(0, named=True), tokenizer):
        raise DataError(
            f"The chat template in '{path}' leaves tool definitions out, but {len(offering):,} "
            "transitions offer tools: the model would learn from prompts that the agent's model "
            "never saw. Use the chat template of the server that the agent used."
        )


def _drops_tools(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> bool:
    messages = chat_messages(json.loads(row["messages"]))
    tools = chat_tools(json.loads(row["tools"]))
    plain = tokenizer.apply_chat_template(messages, tokenize=False)
    rendered = tokenizer.apply_chat_template(
        messages, tools=[dict(tool) for tool in tools], tokenize=False
    )
    # A template that ignores tools renders the same text with and without them.
    return bool(plain == rendered)


def check_tokens(
    tokenized: Tokenized,
    rows: pl.DataFrame,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    path: Path,
) -> None:
    """Refuse transitions that are not in this model's tokens.

    Raises:
        DataError: If there are no examples, a token id is unknown, the token ids say something
            else than the text beside them, or servers would drop the model's tool calls.
    """
    examples = tokenized.examples
    if not examples:
        reasons = "; ".join(f"{n} {reason}" for reason, n in tokenized.reasons.most_common())
        remedy = (
            "Record token ids, or give --model the model that wrote these traces instead of "
            f"'{path}'."
        )
        if set(tokenized.reasons) == {TOO_LONG}:
            remedy = "Give a larger --max-length, or a model of a longer context."
        if set(tokenized.reasons) == {IMAGES}:
            remedy = "Learn from an agent whose calls have none: --agent NAME."
        if set(tokenized.reasons) == {CUT}:
            remedy = "Record token ids or whole messages: `lightning-ingest doctor` says how."
        raise DataError(f"No transition is left to learn from ({reasons}). {remedy}")
    vocabulary_size = model.config.get_text_config().vocab_size
    largest = max(max(e.prompt + e.completion) for e in examples)
    if largest >= vocabulary_size:
        raise DataError(
            f"The store has token id {largest}, but the model in '{path}' has {vocabulary_size} "
            "tokens: another model wrote these traces. Give --model the one that did."
        )
    _check_text(rows, tokenizer, path)
    _check_tool_calls(examples, tokenizer, path)


def _check_text(rows: pl.DataFrame, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    """Compare logged token ids with the text beside them: a sample, by majority."""
    logged = rows.filter(
        pl.col("prompt_token_ids").list.len() > 0,
        pl.col("completion_token_ids").list.len() > 0,
        pl.col("completion").is_not_null(),
    )
    compared, differing = 0, 0
    for row in logged.head(10 * SAMPLE).iter_rows(named=True):
        answer = chat_messages(json.loads(row["completion"])[:1])
        text = str(answer[0]["content"] or "").strip() if answer else ""
        if not text or compared == SAMPLE:
            continue
        compared += 1
        decoded = str(tokenizer.decode(row["completion_token_ids"]))
        # White space is left out of the comparison: servers strip it, and tokens hold it. `in`,
        # since the decoded text may also have reasoning or tool calls around the answer.
        differing += "".join(text.split()) not in "".join(decoded.split())
    if differing > compared / 2:
        raise DataError(
            f"In {differing:,} of {compared:,} transitions the logged token ids, decoded by the "
            f"tokenizer in '{path}', are not the text that was logged: another model wrote these "
            "traces. Give --model the one that did."
        )


def _check_tool_calls(
    examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase, path: Path
) -> None:
    # Only if it is one token: a mark that is spelled in several tokens is ordinary text.
    token = tokenizer.get_vocab().get(TOOL_CALL)
    added = getattr(tokenizer, "added_tokens_decoder", {}).get(token)
    if token is None or added is None or not added.special:
        return
    calls = sum(token in e.completion for e in examples)
    if calls:
        raise DataError(
            f"{TOOL_CALL} is a special token of the tokenizer in '{path}', and "
            f"{number_of(calls, 'completion uses', 'completions use')} it: servers drop special "
            "tokens from the text, so tool calls would be lost. Set "
            '"special": false for it in tokenizer_config.json and tokenizer.json.'
        )


def check_rewards(examples: Sequence[Example]) -> None:
    """Refuse a train split that cannot tell good from bad.

    Raises:
        DataError: If there is no train split, or all its advantages are the same.
    """
    train = [e for e in examples if e.split == TRAIN]
    if not train:
        raise DataError(
            f"All {len(examples):,} transitions are held out, so there is nothing to learn from. "
            "Lower --held-out when building transitions, or collect rollouts of more tasks."
        )
    # Not the rewards: in every rollout of two calls and one reward, they differ.
    if len(train) > 1 and len({e.advantage for e in train}) == 1:
        raise DataError(
            f"All {len(train):,} transitions of the train split have the advantage "
            f"{train[0].advantage:g}: nothing tells good from bad. Collect rollouts that differ in "
            "their rewards."
        )


def warnings(examples: Sequence[Example], tokenized: Tokenized) -> list[str]:
    """List warnings about the data, with numbers."""
    sentences = []
    for reason, count in tokenized.reasons.most_common():
        sentences.append(f"{number_of(count, 'transition')} left out: {reason}.")
    groups = informative_groups(examples)
    if groups < FEW_GROUPS:
        tasks = number_of(groups, "task of the train split has", "tasks of the train split have")
        sentences.append(
            f"Only {tasks} completions of different advantage; with fewer than {FEW_GROUPS} expect "
            "to learn little. Run more tasks several times."
        )
    models = Counter(e.model for e in examples if e.model)
    if len(models) > 1:
        named = ", ".join(f"{name} ({count:,})" for name, count in models.most_common(4))
        sentences.append(f"{len(models)} models wrote these transitions: {named}.")
    temperatures = Counter(e.temperature for e in examples)
    other = sum(count for t, count in temperatures.items() if t != 1)
    if other:
        sentences.append(
            f"{other:,} of {number_of(len(examples), 'transition')} were sampled at another "
            "temperature than 1; their logged logprobs are computed again, since servers differ in "
            "what they log."
        )
    if count := rebuilt(examples):
        sentences.append(
            f"{count:,} of {number_of(len(examples), 'transition')} have no logged token ids: "
            "their tokens were rebuilt from the messages by the chat template, and may not be the "
            "ones that were sampled. Then their importance weights are wrong. Record token ids "
            "with LIGHTNING_REQUEST_TOKEN_IDS=true."
        )
    if shared := shared_states(examples):
        begin = number_of(shared, "held-out rollout begins", "held-out rollouts begin")
        sentences.append(
            f"{begin} with the same messages as rollouts that are trained on. If they are the same "
            "task under different task ids, the gate overestimates the gain: give rollouts of one "
            "task the same id."
        )
    if later := later_turns(examples):
        go_on = number_of(later, "held-out rollout continues", "held-out rollouts continue")
        sentences.append(
            f"{go_on} a conversation that is trained on: the first prompt of each begins with the "
            "prompt and the answer of a training rollout. So the gate does not judge by unseen "
            "tasks, and may overestimate the gain: give all turns of a conversation one task id, "
            "or one rollout id."
        )
    if alike := tasks_alike(examples):
        sentences.append(
            f"{alike:,} held-out tasks begin with the same messages as another held-out task. If "
            "they are copies under different task ids, the gate counts one observation several "
            "times: give rollouts of one task the same id."
        )
    return sentences


def informative_groups(examples: Sequence[Example]) -> int:
    """Count the tasks of the train split whose completions differ in advantage."""
    advantages: dict[str, set[float]] = {}
    for e in examples:
        if e.split == TRAIN:
            advantages.setdefault(e.task, set()).add(e.advantage)
    return sum(len(values) > 1 for values in advantages.values())


def shared_states(examples: Sequence[Example]) -> int:
    """Count held-out rollouts whose first prompt is also the first prompt of a training rollout."""
    first = _first_calls(examples)
    trained = {e.prompt for e in first if e.split == TRAIN}
    return sum(e.split == HELD_OUT and e.prompt in trained for e in first)


def later_turns(examples: Sequence[Example]) -> int:
    """Count held-out rollouts whose first prompt begins with a training call and its answer."""
    trained = [e for e in examples if e.split == TRAIN]
    prompts = [e.prompt for e in _first_calls(examples) if e.split == HELD_OUT]
    longest = max((e.length for e in examples), default=0)
    powers = np.cumprod(np.full(longest, FACTOR, np.uint64), dtype=np.uint64)
    # By the hash of every prefix, so that the time is proportional to the number of tokens.
    by_hash = {int(_prefix_hashes(e.prompt + e.completion, powers)[-1]): e for e in trained}
    return sum(
        any(
            prompt[: e.length] == e.prompt + e.completion
            for e in map(by_hash.get, _prefix_hashes(prompt, powers).tolist())
            if e is not None
        )
        for prompt in prompts
    )


def _prefix_hashes(tokens: Sequence[int], powers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash every prefix of some tokens: sum of (token + 1) * factor ** place, modulo 2 ** 64."""
    numbers = np.array(tokens, dtype=np.uint64) + np.uint64(1)
    return np.cumsum(numbers * powers[: len(numbers)], dtype=np.uint64)


def tasks_alike(examples: Sequence[Example]) -> int:
    """Count held-out tasks that have their first prompt in common with another held-out task."""
    tasks: dict[tuple[int, ...], set[str]] = {}
    for e in _first_calls(examples):
        if e.split == HELD_OUT:
            tasks.setdefault(e.prompt, set()).add(e.task)
    return sum(len(alike) for alike in tasks.values() if len(alike) > 1)


def _first_calls(examples: Sequence[Example]) -> Collection[Example]:
    """Return the first call of each rollout; examples are in the order of their steps."""
    first: dict[str, Example] = {}
    for e in examples:
        first.setdefault(e.rollout_id, e)
    return first.values()


def sources(examples: Sequence[Example]) -> dict[str, int]:
    """Count the transitions with logged token ids, with rebuilt ones, and with logged logprobs."""
    return {
        "logged_tokens": len(examples) - rebuilt(examples),
        "rebuilt_tokens": rebuilt(examples),
        "logged_logprobs": sum(e.logprobs is not None for e in examples),
    }


def rebuilt(examples: Sequence[Example]) -> int:
    """Count the transitions whose token ids were rebuilt from messages by the chat template."""
    return sum(e.source != LOGGED for e in examples)
