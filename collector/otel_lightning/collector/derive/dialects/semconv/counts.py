"""Token counts of OpenTelemetry's GenAI conventions, under each known spelling of their keys."""

from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.attributes.compiled_fields import Fields
from otel_lightning.collector.derive.messages import token_counts
from otel_lightning.collector.derive.rows import Attributes

USAGE = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.input_tokens.cached",
        "gen_ai.usage.cached_prompt_text_tokens",  # xAI's
    ),
    (
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "gen_ai.usage.reasoning_output_tokens",
        "gen_ai.usage.details.reasoning_tokens",
        "gen_ai.usage.thinking_tokens",
        "gen_ai.usage.output_tokens.reasoning",
        "thoughts_token_count",  # Qwen Code's
    ),
    (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.details.cache_write_tokens",
        "gen_ai.usage.input_tokens.cache_write",
    ),
)
"""The spellings of each token count, in the order of `token_counts.Usage`."""
COUNTS = Fields(
    **{
        name: reading.one_integer(*keys)
        for name, keys in zip(token_counts.Usage._fields, USAGE, strict=True)
    }
)
TOTALS = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens")
RAW_USAGE = ("gen_ai.usage.raw", "mirascope.response.usage")
"""Attributes with the provider's own usage object."""


def usage(attributes: Attributes) -> token_counts.Usage:
    """Return the token counts under the conventions' keys, including early spellings."""
    return token_counts.Usage(*(reading.integer(attributes, *keys) for keys in USAGE))
