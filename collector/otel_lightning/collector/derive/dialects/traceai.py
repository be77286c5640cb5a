"""Future AGI's traceAI: OpenInference under other names.

Messages and tools are flattened as OpenInference's are, below keys of OpenTelemetry's conventions
(`gen_ai.input.messages.N.message.…`).
"""

from otel_lightning.collector.derive.dialects import openinference
from otel_lightning.collector.derive.dialects.openinference.calls import INPUT, OUTPUT
from otel_lightning.collector.derive.rows import LlmCall, Row, Span
from otel_lightning.collector.derive.text import json_text

NAME = "traceai"
RANK = 11
SCOPE = "traceai_"
"""Prefix of the names of its packages, and so of their scopes."""
KIND = "gen_ai.span.kind"
NAMES = {
    KIND: openinference.KIND,
    "gen_ai.provider.name": "llm.provider",
    "gen_ai.request.parameters": "llm.invocation_parameters",
    "gen_ai.request.model": "llm.model_name",
    "gen_ai.usage.input_tokens": "llm.token_count.prompt",
    "gen_ai.usage.output_tokens": "llm.token_count.completion",
    "gen_ai.usage.input_tokens.cache_read": "llm.token_count.prompt_details.cache_read",
    "gen_ai.usage.input_tokens.cache_write": "llm.token_count.prompt_details.cache_write",
    "gen_ai.usage.output_tokens.reasoning": "llm.token_count.completion_details.reasoning",
}
"""Its keys, with OpenInference's."""
ANSWER = "llm.output_messages.0.message"
PREFIXES = {
    "gen_ai.input.messages.": "llm.input_messages.",
    "gen_ai.output.messages.": "llm.output_messages.",
    "gen_ai.tool.definitions.": "llm.tools.",
}


def matches(span: Span) -> bool:
    """Return whether traceAI wrote the span."""
    return KIND in span.attributes and (span.scope_name or "").startswith(SCOPE)


def read(span: Span) -> Row | None:
    """Read a span of traceAI's as OpenInference's."""
    attributes = {_name(key): value for key, value in span.attributes.items()}
    attributes[openinference.KIND] = attributes[openinference.KIND].upper()
    is_call = attributes[openinference.KIND] in openinference.OPERATIONS
    is_text = is_call and _settle(attributes)
    row = openinference.read(span._replace(attributes=attributes))
    if isinstance(row, LlmCall):
        row.dialect = NAME
        if is_text:
            row.content = "truncated"  # tool calls are missing, if there were any
    return row


def _settle(attributes: dict[str, str]) -> bool:
    """Keep the payloads of a call that are a provider's, in JSON or as Python's `repr`.

    Others show a part of the messages. Of a streamed answer nothing else is there: then the text
    becomes the answer.

    Returns:
        Whether it did.
    """
    shown = {key: attributes.pop(key, "") for key in (INPUT, OUTPUT)}
    for key, text in shown.items():
        payload = json_text.parse_literal(text)
        if isinstance(payload, dict):
            attributes[key] = json_text.dumps(payload).decode()
    is_text = (
        shown[OUTPUT] not in {"", "null"} and not {OUTPUT, f"{ANSWER}.role"} & attributes.keys()
    )
    if is_text:
        attributes |= {f"{ANSWER}.role": "assistant", f"{ANSWER}.content": shown[OUTPUT]}
    return is_text


def _name(key: str) -> str:
    """Return OpenInference's key for one of traceAI's."""
    for prefix, other in PREFIXES.items():
        if key.startswith(prefix):
            return other + key.removeprefix(prefix)
    return NAMES.get(key, key)
