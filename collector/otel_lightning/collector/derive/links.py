"""What ties traces to each other: the keys by which the traces of one rollout find each other."""

from collections.abc import Iterator
from typing import NamedTuple

from otel_lightning.collector.derive import duplicates, stitch, tools
from otel_lightning.collector.derive.parse import Reading
from otel_lightning.collector.derive.span_tree import place_of


class Tie(NamedTuple):
    """A key of a trace, and the key of the traces that it belongs with: the same one, mostly."""

    trace_id: str
    key: str
    seeks: str


def ties(found: Reading) -> list[Tie]:
    """Return the keys of everything read that may tie a trace to others.

    Args:
        found: What was read; the requests that were spans are in their calls (`fold_requests`).
    """
    tied: list[tuple[str, str]] = []
    for node in found.nodes.values():
        if node.rollout_id:
            tied.append((node.trace_id, f"rollout:{node.rollout_id}"))
        if node.conversation_id:
            tied.append((node.trace_id, f"conversation:{node.conversation_id}"))
    for call in found.calls:
        past, trace_id = found.pasts[place_of(call)], call.trace_id
        tied += [(trace_id, f"history:{end}") for end in (*past.begins, *past.ends)]
        previous = call.request_params.get("previous_response_id")
        named = (call.response_id, previous, call.conversation_id)
        tied += [(trace_id, f"response:{name}") for name in named if name]
        if not call.parent_span_id:
            tied += [(trace_id, key) for key in duplicates.keys(call, past.saw)]
    return [*(Tie(trace_id, key, key) for trace_id, key in dict.fromkeys(tied)), *_of_tools(found)]


def _of_tools(found: Reading) -> Iterator[Tie]:
    """Yield what ties the execution of a tool in another trace to the call that asked for it.

    Calls do not find each other by it: some models number their tool calls from 0 in each rollout.
    """
    calls = [call for call in found.calls if found.pasts[place_of(call)].tools]
    for call in calls:
        for mark in tools.asked(call):
            yield Tie(call.trace_id, f"asks:{mark}", f"ran:{mark}")
    for call in calls:
        for mark, is_asked in stitch.marks(call):
            seeks = ("asks", "ran") if is_asked else ("ran", "asks")
            yield Tie(call.trace_id, *(f"{kind}:{mark}" for kind in seeks))
    for mark, row in tools.apart(found.tools, calls, found.nodes, found.pasts):
        yield Tie(row.trace_id or "", f"ran:{mark}", f"asks:{mark}")
