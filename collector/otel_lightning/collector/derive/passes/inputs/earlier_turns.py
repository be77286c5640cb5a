"""Earlier turns of a call's input, which only other calls show.

A provider that stores the history receives only new messages, so the earlier turns are in other
calls.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from otel_lightning.collector.derive.messages.hosted_tools import ITEM
from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.messages.tool_parts import parts_of
from otel_lightning.collector.derive.rows import LlmCall, Message

ANSWERED_WITHIN_NS = 60_000_000_000
"""Length (60 s) of the time interval in a mark. A call that sends only tool results is found if it
starts in the interval in which the requesting call ended, or in the next one."""


def add(calls: Sequence[LlmCall]) -> list[LlmCall]:
    """Prepend the turns that the provider stored to a call's input, as the model saw them too.

    Args:
        calls: Model calls in time order; those that name a previous response are changed in place.

    Returns:
        The calls that were changed.
    """
    completed: list[LlmCall] = []
    resumed = [call for call in calls if "previous_response_id" in call.request_params]
    if not resumed:
        return completed
    answered = {call.response_id: call for call in calls if call.response_id}
    for call in resumed:
        # In time order the earlier call was completed before, so it has the whole history.
        earlier = answered.get(str(call.request_params["previous_response_id"]))
        if earlier is not None and earlier is not call:
            prepend(call, earlier)
            completed.append(call)
    return completed


def prepend(call: LlmCall, earlier: LlmCall, *, repeated: bool = False) -> None:
    """Put the turns of an earlier call and its answer before those of a call that continues it.

    Args:
        call: The call; changed in place.
        earlier: The call that it continues.
        repeated: Whether a call that begins with the same turn repeats the turns of the earlier
            one. It has these only once then.
    """
    earlier_turns = [*_turns(unpack(earlier).input_messages), *_answer(earlier)]
    own = unpack(call).input_messages or []
    system = [message for message in own if message["role"] == "system"]
    turns, remaining = _turns(own), iter(earlier_turns)
    if repeated and turns[:1] == earlier_turns[:1]:
        # `in` goes on from the last turn that was found, so turns in the same order are dropped.
        turns = [*dropwhile(lambda turn: turn in remaining, turns)]
    call.input_messages = [*system, *earlier_turns, *turns]


def infer_previous(calls: Sequence[LlmCall]) -> None:
    """Infer the previous response of a call if the instrumentation recorded no usable id.

    Traceloop writes the item ids of the Responses API (`fc_…`), which no tool response uses, and
    omits the id of the previous response. A call that sends only tool responses continues an
    earlier call if that is the only one with the same service, the same model and the same number
    of tool calls with item ids that was not continued yet. A call of the same trace is preferred.
    Similar tasks that run at the same time cannot be told apart, so nothing is inferred for them.

    Args:
        calls: Model calls in time order; those that continue another are changed in place.
    """
    # By service, model and number of tool calls: the calls that no later call continued yet.
    waiting: dict[tuple[Any, ...], list[LlmCall]] = defaultdict(list)
    asking = [call for call in calls if call.history.tool_call_ids]
    if not any(map(item_ids, asking)):
        return
    for call in calls:
        answered = sum(1 for _ in parts_of(call.input_messages, "tool_call_response"))
        _drop_continued(waiting, call)
        if answered and not has_earlier_turns(call):
            alike = waiting[call.service_name, call.request_model, answered]
            ended = [one for one in alike if (one.end_ns or 0) <= call.latest_start_ns]
            own = [one for one in ended if one.trace_id == call.trace_id]
            # The latest of the same trace; or the only one elsewhere, since several cannot be told
            # apart.
            if len(candidates := own[-1:] or ended) == 1:
                alike.remove(candidates[0])
                previous = {"previous_response_id": candidates[0].response_id}
                call.request_params = {**previous, **call.request_params}
        if ids := item_ids(call):
            waiting[call.service_name, call.request_model, len(ids)].append(call)


def item_ids(call: LlmCall) -> list[str]:
    """Return the ids of the tool calls in a response if all are item ids, otherwise []."""
    ids: list[str] = []
    if not call.response_id:
        return ids
    for message in call.output_messages or ():
        for part in message["parts"]:
            if part["type"] == "tool_call":
                if not str(part.get("id")).startswith(ITEM):
                    return []
                ids.append(str(part.get("id")))
    return ids


def marks(call: LlmCall) -> Iterator[tuple[str, bool]]:
    """Yield the marks by which traces find each other that `infer_previous` may connect.

    Yields:
        A mark made of service, model, number of tool calls and minute; and True if the call
        requested the tools, False if it sends their results.
    """
    alike = f"items {call.service_name} {call.request_model}"
    if call.history.tool_call_ids and (ids := item_ids(call)):
        ended = (call.end_ns or 0) // ANSWERED_WITHIN_NS
        yield from ((f"{alike} {len(ids)} {at}", True) for at in (ended, ended + 1))
    elif call.history.has_responses and not has_earlier_turns(call):
        answered = sum(1 for _ in parts_of(call.input_messages, "tool_call_response"))
        yield f"{alike} {answered} {(call.start_ns or 0) // ANSWERED_WITHIN_NS}", False


def has_earlier_turns(call: LlmCall) -> bool:
    """Return whether a call names the response before it, or its input has assistant turns."""
    if "previous_response_id" in call.request_params:
        return True
    return any(message["role"] == "assistant" for message in call.input_messages or ())


def _drop_continued(waiting: Mapping[tuple[Any, ...], list[LlmCall]], call: LlmCall) -> None:
    """Drop waiting calls that `call` continues: it repeats their tool calls or names their id."""
    previous = call.request_params.get("previous_response_id")
    repeated_ids = {part.get("id") for part in parts_of(call.input_messages, "tool_call")}
    for alike in waiting.values() if previous or repeated_ids else ():
        alike[:] = [
            one
            for one in alike
            if one.response_id != previous and repeated_ids.isdisjoint(item_ids(one))
        ]


def _turns(messages: Iterable[Message] | None) -> list[Message]:
    """Return all messages but the system prompt, which a provider does not store."""
    return [message for message in messages or [] if message["role"] != "system"]


def _answer(call: LlmCall) -> list[Message]:
    outputs = call.output_messages or []
    return [{"role": "assistant", "parts": outputs[0]["parts"]}] if outputs else []
