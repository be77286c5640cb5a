"""Token counts in the usage object of any provider."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.attributes.shapes import Plans
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.text import json_text

_GEMINI_INPUT = ("prompt_token_count", "promptTokenCount")
_OLLAMA_INPUT, _OLLAMA_OUTPUT = "prompt_eval_count", "eval_count"
_INPUT = (
    "prompt_tokens",
    "input_tokens",
    *_GEMINI_INPUT,
    "inputTokens",
    "promptTokens",
    _OLLAMA_INPUT,
)
_GEMINI_OUTPUT = ("candidates_token_count", "candidatesTokenCount")
_PLAIN_OUTPUT = ("completion_tokens", "output_tokens", "outputTokens", "completionTokens")
_OUTPUT = (*_PLAIN_OUTPUT, *_GEMINI_OUTPUT, _OLLAMA_OUTPUT)
_THOUGHTS = ("thoughts_token_count", "thoughtsTokenCount", "thoughtsTokens")
_REASONED = ("reasoning_tokens", "reasoningTokens", "reasoning", *_THOUGHTS)
_READ = ("cache_read_input_tokens", "cacheReadInputTokens")
_WRITTEN = ("cache_creation_input_tokens", "cacheCreationInputTokens", "cacheWriteInputTokens")
_CREATED = (*_WRITTEN, "cache_creation", "cache_creation_tokens", "cache_write_tokens")
_GEMINI_CACHED = ("cached_content_token_count", "cachedContentTokenCount", "cachedContentTokens")
_PLAIN_CACHED = ("cached_tokens", "cache_read", "cache_read_tokens", "cachedPromptTokens")
_CACHED = (*_PLAIN_CACHED, *_READ, *_GEMINI_CACHED)
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details", "output_token_details")
_TOTAL = ("total_tokens", "totalTokens", "total_token_count")
_PLAIN_COUNTS = {*_INPUT, *_OUTPUT, *_TOTAL}
"""Keys of a usage object without cached tokens or reasoning."""


class Usage(NamedTuple):
    """Token counts of one call. Input tokens include cached ones, output tokens include reasoning.

    None means unknown.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Counts(NamedTuple):
    """Under which keys of a usage object the counts are."""

    inputs: list[str]
    outputs: list[str]
    is_plain: bool
    """Whether it has neither cached tokens nor reasoning."""


def _counts(keys: tuple[str, ...]) -> _Counts:
    return _Counts(
        inputs=[key for key in _INPUT if key in keys],
        outputs=[key for key in _OUTPUT if key in keys],
        is_plain=_PLAIN_COUNTS.issuperset(keys),
    )


_COUNTS = Plans(_counts)


def usage(counts: Any) -> Usage:
    """Return the token counts of any provider's usage object.

    Anthropic and Bedrock exclude cached tokens from the input tokens, and Gemini and xAI exclude
    reasoning from the output tokens. The conventions include both, so they are added here.
    """
    if not isinstance(counts, dict):
        return Usage()
    # Cohere's are beside the units that it bills, and its cached tokens are beside both.
    if own := json_text.object_under(counts, "tokens"):
        counts = {**own, **{key: counts[key] for key in _PLAIN_CACHED if key in counts}}
    plan = _COUNTS[tuple(counts)]
    given, answered = _count(counts, plan.inputs), _count(counts, plan.outputs)
    if plan.is_plain:
        return Usage(given, answered)
    # Providers without such details have the counts in the usage object itself.
    inputs = json_text.object_under(counts, *_INPUT_DETAILS) or counts
    outputs = json_text.object_under(counts, *_OUTPUT_DETAILS) or counts
    if given is not None:
        given += (_count(counts, _READ) or 0) + (_count(counts, _WRITTEN) or 0)
    if answered is not None:
        answered += _count(counts, _THOUGHTS) or 0
    reasoned, total = _count(outputs, _REASONED), _count(counts, _TOTAL)
    if reasoned and given is not None and answered is not None:
        # xAI's counts have the form of OpenAI's, and only their sum tells them apart.
        answered += reasoned if total == given + answered + reasoned else 0
    return Usage(given, answered, _count(inputs, _CACHED), reasoned, _count(inputs, _CREATED))


def fill_usage(call: LlmCall, counts: Usage) -> None:
    """Set the token counts that are not known yet."""
    if call.input_tokens is None:
        call.input_tokens = counts.input_tokens
    if call.output_tokens is None:
        call.output_tokens = counts.output_tokens
    if call.cached_input_tokens is None:
        call.cached_input_tokens = counts.cached_input_tokens
    if call.reasoning_tokens is None:
        call.reasoning_tokens = counts.reasoning_tokens
    if call.cache_creation_input_tokens is None:
        call.cache_creation_input_tokens = counts.cache_creation_input_tokens


def _count(counts: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    """Return the first of these counts that is a whole number."""
    for key in keys:
        value = counts.get(key)
        if value is not None and (count := reading.count(value)) is not None:
            return count
    return None
