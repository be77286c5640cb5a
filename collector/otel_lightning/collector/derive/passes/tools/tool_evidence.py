"""Evidence that a tool which a call requested ran in another trace, or was answered there."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from otel_lightning.collector.derive import time_order
from otel_lightning.collector.derive.messages.tool_parts import parts_of
from otel_lightning.collector.derive.passes.tools.waiting_requests import canonical
from otel_lightning.collector.derive.rows import LlmCall, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes, place_of_tool

Evidence = tuple[str, ToolCall | LlmCall]
"""A key of a request, and the execution or the call with its response."""
RUN_WITHIN_NS = 10_000_000_000
"""A tool span without a tool call id is attributed to a request only if it began within about this
time (10 s) after the requesting call ended."""


def request_keys(call: LlmCall) -> list[str]:
    """Return the keys by which other traces find the tool calls that a call requested.

    A key is the tool call id, or the service, the tool's name, its arguments and one of the two
    intervals of `RUN_WITHIN_NS` in which the tool may have started: that of the call's end and the
    next one.
    """
    keys = [*_repeated(call)]
    for part in parts_of(call.output_messages, "tool_call"):
        if part.get("id"):
            keys.append(part["id"])
        if part.get("arguments"):
            ended = (call.end_ns or 0) // RUN_WITHIN_NS
            keys += [_key_without_id(part, call.service_name, time) for time in (ended, ended + 1)]
    return keys


def _repeated(call: LlmCall) -> Iterator[str]:
    """Yield the ids of the tool calls in an input, if the answers that have them may be lost."""
    if call.lost_answers:
        for part in parts_of(call.input_messages, "tool_call"):
            if part.get("id"):
                yield part["id"]


def _key_without_id(part: Mapping[str, Any], service: str | None, interval: int) -> str:
    return f"{service} {interval} {part.get('name')} {canonical(part.get('arguments')).decode()}"


def find_evidence(
    executions: Iterable[ToolCall], calls: Iterable[LlmCall], nodes: Nodes
) -> list[Evidence]:
    """Find evidence that a tool ran for a call in another trace.

    Returns:
        (key, row) pairs. The row is a tool execution whose span has no parent, or a call whose
        input has a tool response without its request, or may lack the system's instructions. The
        key is one of those that `request_keys` returns for the requesting call.
    """
    evidence: list[Evidence] = []
    for tool in executions:
        node = nodes[place_of_tool(tool)]
        # A span with a parent belongs to the rollout of its own trace already.
        if node.parent[1]:
            continue
        if tool.tool_call_id:
            evidence.append((tool.tool_call_id, tool))
        # Without arguments only the name and the time are left, which concurrent rollouts share:
        # that is no evidence.
        elif tool.arguments:
            part = {"name": tool.name, "arguments": tool.arguments}
            interval = (tool.start_ns or 0) // RUN_WITHIN_NS
            key = _key_without_id(part, node.resource.get("service.name"), interval)
            evidence.append((key, tool))
    for call in calls:
        answered = call.history.unrequested_ids
        if call.lost_system:
            responses = parts_of(call.input_messages, "tool_call_response")
            answered = [part["id"] for part in responses if part.get("id")]
        evidence += [(call_id, call) for call_id in answered]
    return evidence


def with_requesters(
    evidence: Sequence[Evidence], calls: Iterable[LlmCall]
) -> Iterator[tuple[ToolCall | LlmCall, list[LlmCall]]]:
    """Yield each row of the evidence, with the earlier calls that requested it, in order.

    If the answer that requested a tool is lost, these are the later calls that repeat it.
    """
    by_key: dict[str, list[LlmCall]] = defaultdict(list)
    for call in sorted(calls, key=time_order.of_call) if evidence else ():
        for key in request_keys(call):
            by_key[key].append(call)
    for key, row in evidence:
        since = row.start_ns or 0
        known = by_key.get(key, ())
        earlier = [call for call in known if (call.start_ns or 0) < since]
        repeated = isinstance(row, ToolCall) and not earlier
        yield row, [call for call in known if call.lost_answers] if repeated else earlier
