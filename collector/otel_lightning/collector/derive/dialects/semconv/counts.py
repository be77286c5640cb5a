"""Token counts of OpenTelemetry's GenAI conventions, under each known spelling of their keys."""

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.attributes.compiled_fields import Fields
from otel_lightning.collector.derive.messages import token_counts
from otel_lightning.collector.derive.rows import Attributes, LlmCall, Span

USAGE = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "input_tokens"),
    # The last ones are those of LangChain4j's listener for Micrometer.
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "output_tokens"),
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
        "gen_ai.usage.cache_write_input_tokens",  # Strands'
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
LEAVE_CACHED_OUT = {"@traceloop/instrumentation-anthropic", "openlit.instrumentation.anthropic"}
"""The scopes of packages that leave Anthropic's cached tokens out of the input tokens, and of the
total beside them."""
BEDROCK_WITHOUT_CACHED = {
    "opentelemetry.instrumentation.bedrock",
    "opentelemetry.instrumentation.botocore.bedrock-runtime",
    "opentelemetry.instrumentation.genai.bedrock",
}
"""The scopes of packages that leave Bedrock's cached tokens out of the input tokens, as Bedrock's
own counts do. If they write a total, it is Bedrock's, which has them, or a sum, which does not."""
LEAVE_REASONING_OUT = {"agent_framework", "openlit.instrumentation.google_ai_studio"}
"""The scopes of packages that leave Gemini's reasoning tokens out of the output tokens, as Gemini's
own counts do."""
OF_EACH_CHOICE = {"opentelemetry.instrumentation.langchain"}
"""The scopes of packages that write a message for each choice, and the sum of the token counts that
LangChain repeats with each of them."""
ESTIMATE = {"openlit.instrumentation.openai"}
"""The scopes of packages that estimate the token counts of a stream whose provider sent none. Next
to counts that the provider sent, they write the cached tokens, even if these are 0. Versions before
that write reasoning tokens, if there are any."""
STREAMED, SENT = "gen_ai.request.stream", (USAGE[2][0], "gen_ai.usage.reasoning_tokens")


def correct(call: LlmCall, span: Span) -> None:
    """Correct the token counts of packages that write something else under the usual keys."""
    scope_name = span.scope_name
    leaves_out = scope_name in LEAVE_CACHED_OUT
    if scope_name in BEDROCK_WITHOUT_CACHED:
        # The total of Bedrock may have added the cached tokens already.
        leaves_out = call.input_tokens == reading.integer(span.attributes, *USAGE[0])
    if leaves_out and call.input_tokens:
        cached = (call.cached_input_tokens, call.cache_creation_input_tokens)
        call.input_tokens += sum(filter(None, cached))
    if scope_name in LEAVE_REASONING_OUT and call.output_tokens and span_rows.is_gemini(call):
        call.output_tokens += call.reasoning_tokens or 0
    if scope_name in OF_EACH_CHOICE and (choices := len(call.output_messages or ())) > 1:
        for name in token_counts.Usage._fields:
            total = getattr(call, name)
            setattr(call, name, None if total is None or total % choices else total // choices)
    is_streamed = span.attributes.get(STREAMED) == "true"
    # OpenLIT's log record has the cached tokens always.
    if scope_name in ESTIMATE and is_streamed and span.attributes.keys().isdisjoint(SENT):
        call.input_tokens = call.output_tokens = call.cached_input_tokens = None


def usage(attributes: Attributes) -> token_counts.Usage:
    """Return the token counts under the conventions' keys, including early spellings."""
    return token_counts.Usage(*(reading.integer(attributes, *keys) for keys in USAGE))
