"""Create tool spans for agents that run their own functions, which no instrumentation records.

A model's answer requests tools, and the next request has their results. From both we create one
span `execute_tool {name}` per tool call, unless a framework made a span for it.
"""

import json
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, Tracer

from otel_lightning.instrumentation import attributes, privacy
from otel_lightning.instrumentation.answers import ToolRequest
from otel_lightning.instrumentation.genai import attributes_of
from otel_lightning.instrumentation.model_call import ModelCall, field_of

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

_MOST_REMEMBERED: Final = 10_000  # remembered tool requests; beyond it, the oldest is forgotten
_MOST_OF_ONE_ID: Final = 1_000  # remembered tool requests with one call id
_MOST_OF_ONE_NAME: Final = 1_000  # remembered tool spans with one name
_MOST_SCANNED: Final = 2_000  # items of a request that are searched for results, from its end


class Result(NamedTuple):
    """The result of a tool, as the agent sends it to the model."""

    call_id: str
    text: str
    failed: bool


@dataclass(slots=True, eq=False)
class _PendingRequest:
    request: ToolRequest
    call: ModelCall


@dataclass(slots=True)
class _Seen:
    """Tool spans that frameworks made: their call ids, or their start times by tool name."""

    ids: OrderedDict[str, None] = field(default_factory=OrderedDict)
    starts_by_name: dict[str, deque[int]] = field(default_factory=dict)


