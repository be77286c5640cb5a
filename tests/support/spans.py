"""Spans and logs as the store gives them, written by hand with only what a test is about."""

import json
from collections.abc import Iterable
from typing import Any

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.dialects import read as read_span
from otel_lightning.collector.derive.links import ties
from otel_lightning.collector.derive.parse import complete_calls, read
from otel_lightning.collector.derive.rows import Event, LlmCall, Log, Span

SECOND = 1_000_000_000


def texts(values: dict[str, Any]) -> dict[str, str]:
    """Return attribute values as the store keeps them: strings as they are, all else as JSON."""
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()
    }


def span(  # noqa: PLR0913 - a span has this many sides
    attributes: dict[str, Any],
    *,
    trace: str = "t1",
    id: str = "s1",  # noqa: A002
    parent: str | None = None,
    name: str = "span",
    at: float = 0,
    ends: float | None = None,
    status: str = "UNSET",
    message: str | None = None,
    events: tuple[Event, ...] = (),
    resource: dict[str, str] | None = None,
    scope: str = "tests",
) -> Span:
    """Return a span that starts `at` seconds and takes one, unless it says when it ends."""
    return Span(
        trace_id=trace,
        span_id=id,
        parent_span_id=parent,
        name=name,
        kind="CLIENT",
        start_ns=int(at * SECOND),
        end_ns=int((at + 1 if ends is None else ends) * SECOND),
        status_code=status,
        status_message=message,
        scope_name=scope,
        resource={"service.name": "agent"} if resource is None else resource,
        attributes=texts(attributes),
        events=events,
    )


def log(  # noqa: PLR0913 - likewise
    event_name: str,
    attributes: dict[str, Any] | None = None,
    *,
    trace: str | None = None,
    span_id: str | None = None,
    body: Any = None,
    at: float = 0,
) -> Log:
    """Return a log record that carries a named event."""
    return Log(
        time_ns=int(at * SECOND),
        trace_id=trace,
        span_id=span_id,
        event_name=event_name,
        body=body if body is None or isinstance(body, str) else json.dumps(body),
        attributes=texts(attributes or {}),
        resource={"service.name": "agent"},
        scope_name="tests",
    )


def text_message(role: str, content: str) -> dict[str, Any]:
    """Return a text message of the conventions."""
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def tool_request(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    """Return an assistant message that asks for a tool."""
    part = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
    return {"role": "assistant", "parts": [part]}


def tool_response(call_id: str, response: str) -> dict[str, Any]:
    """Return a tool's response."""
    part = {"type": "tool_call_response", "id": call_id, "response": response}
    return {"role": "tool", "parts": [part]}


def chat(
    history: list[dict[str, Any]], output: dict[str, Any], more: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the attributes of a model call that follows the conventions."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": history,
        "gen_ai.output.messages": [output],
        **(more or {}),
    }


def only_call(*spans: Span, logs: Iterable[Log] = ()) -> LlmCall:
    """Derive some spans and return the only model call among their rows."""
    (call,) = derive(spans, logs).llm_calls
    return call


def assert_read(call: LlmCall) -> None:
    """Check that a call asked `QUESTION` and got `ANSWER`."""
    assert call.input_messages == [QUESTION]
    (answer,) = call.output_messages or []
    assert answer["parts"] == ANSWER["parts"]
    assert call.content == "full"


def read_call(span: Span) -> LlmCall:
    """Read a span that is a model call, without the passes that complete rows by each other."""
    call = read_span(span)
    assert isinstance(call, LlmCall)
    return call


def trace_keys(spans: Iterable[Span], logs: Iterable[Log]) -> set[str]:
    """Return the keys that tie a trace to others: two traces that may belong together share one."""
    parsed = read(spans, logs)
    complete_calls(parsed)
    tied = ties(parsed)
    return {*tied.key, *tied.seeks}


QUESTION, ANSWER = text_message("user", "Hi"), text_message("assistant", "Hello")
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"}


def tool_loop(**tool: Any) -> list[Span]:
    """Return two calls with a tool between them, and the tool's span unless there is none."""
    request = tool_request("c1", "add", '{"a": 2, "b": 3}')
    first = span(chat([QUESTION], request), id="ask", at=0)
    second = span(chat([QUESTION, request, tool_response("c1", "5")], ANSWER), id="answer", at=8)
    ran = [span({**TOOL, **tool}, id="tool", at=4)] if tool else []
    return [first, *ran, second]
