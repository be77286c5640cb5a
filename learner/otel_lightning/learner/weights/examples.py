"""Transitions as tokens: the prompt that the model read, and the completion that it wrote.

Logged token ids are used where the trace has them. Elsewhere the messages go through the model's
chat template. A row is refused if the rendered prompt is not a prefix of the rendered
conversation: then the model would be trained on text that it never sees.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jinja2
import polars as pl

from otel_lightning.learner.chat import (
    CUT_OFF,
    INCOMPLETE,
    chat_messages,
    chat_tools,
    number_calls,
    uncarried_parts,
    uncarried_tools,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LOGGED, TEMPLATED = "logged", "template"
"""Where the tokens of an example come from."""

MASKED = -100
"""Label of a token that the model reads and does not learn: `ignore_index` of torch's
cross-entropy, which transformers and TRL use as well."""

# Reasons to leave transitions out. They complete the sentence "N transitions …".
IMAGES = "with images or other parts that tokens cannot carry"
REFUSED = "that the chat template refuses"
NO_PREFIX = "whose prompt is no prefix of the conversation in the chat template"
NO_CONTENT = "without messages or token ids"
CUT = "whose messages are incomplete, and without token ids"
TOO_LONG = "longer than --max-length"
NO_LOGPROB = "greedy, or of another temperature than most"


@dataclass(frozen=True, slots=True)
class Example:
    """One transition as tokens."""

    rollout_id: str
    task: str
    split: str
    state_hash: str | None
    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    """Logprob of each token of the completion under the behavior policy; None if not logged."""
    temperature: float
    reward: float
    outcome: float
    """Reward of the whole rollout: the sum over its calls, also those of other agents and those
    that were left out."""
    advantage: float
    model: str | None = None
    """Name of the model that wrote the completion, as recorded."""
    source: str = LOGGED
    later: int = 0
    """Number of calls of the rollout after this one."""
    began: int | None = None
    """Time at which the call began, in nanoseconds; None if it is not known."""

    @property
    def logprob(self) -> float | None:
        """Logprob of the completion under the behavior policy; None if not logged."""
        return None if self.logprobs is None else sum(self.logprobs)

    @property
    def length(self) -> int:
        """Number of tokens, of prompt and completion."""
        return len(self.prompt) + len(self.completion)

    def as_labelled(self) -> dict[str, list[int]]:
        """Return the tokens and their labels, of equal length: only the completion is learned."""
        return {
            "input_ids": [*self.prompt, *self.completion],
            "labels": [MASKED] * len(self.prompt) + list(self.completion),
        }


@dataclass(slots=True)
class Tokenized:
    """Transitions in tokens, and those that were left out."""

    examples: list[Example] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Rollout of each transition that was left out."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why transitions were left out, and how many."""

    def leave_out(self, rollout_id: str, reason: str) -> None:
        """Count a transition that cannot be learned from."""
        self.skipped.append(rollout_id)
        self.reasons[reason] += 1


def tokenize(
    rows: pl.DataFrame, tokenizer: "PreTrainedTokenizerBase", max_length: int | None = None
) -> Tokenized:
    """Turn transitions into token ids.

    A transition longer than `max_length` is left out whole: a cut prompt is a state that the model
    was never in, and a cut completion teaches it to stop early.

    Args:
        rows: The columns of `sql/completions.sql`, in the order of the steps.
        tokenizer: Tokenizer of the model to be fine-tuned, with its chat template.
        max_length: Longest prompt and completion together, in tokens; None for any length.
    """
    tokenized = Tokenized()
    later = Counter(rows["rollout_id"])
    for row in rows.iter_rows(named=True):
        later[row["rollout_id"]] -= 1
        read = _read(row, tokenizer)
        if isinstance(read, str):
            tokenized.leave_out(row["rollout_id"], read)
        elif max_length is not None and read.length > max_length:
            tokenized.leave_out(row["rollout_id"], TOO_LONG)
        else:
            tokenized.examples.append(replace(read, later=later[row["rollout_id"]]))
    return tokenized


