"""Tool executions: the spans that record them, joined with the tool calls in the messages.

An SDK without a framework records no span for an execution: the result is only in the next call's
input. The tool spans of frameworks often lack the tool call's id. So both sources are read, and
joined by id or, without an id, by name and order.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.messages import tool_values
from otel_lightning.collector.derive.messages.hosted_tools import CALL, RESPONSE
from otel_lightning.collector.derive.messages.tool_parts import DENIED
from otel_lightning.collector.derive.passes.tools.tool_requests import Request, read_requests
from otel_lightning.collector.derive.passes.tools.waiting_requests import WaitingRequests
from otel_lightning.collector.derive.rows import LlmCall, ToolCall
from otel_lightning.collector.derive.text import json_text


def join_tools(executions: Sequence[ToolCall], calls: Sequence[LlmCall]) -> list[ToolCall]:
    """Return the tool executions of one rollout, each once.

    Args:
        executions: The executions that its tool spans recorded, in time order.
        calls: Its model calls, in order.

    Returns:
        The executions, and the tools that were denied (`source`). A request without a span counts
        as executed only if it has a response that does not say that the tool was denied.
    """
    hosted = [tool for call in calls if _has_hosted(call) for tool in _hosted(call)]
    requests = read_requests(calls)
    if not requests:
        return [*executions, *hosted]
    waiting = WaitingRequests(requests)
    rows = []
    for execution in executions:
        request = waiting.take(execution)
        rows.append(_filled(execution, request) if request else execution)
    without_span = (one for one in requests if _has_result(one) and not one.is_joined)
    return [*rows, *map(_from_messages, without_span), *hosted]


def _has_result(request: Request) -> bool:
    return request.response is not None and DENIED not in request.response


def _has_hosted(call: LlmCall) -> bool:
    for message in call.output_messages or ():
        for part in message["parts"]:
            if part["type"] == CALL:
                return True
    return False


def _hosted(call: LlmCall) -> Iterator[ToolCall]:
    """Yield the executions of the tools that the provider ran while it answered a call."""
    parts = [part for message in call.output_messages or () for part in message["parts"]]
    responses = {part.get("id"): part[RESPONSE] for part in parts if part["type"] == RESPONSE}
    for part in parts:
        if part["type"] == CALL:
            request, response = part.get(CALL), responses.get(part.get("id"))
            # Mostly {"type": "web_search", "arguments": {…}}; an object without "arguments" is kept
            # whole.
            is_object = isinstance(request, dict)
            is_failed = isinstance(response, dict) and response.get("error") is not None
            yield ToolCall(
                name=part.get("name"),
                trace_id=call.trace_id,
                llm_span_id=call.span_id,
                tool_call_id=part.get("id"),
                arguments=request.get("arguments", request) if is_object else request,
                result=_hosted_result(response),
                error_type="_OTHER" if is_failed else None,
                # The provider reports no times of its tools: they ran during the call.
                start_ns=call.start_ns,
                end_ns=call.end_ns,
                source="messages",
            )


def _hosted_result(response: Any) -> Any:
    """Return the result of a provider's tool: its `response`, its `error`, or the whole value."""
    if not isinstance(response, dict) or response.keys().isdisjoint({"response", "error"}):
        return response
    return response.get("response", response.get("error"))


def _filled(execution: ToolCall, request: Request) -> ToolCall:
    """Complete a tool span's row from the messages. A dispatcher gets the name of the real tool."""
    request.is_joined = True
    if execution.source == DENIED:
        return execution
    part, arguments = request.part, execution.arguments
    are_by_name = isinstance(arguments, dict) and not tool_values.is_a_call(arguments)
    # The span's own arguments are kept if they are by name and the span has the tool's name. The
    # span of a decorated function or a dispatcher gets the arguments of the tool call.
    if not are_by_name or execution.name != part.get("name"):
        execution.name = part.get("name") or execution.name
        execution.arguments = part.get("arguments", arguments)
    execution.tool_call_id = execution.tool_call_id or part.get("id")
    execution.llm_span_id = request.requester.span_id if request.requester else None
    if request.response is not None:
        execution.source = "both"
        if execution.result is None:
            execution.result = _result(request)
    return execution


def _result(request: Request) -> Any:
    """Return a tool's result without the `{"result"}` object that frameworks send to Gemini."""
    value = _response(request)
    if not span_rows.is_gemini(request.first_call):
        return value
    # OpenInference writes the object as a JSON text.
    inside = json_text.parse(value) if isinstance(value, str) and value[:1] == "{" else value
    is_wrapped = isinstance(inside, dict) and inside.keys() == {"result"}
    return inside["result"] if is_wrapped else value


def _response(request: Request) -> Any:
    """Return the response that the model received."""
    return tool_values.unquoted(request.response.get("response") if request.response else None)


def _from_messages(request: Request) -> ToolCall:
    """Return an execution known from messages alone: it ran between its two calls."""
    part = request.part
    return ToolCall(
        name=part.get("name"),
        trace_id=(request.requester or request.first_call).trace_id,
        llm_span_id=request.requester.span_id if request.requester else None,
        tool_call_id=part.get("id"),
        arguments=part.get("arguments"),
        result=_response(request),
        start_ns=request.requester.end_ns if request.requester else None,
        end_ns=request.answered_ns,
        source="messages",
    )
