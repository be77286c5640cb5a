"""Finish reasons of calls whose provider reports `stop` for a request of tools too."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.messages.packing import has_output
from otel_lightning.collector.derive.rows import LlmCall, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes, Place, place_of, place_of_tool


def settle(calls: Sequence[LlmCall], tools: Iterable[ToolCall], nodes: Nodes) -> None:
    """Decide whether a Gemini call that ended with `stop` requested tools.

    Gemini reports `stop` for both. Without recorded output, a call requested tools if a tool ran
    under the same parent span after this call and before the next one.

    Args:
        calls: Model calls in time order; those without recorded output are changed in place.
        tools: All tool executions.
        nodes: All spans.
    """
    if not any(_is_unsettled(call) for call in calls):
        return
    tool_starts: dict[Place, list[int]] = defaultdict(list)
    for tool in tools:
        node = nodes[place_of_tool(tool)]
        tool_starts[node.parent].append(node.start_ns or 0)
    # By parent span: the start of the next call, since calls are visited from the last to the
    # first.
    following: dict[Place, int] = {}
    for call in reversed(calls):
        around = nodes[place_of(call)].parent
        until = following.get(around)
        following[around] = call.start_ns or 0
        if not _is_unsettled(call):
            continue
        starts = (start for start in tool_starts[around] if start >= (call.end_ns or 0))
        if any(until is None or start < until for start in starts):
            call.finish_reason = "tool_calls"
        elif place_of(call) in tool_starts or not around[1]:
            # Unknown: tools ran inside the call, or no parent span shows which tools ran after it.
            call.finish_reason = None


def _is_unsettled(call: LlmCall) -> bool:
    return call.finish_reason == "stop" and not has_output(call) and span_rows.is_gemini(call)
