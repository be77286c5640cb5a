"""Tell the different uses of a conversation id apart.

Frameworks write three kinds of ids under one name: the id of a session, which all calls of a
rollout share; the id of the previous response, which differs in each call; and the id of a
sub-agent's own conversation, which belongs to its caller's rollout.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from otel_lightning.collector.derive import time_order
from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.span_tree import (
    Node,
    Nodes,
    Place,
    inherited,
    outermost,
    place_of,
)
from otel_lightning.collector.derive.union_find import Groups

RESPONSE = "resp_"
"""The prefix of response ids in OpenAI's Responses API, also with other providers."""
# OpenAI's Conversations API and Assistants API. A user's own `thread_1` does not match.
HELD = re.compile(r"conv_.+|thread_\w{24,}")
"""Ids of conversations whose history the provider stores, so a call sends only new messages."""


def read_previous(
    calls: Iterable[LlmCall], conversation_ids: Mapping[Place, str], nodes: Nodes
) -> Mapping[Place, str]:
    """Move a conversation id that is the id of a response to `previous_response_id`.

    Microsoft's Agent Framework states it on the span of an agent only: it is that of the agent's
    first call, if the response is older.

    Args:
        calls: All model calls of a closed set of traces. A call whose conversation id is the id of
            a response is changed in place.
        conversation_ids: The conversation ids that spans state.
        nodes: All spans.

    Returns:
        The conversation ids that are no response ids.
    """
    if not conversation_ids:
        return conversation_ids
    known = list(calls)
    answered = {call.response_id for call in known}
    names = {*conversation_ids.values()}
    responses = {name for name in names if name in answered or name.startswith(RESPONSE)}
    if not responses:
        return conversation_ids
    for call in known:
        if call.conversation_id in responses:
            if call.conversation_id != call.response_id:
                previous = {"previous_response_id": call.conversation_id}
                call.request_params = {**previous, **call.request_params}
            call.conversation_id = None
    stated = {place: name for place, name in conversation_ids.items() if name in responses}
    _continue_older(known, stated, nodes)
    return {place: name for place, name in conversation_ids.items() if place not in stated}


def _continue_older(calls: Iterable[LlmCall], stated: Mapping[Place, str], nodes: Nodes) -> None:
    """Let the first call below each span that states the id of an older response continue it."""
    answered = {call.response_id: call for call in calls if call.response_id}
    ordered = sorted(calls, key=time_order.of_call)
    above = [nodes[place_of(call)].parent for call in ordered]
    around = inherited(nodes, {place: place for place in stated}, above)
    continued: set[Place] = set()
    for call, parent in zip(ordered, above, strict=True):
        place = around.get(parent)
        if place is None or place in continued:
            continue
        continued.add(place)
        if "previous_response_id" in call.request_params:
            continue
        older = answered.get(stated[place])
        if older is not None and (older.end_ns or 0) <= call.latest_start_ns:
            previous = {"previous_response_id": stated[place]}
            call.request_params = {**previous, **call.request_params}


def of_rollouts(
    nodes: Nodes, conversation_ids: Mapping[Place, str], within: Collection[Place]
) -> Mapping[Place, str]:
    """Return the conversation id that names the rollout, for each span that states one.

    Args:
        nodes: All spans of a closed set of traces.
        conversation_ids: The conversation ids that they state.
        within: The spans of agents and tools: their descendants belong to the caller.
    """
    if not conversation_ids:
        return conversation_ids
    return _by_service(nodes, _of_callers(nodes, conversation_ids, within))


def _of_callers(
    nodes: Nodes, conversation_ids: Mapping[Place, str], within: Collection[Place]
) -> dict[Place, str]:
    """Give all spans below an outermost agent or tool one conversation: its own, or the first.

    A root span that is neither agent nor tool may contain several tasks, so it has no effect.
    """
    in_trace: dict[str, set[str]] = defaultdict(set)
    for (trace_id, _), name in conversation_ids.items():
        in_trace[trace_id].add(name)
    found = dict(conversation_ids)
    if not any(len(names) > 1 for names in in_trace.values()):
        return found
    several = {place: node for place, node in nodes.items() if len(in_trace[place[0]]) > 1}
    tops = outermost(several, within)
    first: dict[Place, str] = {}
    # A top's own id comes first, because False sorts before True; then the earliest.
    for place in sorted(
        (place for place in several if place in conversation_ids),
        key=lambda place: (tops.get(place) != place, nodes[place].start_ns or 0, place),
    ):
        if (top := tops.get(place)) is not None:
            found[place] = first.setdefault(top, conversation_ids[place])
    return found


