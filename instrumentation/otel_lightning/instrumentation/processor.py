"""Our span processor, which adds data to each span at its start and at its end."""

import re
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from otel_lightning.instrumentation import arms, attributes, error_texts, model_call, privacy
from otel_lightning.instrumentation.genai import (
    attributes_of,
    drop_late,
    is_genai,
    is_tool,
    write_late,
)
from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.identity import current_ids
from otel_lightning.instrumentation.tools import InferredTools

_HARMLESS: Final = frozenset({bool, int, float})
"""Types of values that need no redaction."""

_HEADERS: Final = "gen_ai.headers"
"""HTTP headers that the agent adds to a model call: the bundled instrumentation records them."""

_BASE_URL: Final = "gen_ai.openai.api_base"
_PASSWORD: Final = re.compile(r"(?<=://)[^/?#]*@")
_IDS: Final = (attributes.PROMPT_TOKEN_IDS, attributes.COMPLETION_TOKEN_IDS)


class LightningSpanProcessor(SpanProcessor):
    """Add the rollout, the task and the arms in force to spans. It exports nothing.

    OpenTelemetry cannot remove a processor, so `shutdown` makes it do nothing.

    Args:
        inferred_tools: Receives the tool spans of frameworks.
    """

    def __init__(self, inferred_tools: InferredTools) -> None:
        self._running = True
        self._inferred_tools = inferred_tools
        self._redact = privacy.safe_redactor()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Add ids and arms to a span that has just started."""
        if self._running:
            _stamp(span, parent_context)

    def _on_ending(self, span: Span) -> None:
        """Complete a span that has ended; the SDK calls this before any exporter sees the span."""
        if self._running:
            _complete(span, self._inferred_tools, self._redact)

    def on_end(self, span: ReadableSpan) -> None:
        """Do nothing: an exporter may have the span already."""

    def shutdown(self) -> None:
        """Stop changing spans."""
        self._running = False


@never_raise
def _stamp(span: Span, parent_context: Context | None) -> None:
    present = attributes_of(span)
    ids = current_ids(parent_context)
    # What the agent set itself is kept.
    if new := {name: ids[name] for name in ids if name not in present}:
        write_late(span, new)
    if arms.any_in_force() and _needs_arms(span):
        arms.stamp(span)
    model_call.note_start(span)


def _needs_arms(span: Span) -> bool:
    # Some instrumentations set their attributes after the start, so their spans are not recognised
    # here. Then this process's first span of the trace has the arms for the spans below it.
    begins_here = span.parent is None or span.parent.is_remote
    return begins_here or is_genai(attributes_of(span))


def _complete(
    span: Span, inferred_tools: InferredTools, redact: Callable[[Any], Any] | None
) -> None:
    # Each step has a guard of its own: an error in one must not prevent the redaction.
    _note_ending(span)
    _withhold_credentials(span)
    _withhold_error_texts(span)
    _note_tool(span, inferred_tools)
    if redact is not None:
        _redact(span, redact)


_note_ending = never_raise(model_call.note_ending)
_withhold_error_texts = never_raise(error_texts.withhold)


@never_raise
def _note_tool(span: Span, inferred_tools: InferredTools) -> None:
    if is_tool(attributes_of(span)) and not inferred_tools.is_own(span):
        inferred_tools.note_span(span)


@never_raise
def _withhold_credentials(span: Span) -> None:
    """Remove credentials of the model server: values of headers, and the password in its URL."""
    present = attributes_of(span)
    if _HEADERS in present:
        write_late(span, {_HEADERS: privacy.WITHHELD_HEADERS})
    url = present.get(_BASE_URL)
    if isinstance(url, str) and "@" in url:
        write_late(span, {_BASE_URL: _PASSWORD.sub("", url)})


@never_raise
def _redact(span: Any, redact: Callable[[Any], Any]) -> None:
    for holder in (span, *span.events, *span.links):
        # A copy: another thread of the agent may still set an attribute.
        present = dict(attributes_of(holder))
        changed = {
            name: redacted
            for name, value in present.items()
            if type(value) not in _HARMLESS
            and (redacted := redact(value)) is not value
            and redacted != value
        }
        if changed:
            write_late(holder, changed)
            # The ids of the tokens spell the text that was redacted.
            drop_late(holder, [name for name in present if name.startswith(_IDS)])
    for event in span.events:
        event._name = redact(event.name)  # noqa: SLF001
    if span.status.description:
        span._status._description = redact(span.status.description)  # noqa: SLF001
    # `update_name` does nothing on a span that has ended.
    span._name = redact(span.name)  # noqa: SLF001
