"""promptfoo: the conventions' keys, with the prompt and the answer as it shows them to its user.

The prompt is a text, or messages as JSON. The answer is one text: tool calls are JSON in it, and
reasoning comes first. Both end after 4,096 characters, and what looks like a secret is replaced.
"""

from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.messages import messages
from otel_lightning.collector.derive.rows import LlmCall, Message, Span
from otel_lightning.collector.derive.text import json_text

NAME = "promptfoo"
RANK = 65
PROVIDER, OPERATION = "promptfoo.provider.id", "gen_ai.operation.name"
SENT, ANSWERED = "promptfoo.request.body", "promptfoo.response.body"
ENDED, HIDDEN = "... [truncated]", "<REDACTED"
"""Replaces the rest of a text, and a secret."""
REASONED = {"Thinking: ": "\n\n", "Reasoning: ": "\n"}
"""Start of an answer with reasoning, and the separator between the reasoning and the text."""
SIGNED = "\nSignature: "
"""Stands before the signature of Anthropic's reasoning."""
YAML = "- role:"
"""Start of a prompt whose messages are YAML."""
CALLS = ('{"type":"tool_use"', '{"type":"function_call"')
"""Start of a line that is a tool call."""


def matches(span: Span) -> bool:
    """Return whether the span is a call of one of promptfoo's providers."""
    attributes = span.attributes
    return PROVIDER in attributes and attributes.get(OPERATION) in semconv.OPERATIONS


def read(span: Span) -> LlmCall:
    """Read a call of a provider."""
    call = semconv.read_call(span, NAME, semconv.OPERATIONS[span.attributes[OPERATION]])
    sent, answered = span.attributes.get(SENT, ""), span.attributes.get(ANSWERED, "")
    call.input_messages = _prompt(sent) or None
    call.output_messages = (
        messages.one_turn([{"role": "assistant", "content": _blocks(answered)}])
        if answered
        else None
    )
    # Nothing tells whether the reasoning has the text between it and the answer, too.
    is_doubtful = answered.startswith(tuple(REASONED)) or sent.startswith(YAML)
    cut = any(mark in text for text in (sent, answered) for mark in (ENDED, HIDDEN))
    return span_rows.completed(call, cut=cut or is_doubtful)


def _prompt(text: str) -> list[Message]:
    value = json_text.parse(text)
    if isinstance(value, list) and all(isinstance(one, dict) and "role" in one for one in value):
        return messages.conversation(value)
    is_unknown = not text or json_text.is_cut(text) or text.startswith(YAML)
    return [] if is_unknown else messages.conversation([{"role": "user", "content": text}])


def _blocks(text: str) -> list[Any]:
    """Return the reasoning, the text and the tool calls of an answer as the blocks of a content."""
    for begin, between in REASONED.items():
        if text.startswith(begin):
            thought, _, rest = text.removeprefix(begin).partition(between)
            block = {"type": "reasoning", "content": thought.partition(SIGNED)[0]}
            return [block, *_blocks(rest)]
    value = json_text.parse(text)
    if isinstance(value, list) and value and all(map(_is_call, value)):
        return value
    return list(_text_and_calls(text.split("\n")))


def _text_and_calls(lines: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a text whose lines may be tool calls."""
    words: list[str] = []
    for line in lines:
        call = json_text.parse(line) if line.startswith(CALLS) else None
        if isinstance(call, dict):
            yield from _text(words)
            words = []
            yield {**call, "type": "tool_use"}
        else:
            words.append(line)
    yield from _text(words)


def _text(words: list[str]) -> Iterator[dict[str, Any]]:
    if text := "\n".join(words).strip("\n"):
        yield {"type": "text", "text": text}


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("function"), dict)
