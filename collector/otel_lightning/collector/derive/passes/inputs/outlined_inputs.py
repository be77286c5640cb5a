"""Complete inputs where a framework recorded only an outline.

Mastra records the whole input of an agent's run once, around the run's calls; each call's own
input names only which tools were asked for, or was cut. The missing messages are known: the answers
of the calls before it, and the results of the tools.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from otel_lightning.collector.derive import span_rows, time_order
from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.messages.tool_parts import response_part
from otel_lightning.collector.derive.rows import LlmCall, Message, ToolCall
from otel_lightning.collector.derive.span_tree import (
    Nodes,
    Place,
    nearest_above,
    place_of,
    place_of_tool,
)


def complete(calls: Collection[LlmCall], nodes: Nodes, tools: Iterable[ToolCall]) -> list[LlmCall]:
    """Put the whole history into each call whose input is an outline of it.

    Args:
        calls: The calls as read from each span alone; those that are completed are changed.
        nodes: All spans.
        tools: The executions of tools.

    Returns:
        The calls that were changed.
    """
    parts = [call for call in calls if call.content != "full"]
    if not any(_is_outline(call) or _is_cut(call) for call in parts):
        return []
    known = {place_of(call): call for call in calls}
    above = nearest_above(nodes, known)
    results = _results(tools, known, nodes)
    inside: dict[tuple[str, str], list[LlmCall]] = defaultdict(list)
    for place, outer in above.items():
        inside[outer].append(known[place])
    completed = []
    for place, inner in inside.items():
        history = list(unpack(known[place]).input_messages or [])
        if not history or _is_outline(known[place]):
            continue
        for call in sorted(inner, key=time_order.of_call):
            outline = call.input_messages or []
            is_outline = _is_outline(call) and _roles(history) == _roles(outline)
            if is_outline or _is_cut(call):
                unpack(call).input_messages = list(map(_seen, history, outline or history))
                span_rows.completed(call)
                completed.append(call)
            history += _answer(call, results)
    return completed


def _is_outline(call: LlmCall) -> bool:
    return call.content == "redacted" and not call.packed


def _is_cut(call: LlmCall) -> bool:
    """Return whether the input of a call is lost, though the call was answered."""
    sent = call.packed[0] if call.packed else call.input_messages
    return call.content == "truncated" and not sent


def _results(
    tools: Iterable[ToolCall], known: Mapping[Place, LlmCall], nodes: Nodes
) -> dict[str, object]:
    """Return what each tool answered, by tool call id.

    An execution without an id has that of the tool call which the call around it asked for.
    """
    results: dict[str, object] = {}
    for tool in tools:
        asker = known.get(nodes[place_of_tool(tool)].parent)
        own = tool.tool_call_id or (_id_of(tool, asker) if asker else None)
        if own:
            results[own] = tool.result
    return results


def _id_of(tool: ToolCall, asker: LlmCall) -> str | None:
    parts = [part for output in unpack(asker).output_messages or () for part in output["parts"]]
    requests = (part for part in parts if part["type"] == "tool_call")
    same = (tool.name, tool.arguments)
    ids = (part["id"] for part in requests if (part["name"], part.get("arguments")) == same)
    return next(ids, None)


def _seen(whole: Message, outline: Message) -> Message:
    """Return a message of the history; a tool's result as the outline has it, if it has one.

    A tool may tell the model less than it returned.
    """
    results = [part["response"] for part in outline["parts"] if "response" in part]
    if whole["role"] != "tool" or not results:
        return whole
    return {"role": "tool", "parts": [{**whole["parts"][0], "response": results[0]}]}


def _roles(history: Iterable[Message]) -> list[str]:
    return [message["role"] for message in history]


def _answer(call: LlmCall, results: Mapping[str, object]) -> list[Message]:
    """Return the messages that a call adds to the next history: its answer, and tool results."""
    parts = [part for output in unpack(call).output_messages or () for part in output["parts"]]
    ids = [part.get("id") for part in parts if part["type"] == "tool_call"]
    responses = [response_part(one, results.get(one or "")) for one in ids]
    answers: list[Message] = [{"role": "tool", "parts": [part]} for part in responses]
    return [{"role": "assistant", "parts": parts}, *answers] if parts else []
