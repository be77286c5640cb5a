"""Match each call of the model client with the span that some instrumentation makes for it.

Our wrapper is in the client. The span may start before the wrapper (Traceloop on chat completions,
frameworks), inside it (OpenInference), or after it with an earlier start time (Traceloop on
Responses). Each call is matched with exactly one span. Our data is written when that span ends,
before any exporter sees it.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from otel_lightning.instrumentation import arms, bundled_requests, changed_request, privacy, quiet
from otel_lightning.instrumentation.answers import ANSWERS, Answer
from otel_lightning.instrumentation.genai import attributes_of, is_llm, write_late

_KEY: Final = "_lightning_call"
"""Name of the attribute of a span object that holds its call."""

_BUNDLED: Final = "opentelemetry.instrumentation.openai."
_SAMPLING: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "repetition_penalty": "repetition_penalty",
    "seed": "seed",
    "n": "choice.count",
    "stop": "stop_sequences",
}
"""Request arguments that control sampling, and their attribute names after `gen_ai.request.`."""

_REASONS: Final = {"tool_calls": "tool_call", "function_call": "tool_call"}
"""OpenAI's finish reasons that the GenAI conventions name differently."""

_CONTENT: Final = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
)
"""Attributes with content. The instrumentation's own switch does not know OpenTelemetry's."""

_LARGEST_INTEGER: Final = 1 << 63


class EndedSpan(NonRecordingSpan):
    """The ids of a span that has ended, without its attributes."""

    def __init__(self, span: Any) -> None:
        super().__init__(span.get_span_context())
        self.parent: SpanContext | None = getattr(span, "parent", None)


