"""Match each call of the model client with the span that some instrumentation makes for it.

Our wrapper is in the client. The span may start before the wrapper (Traceloop on chat completions,
frameworks), inside it (OpenInference), or after it with an earlier start time (Traceloop on
Responses). Each call is matched with exactly one span. Our data is written when that span ends,
before any exporter sees it.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from otel_lightning.instrumentation import arms, privacy, sent
from otel_lightning.instrumentation.answers import ANSWERS, Answer
from otel_lightning.instrumentation.genai import attributes_of, is_llm, write_late
from otel_lightning.instrumentation.guard import never_raise

_KEY: Final = "_lightning_call"
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


@dataclass(slots=True, eq=False)
class ModelCall:
    """A call of the client from its request to the end of its answer."""

    endpoint: str
    request: Mapping[str, Any]
    started_ns: int
    context: Context
    answer: Answer
    ended_ns: int = 0
    span: Span | None = None
    facts: dict[str, AttributeValue] = field(default_factory=dict)
    choices: list[dict[str, AttributeValue]] = field(default_factory=list)
    changed: tuple[str, ...] = ()
    """Names of the arguments that an arm changed."""

    def adopt(self, span: Span) -> None:
        """Match a span with this call: the call's data is written to the span when it ends."""
        self.span = span
        vars(span)[_KEY] = self
        for choice in self.choices:
            arms.write_choice(choice, span)

    def write(self, span: Span) -> None:
        """Write the call's data to its span, at the end of the span."""
        present = attributes_of(span)
        late: dict[str, Any] = dict(self.facts)
        found = [*self._sampling(), *self.answer.usage_attributes()]
        if self.endpoint == "responses":
            found += self._held()
        if self.answer.response_id:
            found.append(("gen_ai.response.id", self.answer.response_id))
        late |= {name: value for name, value in found if not present.get(name)}
        if self.changed:
            late |= dict(self._sampling()) | sent.as_sent(self.request, self.changed, present)
        if privacy.content_allowed():
            late |= dict(self.answer.token_attributes())
            if self.endpoint == "responses":
                late |= self._answer_of_abandoned(present)
                late |= self._with_call_ids({**present, **late})
        if late:
            write_late(span, late)

    def _sampling(self) -> Iterator[tuple[str, AttributeValue]]:
        body = self.request.get("extra_body")
        for given in (self.request, body if isinstance(body, dict) else {}):
            for name, value in given.items():
                known = _SAMPLING.get(name)
                if known and isinstance(value, int | float | str | list):
                    as_list = known == "stop_sequences" and isinstance(value, str)
                    yield f"gen_ai.request.{known}", [value] if as_list else value

    def _held(self) -> Iterator[tuple[str, AttributeValue]]:
        """Yield the ids of the history that the provider stores."""
        previous = self.request.get("previous_response_id")
        if isinstance(previous, str):
            yield "gen_ai.request.previous_response_id", previous
        held = self.request.get("conversation")
        name = held.get("id") if isinstance(held, dict) else held
        if isinstance(name, str):
            yield "gen_ai.conversation.id", name

    def _answer_of_abandoned(self, present: Mapping[str, Any]) -> dict[str, str]:
        """Return the output messages if the instrumentation did not record them.

        Traceloop records them only when a stream is read to its end. An agent may stop reading at
        the event that has the whole answer.
        """
        if present.get("gen_ai.output.messages", "[]") != "[]":
            return {}
        text = "".join(self.answer.text)
        parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
        for asked in self.answer.requests.values():
            call = {"type": "tool_call", "id": asked.call_id, "name": asked.name}
            parts.append({**call, "arguments": _parsed(asked.arguments)})
        if not parts:
            return {}
        reason = "tool_call" if self.answer.requests else "stop"
        message = {"role": "assistant", "parts": parts, "finish_reason": reason}
        return {"gen_ai.output.messages": json.dumps([message])}

    def _with_call_ids(self, present: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the messages with the call ids of tool calls instead of their item ids.

        Traceloop records the item id (`fc_…`) of a function call. Tool results refer to the call
        id (`call_…`), so with item ids nobody could match them.
        """
        ids = {
            str(place): asked.call_id
            for place, asked in self.answer.requests.items()
            if asked.call_id != place
        }
        items = self.request.get("input")
        for item in items if isinstance(items, list) else ():
            own, call_id = _get(item, "id"), _get(item, "call_id")
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
_opened: ContextVar[Span | None] = ContextVar("lightning_llm_span", default=None)


def begin(endpoint: str, request: Mapping[str, Any]) -> ModelCall | None:
    """Record the start of a call of the model.

    Args:
        endpoint: `chat`, `completions` or `responses`.
        request: Arguments of the client's method.

    Returns:
        The call; None if it is nested in another call of the client.
    """
    around = _current.get()
    if around is not None and not around.ended_ns:
        return None
    call = ModelCall(
        endpoint, request, time.time_ns(), otel_context.get_current(), ANSWERS[endpoint]()
    )
    for span in (trace.get_current_span(), _opened.get()):
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
        _current.set(None)


@never_raise
def give_up(call: ModelCall, error: BaseException) -> None:
    """Record a call that was cancelled or interrupted.

    The bundled instrumentation ends its span only for an `Exception`. Without this, a call that a
    timeout of asyncio cancels would leave no span. Other instrumentations end theirs.

    Args:
        call: The call that ends without an answer.
        error: `asyncio.CancelledError`, `KeyboardInterrupt` or `SystemExit`.
    """
    span: Any = call.span
    if span is None or not span.is_recording():
        return
    scope = getattr(span, "instrumentation_scope", None)
    if scope is not None and scope.name.startswith(_BUNDLED):
        kind = type(error).__name__
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, f"{kind}: the call ended without an answer"))
        span.end()


def note_start(span: Any) -> None:
    """Match a span that starts with the current call, if that has no span yet.

    Args:
        span: A span of the SDK.
    """
    call = _current.get()
    llm = is_llm(attributes_of(span))
    if call is not None and call.span is None:
        # After the call ended, only a span with a start time before the call belongs to it.
        if llm if not call.ended_ns else span.start_time <= call.started_ns:
            call.adopt(span)
            if call.ended_ns:
                _current.set(None)
    elif llm:
        _opened.set(span)


def note_ending(span: Any) -> ModelCall | None:
    """Write the call's data to its span, just before the span is exported.

    Returns:
        The call of the span; None if the span belongs to no call.
    """
    call: ModelCall | None = vars(span).pop(_KEY, None)
    if call is not None:
        call.write(span)
    return call


def _get(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
