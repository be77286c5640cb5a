"""Parts of an answer that spans record and the call's own answer lacks: tool calls and reasoning.

AgentOps writes a span for each tool call of an answer, and Mastra one for each piece of a streamed
answer, such as its reasoning. Others leave the tool calls out of an answer; then the executions
below the call, or beside it, show what it asked for. An answer that was completed from executions
is not whole: its text may be missing, and tool calls that nobody executed are. So it is no
completion to learn from. A call whose content was not recorded stays without an answer.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from otel_lightning.collector.derive import time_order
from otel_lightning.collector.derive.messages import messages, tool_parts
from otel_lightning.collector.derive.messages.packing import outputs, unpack
from otel_lightning.collector.derive.rows import LlmCall, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes, Place, place_of, place_of_tool

RECORDED = {"full", "truncated"}
"""The contents of calls whose messages were recorded with their text."""


def add(
    calls: Sequence[LlmCall], requests: Iterable[ToolCall], ran: Sequence[ToolCall], nodes: Nodes
) -> list[LlmCall]:
    """Add to the calls' answers the tool calls that spans show.

    Args:
        calls: All calls; changed in place.
        requests: Tool calls that were recorded as spans of their own. They are always added. One
            without a name is a piece of an answer, whose `result` is its text.
        ran: The executions. They are added where the answer lacks the tool calls that its finish
            reason states.
        nodes: All spans.

    Returns:
        The calls that were changed.
    """
    found = [*requests, *_executed(ran, calls, nodes)]
    known = {place_of(call): call for call in calls} if found else {}
    changed: dict[Place, LlmCall] = {}
    for request in sorted(found, key=time_order.of_tool):
        place = request.trace_id or "", request.llm_span_id or ""
        if request.name is None:
            above = nodes[place].parent if place in nodes else place
            around = [one for one in dict.fromkeys((place, above)) if one in known]
            with_thought = [one for one in around if _add_thought(known[one], request.result)]
            changed.update((one, known[one]) for one in with_thought)
        elif place in known:
            changed[place] = known[place]
            _add_to(known[place], request)
    return [*changed.values()]


def _executed(
    ran: Sequence[ToolCall], calls: Sequence[LlmCall], nodes: Nodes
) -> Iterator[ToolCall]:
    """Yield the executions of tools that answers lack, each with the call that asked for it."""
    lost = {place_of(call) for call in calls if _lost_its_requests(call)}
    unknown = {place_of(call) for call in calls if _lost_its_answer(call)}
    if lost or unknown:
        yield from _below(ran, lost | unknown, nodes)
    if lost:
        yield from _beside(ran, calls, lost, nodes)


def _add_thought(call: LlmCall, text: object) -> bool:
    """Add a piece of a streamed answer that its text lacks: it is reasoning.

    Returns:
        Whether the call has an answer without this piece.
    """
    answer = outputs(call)
    parts = answer[0]["parts"] if answer else []
    texts = "".join(part["content"] for part in parts if part["type"] in {"text", "reasoning"})
    if not parts or not isinstance(text, str) or text in texts:
        return False
    first, *others = unpack(call).output_messages or []
    thoughts = [*tool_parts.parts_of([first], "reasoning"), {"type": "reasoning", "content": text}]
    rest = [part for part in first["parts"] if part["type"] != "reasoning"]
    call.output_messages = [{**first, "parts": [*thoughts, *rest]}, *others]
    return True


def _add_to(call: LlmCall, request: ToolCall) -> None:
    answer = unpack(call).output_messages or [messages.choice([])]
    output = answer[0]
    if request.tool_call_id in {part.get("id") for part in output["parts"]}:
        return
    call_id = request.tool_call_id
    if call_id and call_id.startswith(tool_parts.ADK) and request.source != "request":
        call_id = None
    tool_call = tool_parts.tool_call_part(call_id, request.name, request.arguments)
    # A copy, because kept rows may share the message.
    output = {**output, "parts": [*output["parts"], tool_call]}
    call.output_messages = [output, *answer[1:]]
    call.from_executions = call.from_executions or request.source != "request"
    if call.from_executions and call.finish_reason is None:
        call.finish_reason = "tool_calls"  # nothing else makes a tool run
    if call.from_executions or call.content == "absent":
        call.content = "truncated"


def _lost_its_requests(call: LlmCall) -> bool:
    """Return whether a recorded answer lacks the tool calls that its finish reason states."""
    if call.content not in RECORDED or call.finish_reason != "tool_calls":
        return False
    return next(tool_parts.parts_of(outputs(call), "tool_call"), None) is None


def _lost_its_answer(call: LlmCall) -> bool:
    """Return whether neither a part of the answer is known, nor why it ended.

    Google's ADK for JavaScript records streamed answers that ask for tools in this way.
    """
    if call.content != "truncated" or call.finish_reason or call.error_type or call.is_broken_off:
        return False
    return not any(message["parts"] for message in outputs(call) or ())


def _below(ran: Iterable[ToolCall], lost: set[Place], nodes: Nodes) -> Iterator[ToolCall]:
    """Yield the executions directly below one of these calls."""
    for tool in ran:
        parent = nodes[place_of_tool(tool)].parent
        if parent in lost and _has_id_and_arguments(tool):
            yield replace(tool, llm_span_id=parent[1])


def _beside(
    ran: Iterable[ToolCall], calls: Iterable[LlmCall], lost: set[Place], nodes: Nodes
) -> Iterator[ToolCall]:
    """Yield the executions beside one of these calls, as Spring AI writes them.

    An execution is of the last call before it that has the same parent.
    """
    below: dict[Place, list[LlmCall]] = defaultdict(list)
    for call in sorted(calls, key=time_order.of_call):
        if call.parent_span_id:
            below[nodes[place_of(call)].parent].append(call)
    for tool in ran:
        if not _has_id_and_arguments(tool):
            continue
        siblings = below.get(nodes[place_of_tool(tool)].parent, [])
        began = tool.start_ns or 0
        at = bisect_right(siblings, began, key=lambda call: call.start_ns or 0)
        last = siblings[at - 1] if at else None
        if last is not None and (last.end_ns or 0) <= began and place_of(last) in lost:
            yield replace(tool, llm_span_id=last.span_id)


def _has_id_and_arguments(tool: ToolCall) -> bool:
    return bool(tool.tool_call_id) and tool.arguments is not None