@dataclass(slots=True, eq=False)
class ModelCall:
    """A call of the client from its request to the end of its answer."""

    endpoint: str
    request: Mapping[str, Any]
    started_ns: int
    context: Context
    answer: Answer
    resource: Any = None
    """The object of the client that was called, such as `client.responses`."""
    ended_ns: int = 0
    span: Span | None = None
    facts: dict[str, AttributeValue] = field(default_factory=dict)
    choices: list[dict[str, AttributeValue]] = field(default_factory=list)
    changed: tuple[str, ...] = ()
    """Names of the arguments that an arm changed."""
    error: tuple[str, str] | None = None
    """Type and text of the error that ended a stream. Not the object, which keeps its frames."""
    is_own_span: bool = False
    """True if the span is one that we made with the bundled instrumentation's functions."""

    def release(self, span: Any) -> None:
        """Drop the request, the answer and the span after its end.

        A tool request keeps its call until the tool's result arrives, which may be never.
        """
        self.request, self.context, self.resource = {}, Context(), None
        self.answer.release()
        self.span = EndedSpan(span)

    def adopt(self, span: Span) -> None:
        """Match a span with this call: the call's data is written to the span when it ends."""
        self.span = span
        # On the span itself and not in a table: it disappears together with the span.
        vars(span)[_KEY] = self
        _unended_spans.add(span)
        for choice in self.choices:
            arms.write_choice(choice, span)

    def write(self, span: Span) -> None:
        """Write the call's data to its span, at the end of the span."""
        present = attributes_of(span)
        bundled = is_bundled(span)
        added: dict[str, Any] = dict(self.facts)
        values = [*self._sampling(), *self.answer.usage_attributes()]
        if self.endpoint == "responses":
            values += self._ids_of_stored_history()
        if self.answer.response_id:
            values.append(("gen_ai.response.id", self.answer.response_id))
        if bundled and self.endpoint != "responses":
            values += self._model_and_reason()
        # What the instrumentation recorded is kept; gaps are filled.
        added |= {name: value for name, value in values if not present.get(name)}
        if self.endpoint == "responses" and (bundled or self.is_own_span):
            added |= self._unrecorded_request({**present, **added})
        if self.changed:
            added |= dict(self._sampling()) | changed_request.as_sent(
                self.request, self.changed, present
            )
        if privacy.content_allowed():
            added |= dict(self.answer.token_attributes())
            if self.endpoint == "responses" or bundled:
                added |= self._unrecorded_answer(present)
            if self.endpoint == "responses":
                added |= self._with_call_ids({**present, **added})
        # The bundled functions fill these attributes even with content switched off by
        # OpenTelemetry's switch. Readers expect a list, hence the empty one.
        elif self.is_own_span:
            added |= {name: "[]" for name in _CONTENT if name in present}
        if added:
            write_late(span, added)
        if self.error is not None:
            _write_error(span, *self.error)

    def _sampling(self) -> Iterator[tuple[str, AttributeValue]]:
        body = self.request.get("extra_body")
        for arguments in (self.request, body if isinstance(body, dict) else {}):
            for name, argument in arguments.items():
                attribute = _SAMPLING.get(name)
                if attribute and (value := _exportable(argument)) is not None:
                    as_list = attribute == "stop_sequences" and isinstance(value, str)
                    yield f"gen_ai.request.{attribute}", (value,) if as_list else value

    def _model_and_reason(self) -> Iterator[tuple[str, AttributeValue]]:
        """Yield the answer's model and finish reason, which Traceloop misses in a raw stream."""
        if self.answer.model:
            yield "gen_ai.response.model", self.answer.model
        if self.answer.finish_reason:
            reason = _REASONS.get(self.answer.finish_reason, self.answer.finish_reason)
            yield "gen_ai.response.finish_reasons", (reason,)

    def _ids_of_stored_history(self) -> Iterator[tuple[str, AttributeValue]]:
        """Yield the ids of the history that the provider stores."""
        previous = self.request.get("previous_response_id")
        if isinstance(previous, str):
            yield "gen_ai.request.previous_response_id", previous
        conversation = self.request.get("conversation")
        name = conversation.get("id") if isinstance(conversation, dict) else conversation
        if isinstance(name, str):
            yield "gen_ai.conversation.id", name

    def _unrecorded_request(self, present: Mapping[str, Any]) -> dict[str, AttributeValue]:
        """Return what Traceloop records of a request only when the answer has ended well."""
        if "gen_ai.operation.name" in present:
            return {}
        hidden = () if privacy.content_allowed() else _CONTENT
        recorded = bundled_requests.attributes(self.request)
        return {n: value for n, value in recorded.items() if n not in present and n not in hidden}

    def _unrecorded_answer(self, present: Mapping[str, Any]) -> dict[str, str]:
        """Return the output messages if the instrumentation did not record them.

        Traceloop records those of Responses only when a stream is read to its end; an agent may
        stop reading at the event that has the whole answer. It records none of a raw stream.
        """
        if present.get("gen_ai.output.messages", "[]") != "[]":
            return {}
        text = "".join(self.answer.text)
        parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
        for request in self.answer.requests.values():
            call = {"type": "tool_call", "id": request.call_id, "name": request.name}
            parts.append({**call, "arguments": _parsed(request.arguments)})
        if not parts:
            return {}
        reason = "tool_call" if self.answer.requests else self.answer.finish_reason or "stop"
        message = {"role": "assistant", "parts": parts, "finish_reason": reason}
        return {"gen_ai.output.messages": json.dumps([message])}

    def _with_call_ids(self, present: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the messages with the call ids of tool calls instead of their item ids.

        Traceloop records the item id (`fc_…`) of a function call. Tool results refer to the call
        id (`call_…`), so with item ids nobody could match them.
        """
        ids = {
            str(item_id): request.call_id
            for item_id, request in self.answer.requests.items()
            if request.call_id != item_id
        }
        items = self.request.get("input")
        for item in items if isinstance(items, list) else ():
            own, call_id = field_of(item, "id"), field_of(item, "call_id")
            if own and call_id and own != call_id:
                ids[own] = call_id
        for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
            text = present.get(name)
            if ids and isinstance(text, str):
                # Quotation marks inside contents are escaped in JSON, so only real ids match.
                changed = text
                for own, call_id in ids.items():
                    changed = changed.replace(f'"id": {json.dumps(own)}', f'"id": "{call_id}"')
                if changed is not text:
                    yield name, changed


_current: ContextVar[ModelCall | None] = ContextVar("lightning_model_call", default=None)
"""The call that still needs its span."""

_last_llm_span: ContextVar[Span | None] = ContextVar("lightning_llm_span", default=None)
"""The LLM span that started last without a call: the next call may be the one that it records."""

_unended_spans: WeakSet[Any] = WeakSet()
"""Spans of calls that have not ended, such as those of streams that the agent still reads."""


def begin(endpoint: str, request: Mapping[str, Any]) -> ModelCall | None:
    """Record the start of a call of the model.

    Args:
        endpoint: `chat`, `completions` or `responses`.
        request: Arguments of the client's method.

    Returns:
        The call; None if it is nested in another call of the client.
    """
    around = _current.get()
    # A method of the client may call another one: one call of the agent is one record.
    if around is not None and not around.ended_ns:
        return None
    call = ModelCall(
        endpoint, request, time.time_ns(), otel_context.get_current(), ANSWERS[endpoint]()
    )
    for span in (trace.get_current_span(), _last_llm_span.get()):
        if span is not None and span.is_recording() and _KEY not in vars(span):
            present = attributes_of(span)
            if is_llm(present):
                call.adopt(span)
                break
    _current.set(call)
    return call


def end(call: ModelCall) -> None:
    """Record that the client's method has returned or failed."""
    call.ended_ns = time.time_ns()
    if call.span is not None:
        # With its span known, the call needs no further match. Without one, the span may still
        # come.
        _current.set(None)


def is_bundled(span: Any) -> bool:
    """Return whether a span was made by the bundled OpenAI instrumentation."""
    scope = getattr(span, "instrumentation_scope", None)
    return scope is not None and scope.name.startswith(_BUNDLED)


def note_start(span: Any) -> None:
    """Match a span that starts with the current call, if that has no span yet.

    Args:
        span: A span of the SDK.
    """
    call = _current.get()
    llm = is_llm(attributes_of(span))
    if call is not None and call.span is None:
        # After the call ended, only a span with a start time before the call belongs to it.
        # During the call: the first LLM span. After it: an instrumentation that makes its span late
        # gives it the start time of the call. That span may have no attributes yet.
        if llm if not call.ended_ns else span.start_time <= call.started_ns:
            call.adopt(span)
            if call.ended_ns:
                _current.set(None)
    elif llm:
        _last_llm_span.set(span)


def note_ending(span: Any) -> ModelCall | None:
    """Write the call's data to its span, just before the span is exported.

    Returns:
        The call of the span; None if the span belongs to no call.
    """
    call: ModelCall | None = vars(span).pop(_KEY, None)
    if call is not None:
        _unended_spans.discard(span)
        try:
            call.write(span)
        finally:
            call.release(span)
    return call


def _leave_to_parent() -> None:
    """In a forked child, export no span of a call that the parent still reads."""
    for span in list(_unended_spans):
        span._span_processor = SpanProcessor()  # noqa: SLF001 - it exports nothing
    _unended_spans.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def end_open() -> None:
    """End the spans of open calls at the end of the process, with what was received so far."""
    for span in list(_unended_spans):
        if span.is_recording():
            quiet.drop_late_warnings()
            type(span).end(span)  # not `span.end`, which a raw stream replaces


def field_of(item: Any, name: str) -> Any:
    """Return a field of a message or item, which agents write as a dictionary or as an object."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _write_error(span: Any, kind: str, text: str) -> None:
    """Mark a span as failed that its instrumentation ended as if the stream had been complete."""
    if span.status.status_code is StatusCode.ERROR:
        return
    write_late(span, {"error.type": kind})
    # Not `set_status`, which cannot replace the status OK.
    ended = Status(StatusCode.ERROR, f"{kind}: {text or 'the stream ended early'}")
    span._status = ended  # noqa: SLF001


def _exportable(value: Any) -> AttributeValue | None:
    """Return a request argument as an attribute value; None if OTLP cannot carry it."""
    # OTLP has integers of 64 bits; Python's may be larger. True is an int too.
    if isinstance(value, int):
        return value if -_LARGEST_INTEGER <= value < _LARGEST_INTEGER else None
    if isinstance(value, float | str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return tuple(value)
    return None


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
