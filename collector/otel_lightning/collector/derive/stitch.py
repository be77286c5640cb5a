"""What a call says only beside the others: earlier turns, ids that meet, how it really ended.

A provider that keeps the history is sent only what is new, and some layers name a tool call by its
item (`fc_…`) where the response names the call (`call_…`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from otel_lightning.collector.derive import reading
from otel_lightning.collector.derive.rows import LlmCall, Message, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes, Place, place_of
from otel_lightning.collector.derive.text.hosted_tools import ITEM
from otel_lightning.collector.derive.text.packing import unpack

Part = dict[str, Any]
ANSWERED_WITHIN_NS = 60_000_000_000
"""A call that sends results alone is looked for within one to two such times of the asking one."""


def add_earlier_turns(calls: Sequence[LlmCall]) -> list[LlmCall]:
    """Put the turns that a provider kept before what a call sent: the model saw them too.

    Args:
        calls: Model calls in time order; one that names a previous response is completed in place.

    Returns:
        The calls that were completed.
    """
    completed: list[LlmCall] = []
    resumed = [call for call in calls if "previous_response_id" in call.request_params]
    if not resumed:
        return completed
    answered = {call.response_id: call for call in calls if call.response_id}
    for call in resumed:
        earlier = answered.get(str(call.request_params["previous_response_id"]))
        if earlier is not None and earlier is not call:
            kept = [*_turns(unpack(earlier).input_messages), *_answer(earlier)]
            own = unpack(call).input_messages or []
            system = [message for message in own if message["role"] == "system"]
            call.input_messages = [*system, *kept, *_turns(own)]
            completed.append(call)
    return completed


def infer_previous(calls: Sequence[LlmCall]) -> None:
    """Find the response that a call continues, where a layer records neither ids nor previous one.

    Traceloop writes the ids of the Responses API's items (`fc_…`), which no response to a tool call
    names, and not the id of the previous response. A call that sends nothing but such responses
    continues the only call before it, of the same service and model, that asked for as many tools
    by such ids and was not continued yet; of its own trace, if there is one. Several tasks at once
    that are alike are not told apart.

    Args:
        calls: Model calls in time order; those that continue another are changed in place.
    """
    waiting: dict[tuple[Any, ...], list[LlmCall]] = defaultdict(list)
    if not any(item_ids(call) for call in calls):
        return
    for call in calls:
        answered = sum(1 for _ in _parts(call.input_messages, "tool_call_response"))
        _drop_continued(waiting, call)
        if answered and not _has_past(call):
            alike = waiting[call.service_name, call.request_model, answered]
            ended = [one for one in alike if (one.end_ns or 0) <= (call.start_ns or 0)]
            own = [one for one in ended if one.trace_id == call.trace_id]
            if len(found := own[-1:] or ended) == 1:
                alike.remove(found[0])
                previous = {"previous_response_id": found[0].response_id}
                call.request_params = {**previous, **call.request_params}
        if asked := item_ids(call):
            waiting[call.service_name, call.request_model, len(asked)].append(call)


def item_ids(call: LlmCall) -> list[str]:
    """Return the ids of the tool calls that a response asked for, if they are those of its items.

    A list where one is the tool call's own id is none of this kind.
    """
    ids = [str(part.get("id")) for part in _parts(call.output_messages, "tool_call")]
    return ids if call.response_id and ids and all(one.startswith(ITEM) for one in ids) else []


def marks(call: LlmCall) -> Iterator[tuple[str, bool]]:
    """Yield how traces that `infer_previous` may bring together find each other.

    Yields:
        A mark of service, model, number of tool calls and minute; whether the call asked for them,
        or sends what they returned.
    """
    alike = f"items {call.service_name} {call.request_model}"
    if asked := item_ids(call):
        ended = (call.end_ns or 0) // ANSWERED_WITHIN_NS
        yield from ((f"{alike} {len(asked)} {at}", True) for at in (ended, ended + 1))
    elif sends_results_alone(call):
        answered = sum(1 for _ in _parts(call.input_messages, "tool_call_response"))
        yield f"{alike} {answered} {(call.start_ns or 0) // ANSWERED_WITHIN_NS}", False


def sends_results_alone(call: LlmCall) -> bool:
    """Tell whether a call sends responses to tool calls and nothing of what was said before."""
    return not _has_past(call) and any(_parts(call.input_messages, "tool_call_response"))


def _has_past(call: LlmCall) -> bool:
    if "previous_response_id" in call.request_params:
        return True
    return any(message["role"] == "assistant" for message in call.input_messages or ())


def _drop_continued(waiting: Mapping[tuple[Any, ...], list[LlmCall]], call: LlmCall) -> None:
    """Drop the calls whose tool calls a history repeats, or that a call names as the previous."""
    previous = call.request_params.get("previous_response_id")
    shown = {part.get("id") for part in _parts(call.input_messages, "tool_call")}
    for alike in waiting.values() if previous or shown else ():
        alike[:] = [
            one for one in alike if one.response_id != previous and shown.isdisjoint(item_ids(one))
        ]


def _turns(messages: Iterable[Message] | None) -> list[Message]:
    """Return all but the system prompt, which a provider does not keep."""
    return [message for message in messages or [] if message["role"] != "system"]


def _answer(call: LlmCall) -> list[Message]:
    outputs = call.output_messages or []
    return [{"role": "assistant", "parts": outputs[0]["parts"]}] if outputs else []


def meet_ids(calls: Sequence[LlmCall]) -> None:
    """Give tool calls the id that their responses use, where a rollout's messages disagree.

    Args:
        calls: The model calls of one rollout, in order; changed in place.
    """
    names: dict[str, str] = {}
    asked: list[str] = []
    for call in calls:
        names |= _disagreements(call.input_messages or [], asked)
        asked = [part["id"] for part in _parts(call.output_messages, "tool_call") if part.get("id")]
    if not names:
        return
    for call in calls:
        call.input_messages = _renamed(call.input_messages, names)
        call.output_messages = _renamed(call.output_messages, names)


def _renamed(messages: list[Message] | None, names: Mapping[str, str]) -> list[Message] | None:
    """Return messages with other ids for tool calls; they may be shared, so not one is changed."""
    return messages and [
        message
        if names.keys().isdisjoint(part.get("id") for part in _parts([message], "tool_call"))
        else message | {"parts": [_named(part, names) for part in message["parts"]]}
        for message in messages
    ]


def _named(part: Part, names: Mapping[str, str]) -> Part:
    asked = part["type"] == "tool_call" and part.get("id") in names
    return part | {"id": names[part["id"]]} if asked else part


def _disagreements(history: Iterable[Message], asked: Sequence[str]) -> Mapping[str, str]:
    """Pair, in order, the ids of a turn that no response uses with the responses' that no call has.

    Args:
        history: One call's input.
        asked: The ids that the call before asked with: they count until the history has its own.
    """
    names: dict[str, str] = {}
    calls, responses = list(asked), list[str]()
    shown, last = list[str](), list[str]()
    for message in [*history, {"role": "assistant", "parts": []}]:
        if message["role"] == "assistant":
            orphans = [call for call in calls if call not in responses]
            strangers = [response for response in responses if response not in calls]
            names |= dict(zip(orphans, strangers, strict=False))
            shown, last = [part["id"] for part in _parts([message], "tool_call")], shown or last
            calls, responses = list(shown), []
        responses += [part["id"] for part in _parts([message], "tool_call_response")]
    last = shown or last
    if len(last) == len(asked) and not set(last) & set(asked):  # the turn repeats what was asked
        names |= {one: met for one, met in zip(asked, last, strict=True) if one.startswith(ITEM)}
    return {orphan: met for orphan, met in names.items() if orphan and met}


def _parts(messages: Iterable[Message] | None, kind: str) -> Iterator[Part]:
    for message in messages or []:
        yield from (part for part in message["parts"] if part["type"] == kind)


def settle_stops(calls: Sequence[LlmCall], tools: Iterable[ToolCall], nodes: Nodes) -> None:
    """Settle whether `stop` of Gemini's semantics, which includes tool calls, was a request.

    Args:
        calls: Model calls in time order; those without recorded output are changed in place.
        tools: All tool executions.
        nodes: All spans: a tool that a call asked for runs beside it, before the next call.
    """
    if not any(_is_unsettled(call) for call in calls):
        return
    beside: dict[Place, list[int]] = defaultdict(list)
    for tool in tools:
        node = nodes[tool.trace_id or "", tool.span_id or ""]
        beside[node.parent].append(node.start_ns or 0)
    following: dict[Place, int] = {}
    for call in reversed(calls):
        around = nodes[place_of(call)].parent
        until = following.get(around)
        following[around] = call.start_ns or 0
        if not _is_unsettled(call):
            continue
        starts = (start for start in beside[around] if start >= (call.end_ns or 0))
        if any(until is None or start < until for start in starts):
            call.finish_reason = "tool_calls"
        elif place_of(call) in beside or not around[1]:
            # Tools ran within it, maybe for it; or a bare SDK's: what ran after is not to be seen.
            call.finish_reason = None


def _is_unsettled(call: LlmCall) -> bool:
    stopped = call.finish_reason == "stop" and reading.is_gemini(call)
    return stopped and not unpack(call).output_messages
