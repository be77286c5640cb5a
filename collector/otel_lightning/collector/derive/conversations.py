"""What a conversation's id says: of a previous response, of a sub-agent, of another service.

Frameworks write three things under one name. The id of a session, which the calls of one rollout
share; the id of the previous response, which is another one in each call; and the id of a
sub-agent's own talk, which is a part of its caller's rollout.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.span_tree import Nodes, Place, outermost
from otel_lightning.collector.derive.text.packing import unpack
from otel_lightning.collector.derive.union_find import Groups

RESPONSE = "resp_"
"""How the ids of responses begin at OpenAI, and at whatever speaks its Responses API."""
HELD = re.compile(r"conv_.+|thread_\w{24,}")
"""The ids of conversations whose history the provider keeps: only new messages are sent."""


def read_previous(calls: Iterable[LlmCall], nodes: Nodes) -> Nodes:
    """Take a conversation id that is a response's id as the id of the previous response.

    Args:
        calls: All model calls of a closed set; those that name a response are changed in place.
        nodes: All spans of the set.

    Returns:
        The spans, without the conversation ids that are none.
    """
    stated = {place: node for place, node in nodes.items() if node.conversation_id}
    if not stated:
        return nodes
    known = list(calls)
    answered = {call.response_id for call in known if call.response_id}
    names = {str(node.conversation_id) for node in stated.values()}
    responses = {name for name in names if name in answered or name.startswith(RESPONSE)}
    for call in known if responses else ():
        if call.conversation_id in responses:
            if call.conversation_id != call.response_id:
                previous = {"previous_response_id": call.conversation_id}
                call.request_params = {**previous, **call.request_params}
            call.conversation_id = None
    wrong = {
        place: node._replace(conversation_id=None)
        for place, node in stated.items()
        if node.conversation_id in responses
    }
    return {**nodes, **wrong} if wrong else nodes


def of_rollouts(nodes: Nodes, within: Collection[Place]) -> dict[Place, str]:
    """Return the conversation that names the rollout of each span which states one.

    Args:
        nodes: All spans of a closed set.
        within: The spans of agents and tools: what is inside belongs to the caller.
    """
    talks = {place: node.conversation_id for place, node in nodes.items() if node.conversation_id}
    return _by_service(nodes, _of_callers(nodes, talks, within)) if talks else {}


def _of_callers(
    nodes: Nodes, talks: Mapping[Place, str], within: Collection[Place]
) -> dict[Place, str]:
    """Give all that an outermost agent or tool holds the same conversation: its own, or the first.

    A root that is neither may hold several tasks, so it decides nothing.
    """
    in_trace: dict[str, set[str]] = defaultdict(set)
    for (trace_id, _), name in talks.items():
        in_trace[trace_id].add(name)
    found = dict(talks)
    if not any(len(names) > 1 for names in in_trace.values()):
        return found
    several = {place: node for place, node in nodes.items() if len(in_trace[place[0]]) > 1}
    tops = outermost(several, within)
    first: dict[Place, str] = {}
    for place in sorted(
        (place for place in several if place in talks),
        key=lambda place: (tops.get(place) != place, nodes[place].start_ns or 0, place),
    ):
        if (top := tops.get(place)) is not None:
            found[place] = first.setdefault(top, talks[place])
    return found


def _by_service(nodes: Nodes, talks: dict[Place, str]) -> dict[Place, str]:
    """Tell apart the conversations of services that have an id in common and no trace.

    Returns:
        The conversations; `SERVICE/ID` where several services use the id for their own.
    """
    traces: dict[str, set[str]] = defaultdict(set)
    for (trace_id, _), name in talks.items():
        traces[name].add(trace_id)
    shared = {name: ids for name, ids in traces.items() if len(ids) > 1}
    if not shared:
        return talks
    services: dict[str, set[str]] = defaultdict(set)
    for (trace_id, _), node in nodes.items():
        services[trace_id].add(node.resource.get("service.name", ""))
    found: dict[tuple[str, str], str] = {}
    for name, ids in shared.items():
        groups = Groups()
        for trace_id in sorted(ids):
            for service in sorted(services[trace_id]):
                groups.join(min(services[trace_id]), service)
        roots = {trace_id: groups.root(min(services[trace_id])) for trace_id in ids}
        if len(set(roots.values())) > 1 and not any("" in services[one] for one in ids):
            found |= {(name, one): f"{root}/{name}" for one, root in roots.items()}
    return {place: found.get((name, place[0]), name) for place, name in talks.items()}


def mark_held(calls: Iterable[LlmCall]) -> None:
    """Mark the calls whose history is in part only known to the provider.

    Args:
        calls: Model calls in time order, with the earlier turns that could be put before them.
    """
    talked: set[str] = set()
    broken: set[str] = set()
    known: set[str] = set()
    for call in calls:
        previous = call.request_params.get("previous_response_id")
        lost = bool(previous) and (previous not in known or previous in broken)
        talk = _held(call)
        alone = talk in talked and not previous and not _holds_an_answer(call)
        if lost or alone or _lacks_requests(call):
            call.content = "truncated" if call.content == "full" else call.content
            broken.add(call.response_id or "")
        talked |= {talk} if talk else set()
        known |= {call.response_id} if call.response_id else set()


def _held(call: LlmCall) -> str | None:
    """Return the conversation whose history the provider keeps, if the call is of one."""
    stated = call.request_params.get("conversation")
    stated = stated.get("id") if isinstance(stated, dict) else stated
    name = str(stated) if stated else call.conversation_id
    return name if name and (stated or HELD.fullmatch(name)) else None


def _holds_an_answer(call: LlmCall) -> bool:
    return any(message["role"] == "assistant" for message in unpack(call).input_messages or ())


def _lacks_requests(call: LlmCall) -> bool:
    """Tell whether the input begins with responses: to tool calls that only the provider has."""
    for message in call.input_messages or ():  # a call that talks of tools is not packed
        if message["role"] == "assistant":
            return False
        if message["role"] == "tool":
            return True
    return False