class InferredTools:
    """Matches tool requests with their results, and creates the tool spans of this process."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._pending: OrderedDict[str, list[_PendingRequest]] = OrderedDict()
        self._seen = _Seen()

    def note_answer(self, call: ModelCall) -> None:
        """Remember the tools that an answer, or a chunk of it, requests."""
        for request in call.answer.requests.values():
            pending = self._pending.setdefault(request.call_id, [])
            if request.call_id and not any(one.request is request for one in pending):
                pending.append(_PendingRequest(request, call))
                # Keeps the newest ones.
                del pending[:-_MOST_OF_ONE_ID]
        while len(self._pending) > _MOST_REMEMBERED:
            self._pending.popitem(last=False)

    def note_request(self, call: ModelCall) -> None:
        """Create the spans of the tools whose results are in a request."""
        if not self._pending:
            return
        for result in _results(call):
            if pending := self._pop(result.call_id, call):
                self._emit(pending, result, call)

    def is_own(self, span: Any) -> bool:
        """Return whether a tool span is one of ours."""
        return attributes.INFERRED in attributes_of(span)

    def note_span(self, span: Any) -> None:
        """Record a tool span that a framework made, so that we create no second one."""
        present = attributes_of(span)
        if call_id := present.get("gen_ai.tool.call.id"):
            self._seen.ids[str(call_id)] = None
            while len(self._seen.ids) > _MOST_REMEMBERED:
                self._seen.ids.popitem(last=False)
            return
        names = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name")
        name = next((str(present[key]) for key in names if key in present), span.name)
        starts = self._seen.starts_by_name.setdefault(name, deque(maxlen=_MOST_OF_ONE_NAME))
        starts.append(span.start_time)

    def _pop(self, call_id: str, call: ModelCall) -> _PendingRequest | None:
        """Remove and return the tool request that a result answers.

        Some servers reuse the same call id in every answer, so several requests may wait for this
        id. Then the name and arguments of the tool call, which the request repeats, decide.
        """
        waiting = self._pending.get(call_id)
        if not waiting:
            return None
        pending = waiting[-1]
        if len(waiting) > 1:
            repeated = _repeated(call, call_id)
            # Of equal calls the oldest one, since results come in the order of the requests.
            equal = [
                one for one in waiting if (one.request.name, one.request.arguments) == repeated
            ]
            pending = equal[0] if equal else pending
        waiting.remove(pending)
        if not waiting:
            self._pending.pop(call_id, None)
        return pending

    def _emit(self, pending: _PendingRequest, result: Result, call: ModelCall) -> None:
        caller = pending.call.span
        if caller is None or not caller.get_span_context().trace_flags.sampled:
            return
        if self._has_span(pending):
            return
        request = pending.request
        values: dict[str, AttributeValue] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": request.name,
            "gen_ai.tool.call.id": request.call_id,
            "gen_ai.tool.type": "function",
            attributes.INFERRED: True,
        }
        if privacy.content_allowed():
            values["gen_ai.tool.call.arguments"] = request.arguments
            values["gen_ai.tool.call.result"] = result.text
        if result.failed:
            values["error.type"] = "tool_error"
        span = self._tracer.start_span(
            f"execute_tool {request.name}",
            context=_context_of_parent(caller, call.context),
            # The tool ran between the answer that requested it and the request that holds its
            # result. More is not known, which `lightning.inferred` says.
            start_time=pending.call.ended_ns or pending.call.started_ns,
            attributes=values,
        )
        if result.failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(call.started_ns)

    def _has_span(self, pending: _PendingRequest) -> bool:
        request = pending.request
        if request.call_id in self._seen.ids:
            return True
        for start in self._seen.starts_by_name.get(request.name, ()):
            # Without call ids: the first span of this name that began after the model was asked.
            # Each span stands for one request.
            if start >= pending.call.started_ns:
                self._seen.starts_by_name[request.name].remove(start)
                return True
        return False


def _context_of_parent(caller: Any, context: Context) -> Context:
    """Return a context whose span is the parent of the asking call, or the call if it has none."""
    parent: SpanContext | None = getattr(caller, "parent", None)
    return trace.set_span_in_context(NonRecordingSpan(parent or caller.get_span_context()), context)


def _results(call: ModelCall) -> Iterator[Result]:
    """Yield the new tool results of a request: those after its last answer of the model."""
    if call.endpoint == "chat":
        yield from _chat_results(call.request.get("messages"))
    elif call.endpoint == "responses":
        yield from _items_results(call.request.get("input"))


def _chat_results(messages: Any) -> Iterator[Result]:
    for message in _from_end(messages):
        role = field_of(message, "role")
        if role == "assistant":
            return
        if role == "tool":
            text = _text(field_of(message, "content"))
            yield Result(str(field_of(message, "tool_call_id")), text, _says_error(text))


def _items_results(items: Any) -> Iterator[Result]:
    has_result = False
    for item in _from_end(items):
        kind = field_of(item, "type")
        if str(kind).endswith("_call_output"):
            has_result = True
            text = _text(field_of(item, "output"))
            failed = field_of(item, "status") == "incomplete" or _says_error(text)
            yield Result(str(field_of(item, "call_id")), text, failed)
        elif has_result and kind in (None, "message"):
            return


def _repeated(call: ModelCall, call_id: str) -> tuple[str, str] | None:
    """Return the name and arguments of a tool call, which the request repeats."""
    for message in _from_end(call.request.get("messages")):
        for tool_call in field_of(message, "tool_calls") or ():
            if field_of(tool_call, "id") == call_id:
                function = field_of(tool_call, "function")
                return str(field_of(function, "name")), str(field_of(function, "arguments"))
    return None


def _from_end(items: Any) -> Iterable[Any]:
    # The last ones, from the end: new results are there, and a history may have thousands of items.
    return items[: -_MOST_SCANNED - 1 : -1] if isinstance(items, list | tuple) else ()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(field_of(one, "text"), str) for one in content):
        return "".join(field_of(one, "text") for one in content)
    return json.dumps(content, default=str)


def _says_error(text: str) -> bool:
    """Return whether a result states that the tool failed, like MCP's `isError`."""
    # Quick tests first: most results are long texts without it.
    if "rror" not in text or text[:1] != "{":
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return False
    return value.get("isError") is True or value.get("is_error") is True