def _by_service(nodes: Nodes, conversation_ids: dict[Place, str]) -> dict[Place, str]:
    """Separate the conversations of services that use the same id but share no trace.

    Returns:
        The conversation ids; `SERVICE/ID` if several services use one id independently.
    """
    traces: dict[str, set[str]] = defaultdict(set)
    for (trace_id, _), name in conversation_ids.items():
        traces[name].add(trace_id)
    shared = {name: ids for name, ids in traces.items() if len(ids) > 1}
    if not shared or len({_service(node) for node in nodes.values()}) == 1:
        return conversation_ids
    services: dict[str, set[str]] = defaultdict(set)
    for (trace_id, _), node in nodes.items():
        services[trace_id].add(_service(node))
    names_by_trace: dict[tuple[str, str], str] = {}
    for name, ids in shared.items():
        # Services with spans in one trace call each other, so they are one application.
        groups = Groups[str]()
        for trace_id in sorted(ids):
            for service in sorted(services[trace_id]):
                groups.join(min(services[trace_id]), service)
        roots = {trace_id: groups.root(min(services[trace_id])) for trace_id in ids}
        # A service without a name may be any of the others, so nothing is separated.
        if len(set(roots.values())) > 1 and not any("" in services[one] for one in ids):
            names_by_trace |= {(name, one): f"{root}/{name}" for one, root in roots.items()}
    return {
        place: names_by_trace.get((name, place[0]), name)
        for place, name in conversation_ids.items()
    }


def _service(node: Node) -> str:
    return node.resource.get("service.name", "")


def mark_held(calls: Iterable[LlmCall]) -> None:
    """Mark a call as truncated if only the provider has a part of its history.

    Args:
        calls: Model calls in time order, after the known earlier turns were prepended; changed in
            place.
    """
    # `seen` has the conversations that were seen, `known` the ids of all responses so far, and
    # `broken` the ids of responses whose history is incomplete.
    seen: set[str] = set()
    broken: set[str] = set()
    known: set[str] = set()
    for call in calls:
        previous = call.request_params.get("previous_response_id")
        previous = previous if isinstance(previous, str) else None
        lost = bool(previous) and (previous not in known or previous in broken)
        conversation = _held(call)
        # The provider has the earlier turns of this conversation, and no call of ours repeats them.
        alone = conversation in seen and not previous and not _holds_an_answer(call)
        if lost or alone or (call.input_messages and _lacks_requests(call)):
            call.content = "truncated" if call.content == "full" else call.content
            broken.add(call.response_id or "")
        if conversation:
            seen.add(conversation)
        if call.response_id:
            known.add(call.response_id)


def _held(call: LlmCall) -> str | None:
    """Return the id of the call's conversation if the provider stores its history, or None."""
    stated = call.request_params.get("conversation")
    stated = stated.get("id") if isinstance(stated, dict) else stated
    name = str(stated) if stated else call.conversation_id
    return name if name and (stated or HELD.fullmatch(name)) else None


def _holds_an_answer(call: LlmCall) -> bool:
    return any(message["role"] == "assistant" for message in unpack(call).input_messages or ())


def _lacks_requests(call: LlmCall) -> bool:
    """Return whether the first tool responses of the input follow no turn of the assistant.

    Then only the provider has the tool calls that they answer; or the instrumentation lost them,
    and the turn is empty.
    """
    for message in call.input_messages or ():  # calls with tool parts are never packed
        if message["role"] == "assistant" and message["parts"]:
            return False
        if message["role"] == "tool":
            return True
    return False
