"""One call of the model's client, and the span that some instrumentation makes for it.

Our wrapper is in the client, and the span may be made outside of it (Traceloop on chat
completions, frameworks), inside of it (OpenInference), or after it with an earlier start time
(Traceloop on Responses). Each call finds its span in one of those ways, and exactly one: what we
know is written when that span ends, before any exporter sees it.
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
from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from otel_lightning.instrumentation import arms, attributes, privacy, sent
from otel_lightning.instrumentation.answers import ANSWERS, Answer
from otel_lightning.instrumentation.genai import attributes_of, is_llm, write_late

_KEY: Final = "_lightning_call"
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
"""Request arguments that decide how tokens are drawn, and their names after `gen_ai.request.`."""


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

    def adopt(self, span: Span) -> None:
        """Take a span as this call's: what we know is written to it when it ends."""
        self.span = span
        vars(span)[_KEY] = self
        for choice in self.choices:
            arms.write_choice(choice, span)

    def write(self, span: Span) -> None:
        """Write what is known to the call's span, at its end."""
        present = attributes_of(span) or {}
        late: dict[str, Any] = dict(self.facts)
        found = [*self._sampling(), *self.answer.usage_attributes()]
        if self.endpoint == "responses":
            found += self._held()
        if self.answer.response_id:
            found.append(("gen_ai.response.id", self.answer.response_id))
        late |= {name: value for name, value in found if not present.get(name)}
        if attributes.POLICY_CHANGED in self.facts:
            late |= dict(self._sampling()) | sent.as_sent(self.request, present)
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
        """Yield what of the history the provider holds."""
        previous = self.request.get("previous_response_id")
        if isinstance(previous, str):
            yield "gen_ai.request.previous_response_id", previous
        held = self.request.get("conversation")
        name = held.get("id") if isinstance(held, dict) else held
        if isinstance(name, str):
            yield "gen_ai.conversation.id", name

    def _answer_of_abandoned(self, present: Mapping[str, Any]) -> dict[str, str]:
        """Write the answer where the instrumentation has none.

        Traceloop writes it when a stream is read to its very end; an agent may stop at the event
        that brings the whole answer.
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
        """Yield the messages with the ids that tool results name, for those of the items.

        Traceloop records the item's id (`fc_…`) of a function call; the result that answers it
        names the call's (`call_…`).
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
                # Within a JSON text, a quotation mark of the content's own is escaped.
                changed = text
                for own, call_id in ids.items():
                    changed = changed.replace(f'"id": {json.dumps(own)}', f'"id": "{call_id}"')
                if changed is not text:
                    yield name, changed


_current: ContextVar[ModelCall | None] = ContextVar("lightning_model_call", default=None)
_opened: ContextVar[Span | None] = ContextVar("lightning_llm_span", default=None)


def begin(endpoint: str, request: Mapping[str, Any]) -> ModelCall | None:
    """Note that the agent calls the model.

    Args:
        endpoint: `chat`, `completions` or `responses`.
        request: Arguments of the client's method.

    Returns:
        The call, or None within another call of the client.
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
    """Note that the client's method has returned or failed."""
    call.ended_ns = time.time_ns()
    if call.span is not None:
        _current.set(None)


def note_start(span: Any) -> None:
    """Give a span that starts to the call that waits for one.

    Args:
        span: A span of the SDK.
    """
    call = _current.get()
    llm = is_llm(span.attributes)
    if call is not None and call.span is None:
        # After the call, only a span that says that it began before the call is the call's.
        if llm if not call.ended_ns else span.start_time <= call.started_ns:
            call.adopt(span)
            if call.ended_ns:
                _current.set(None)
    elif llm:
        _opened.set(span)


def note_ending(span: Any) -> ModelCall | None:
    """Write what the call knows to its span, which is about to be exported.

    Returns:
        The call whose span it is, if there is one.
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