def _read(row: Mapping[str, Any], tokenizer: "PreTrainedTokenizerBase") -> Example | str:
    """Read one transition, or return the reason why it cannot be learned from."""
    tokens = logged_tokens(row)
    # The store has looked for images already. It has not looked at arguments and tools, which
    # matter where a chat template has to write them.
    is_checked = tokens is not None and row["is_carried"]
    if not is_checked and has_uncarried_parts(row, are_tokens_logged=tokens is not None):
        return IMAGES
    if tokens:
        return _example(row, *tokens, LOGGED)
    if row["content"] in INCOMPLETE:
        return CUT
    if tokenizer.chat_template is None or not row["messages"] or not row["completion"]:
        return NO_CONTENT
    try:
        templated = templated_tokens(row, tokenizer)
    except (jinja2.TemplateError, TypeError):
        return REFUSED
    return _example(row, *templated, TEMPLATED) if templated else NO_PREFIX


def has_uncarried_parts(row: Mapping[str, Any], *, are_tokens_logged: bool) -> bool:
    """Return whether a transition has images or other parts that tokens cannot carry.

    Tool arguments that are not JSON, and tools that are not functions, are in logged tokens, but a
    chat template cannot write them.
    """
    texts = [row[column] for column in ("messages", "completion") if row[column]]
    if any(uncarried_parts(json.loads(t), text_arguments=are_tokens_logged) for t in texts):
        return True
    # Logged tokens already hold the tools as the server wrote them.
    tools = [] if are_tokens_logged or not row["tools"] else json.loads(row["tools"])
    return bool(uncarried_tools(tools))


def logged_tokens(row: Mapping[str, Any]) -> tuple[list[int], list[int]] | None:
    """Read the token ids that the server sent; None if it sent none."""
    prompt, completion = row["prompt_token_ids"], row["completion_token_ids"]
    return (prompt, completion) if prompt and completion else None


def templated_tokens(
    row: Mapping[str, Any], tokenizer: "PreTrainedTokenizerBase"
) -> tuple[list[int], list[int]] | None:
    """Write the messages by the chat template; None if the prompt is not a prefix of the whole."""
    # A response may have several choices; the first is the one that the agent read.
    read, written = json.loads(row["messages"]), json.loads(row["completion"])[:1]
    number_calls([*read, *written])
    messages, answer = chat_messages(read), chat_messages(written)
    options: dict[str, Any] = {"return_dict": False}
    if row["tools"]:
        options["tools"] = chat_tools(json.loads(row["tools"]))
    template: Any = partial(tokenizer.apply_chat_template, **options)
    prompt: list[int] = template(messages, add_generation_prompt=True)
    is_cut_off = row["finish_reason"] in CUT_OFF
    whole = _unended(template, messages, answer) if is_cut_off else None
    if whole is None:
        whole = template(messages + answer)
    completion = _until_end(whole[len(prompt) :], tokenizer.eos_token_id)
    if is_cut_off and completion[-1:] == [tokenizer.eos_token_id]:
        completion.pop()
    # Some templates drop earlier reasoning when a further message follows. Then the prompt in the
    # conversation is not the prompt that was sent.
    return (prompt, completion) if whole[: len(prompt)] == prompt and completion else None


def _unended(
    template: Any, messages: list[dict[str, Any]], answer: list[dict[str, Any]]
) -> list[int] | None:
    """Write an answer that was cut off without the end of its turn, which the model did not write.

    Some templates, such as Gemma's, end a turn by another token than the tokenizer's end token.

    Returns:
        The tokens; None if the answer ends with a tool call, or the template changes its text.
    """
    if not answer or answer[-1].get("tool_calls"):
        return None
    field = "content" if answer[-1]["content"] else "reasoning_content"
    try:
        tokens: list[int] = template(messages + answer, continue_final_message=field)
    except ValueError:
        return None
    return tokens


def _until_end(tokens: list[int], end: Any) -> list[int]:
    """Cut the tokens that templates add after the end of the answer; no model writes them."""
    # The end token itself stays: the model must learn to stop.
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def _example(
    row: Mapping[str, Any], prompt: list[int], completion: list[int], source: str
) -> Example:
    logprobs = row["completion_logprobs"] if source == LOGGED else None
    # A list of another length cannot be matched with the tokens: it counts as not logged.
    logged = logprobs is not None and len(logprobs) == len(completion)
    return Example(
        rollout_id=row["rollout_id"],
        task=row["task"],
        split=row["split"],
        state_hash=row["state_hash"],
        prompt=tuple(prompt),
        completion=tuple(completion),
        logprobs=tuple(logprobs or ()) if logged else None,
        temperature=1.0 if row["temperature"] is None else row["temperature"],
        reward=row["reward"],
        outcome=row["outcome"],
        advantage=row["advantage"],
        model=row["model"],
        source=source,
        began=row["began"],
    )
