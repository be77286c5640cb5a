"""Complete inputs where an instrumentation, such as Copilot's, wrote only the new messages.

The call that sends the responses of tools continues the call that asked for them: both are below
one span, and the ids of the tool calls agree. OpenLIT repeats what was sent before, but not what
the model asked for, if that has no text.
"""

from collections import defaultdict
from collections.abc import Sequence

from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.passes.inputs import earlier_turns
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.span_tree import Place, place_of


def join(calls: Sequence[LlmCall]) -> list[LlmCall]:
    """Prepend the turns before the responses of tools to each input that begins with these.

    A conversation that is told in such pieces also lacks the earlier turns where its user speaks
    again. Those could be another agent's, so they are not added: the call is truncated.

    Args:
        calls: Model calls in time order; those that are completed or truncated are changed.

    Returns:
        The calls that were completed.
    """
    askers = _askers(calls)
    if not askers:
        return []
    conversations = {_conversation(call) for call in calls if place_of(call) in askers} - {None}
    begun_conversations = set()
    completed = []
    for call in calls:
        earlier, conversation = askers.get(place_of(call)), _conversation(call)
        if earlier is not None:
            earlier_turns.prepend(call, earlier, repeated=True)
            completed.append(call)
        if call.content == "full" and (
            earlier.content != "full"
            if earlier
            else conversation in begun_conversations and _is_alone(call)
        ):
            call.content = "truncated"
        if conversation in conversations:
            begun_conversations.add(conversation)
    return completed


def _conversation(call: LlmCall) -> tuple[str | None, str] | None:
    return (call.service_name, call.conversation_id) if call.conversation_id else None


def _is_alone(call: LlmCall) -> bool:
    return "assistant" not in [message["role"] for message in unpack(call).input_messages or ()]


def _askers(calls: Sequence[LlmCall]) -> dict[Place, LlmCall]:
    """Return the call that each call continues which begins with the responses of tools.

    Some servers number the tool calls of each answer separately. So the asking call is the only
    one that fits: under the same parent, before, with these tool calls, and not continued yet.
    """
    earlier: dict[Place, LlmCall] = {}
    if not any(call.history.unrequested_ids for call in calls):
        return earlier
    waiting: dict[Place, list[LlmCall]] = defaultdict(list)
    for call in calls:
        history = call.history
        siblings = waiting[call.trace_id, call.parent_span_id or ""]
        if (
            history.unrequested_ids
            and call.parent_span_id
            and not earlier_turns.has_earlier_turns(call)
        ):
            answered = set(history.unrequested_ids)
            fit = [one for one in siblings if _requested(answered, one)]
            if len(fit) == 1 and (fit[0].end_ns or 0) <= call.latest_start_ns:
                earlier[place_of(call)] = fit[0]
                siblings.remove(fit[0])
        if history.tool_call_ids:
            siblings.append(call)
    return earlier


def _requested(answered: set[str], call: LlmCall) -> bool:
    """Return whether a call asked for all responses that it did not send itself, or for all."""
    return (answered.difference(call.history.unrequested_ids) or answered) <= {
        *call.history.tool_call_ids
    }
