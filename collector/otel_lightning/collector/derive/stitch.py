"""Fields of a call that only other calls reveal: earlier turns, tool call ids, finish reason.

A provider that stores the history receives only new messages, so the earlier turns are in other
calls. Some instrumentations write the item id of a tool call (`fc_…`), while its response uses the
call id (`call_…`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.rows import History, LlmCall, Message, ToolCall
from otel_lightning.collector.derive.span_tree import Nodes, Place, place_of
from otel_lightning.collector.derive.text.hosted_tools import ITEM
from otel_lightning.collector.derive.text.packing import unpack

Part = dict[str, Any]
ANSWERED_WITHIN_NS = 60_000_000_000
"""Length (60 s) of the time interval in a mark. A call that sends only tool results is found if it
starts in the interval in which the requesting call ended, or in the next one."""


def add_earlier_turns(calls: Sequence[LlmCall]) -> list[LlmCall]:
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


def prepend(call: LlmCall, earlier: LlmCall) -> None:
    """Put the turns of an earlier call and its answer before those of a call that continues it."""
    kept = [*_turns(unpack(earlier).input_messages), *_answer(earlier)]
    own = unpack(call).input_messages or []
    system = [message for message in own if message["role"] == "system"]
    call.input_messages = [*system, *kept, *_turns(own)]


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
    asking = [call for call in calls if call.past.asked]
    if not any(map(item_ids, asking)):
        return
    for call in calls:
        answered = sum(1 for _ in _parts(call.input_messages, "tool_call_response"))
        _drop_continued(waiting, call)
        if answered and not has_past(call):
            alike = waiting[call.service_name, call.request_model, answered]
            ended = [one for one in alike if (one.end_ns or 0) <= call.latest_start_ns]
            own = [one for one in ended if one.trace_id == call.trace_id]
            # The latest of the same trace; or the only one elsewhere, since several cannot be told
            # apart.
            if len(found := own[-1:] or ended) == 1:
                alike.remove(found[0])
                previous = {"previous_response_id": found[0].response_id}
                call.request_params = {**previous, **call.request_params}
        if asked := item_ids(call):
            waiting[call.service_name, call.request_model, len(asked)].append(call)


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
    if call.past.asked and (asked := item_ids(call)):
        ended = (call.end_ns or 0) // ANSWERED_WITHIN_NS
        yield from ((f"{alike} {len(asked)} {at}", True) for at in (ended, ended + 1))
    elif call.past.answers and not has_past(call):
        answered = sum(1 for _ in _parts(call.input_messages, "tool_call_response"))
        yield f"{alike} {answered} {(call.start_ns or 0) // ANSWERED_WITHIN_NS}", False


def has_past(call: LlmCall) -> bool:
    """Tell whether a call names the response before it, or its input has the assistant's turns."""
    if "previous_response_id" in call.request_params:
        return True
    return any(message["role"] == "assistant" for message in call.input_messages or ())


def _drop_continued(waiting: Mapping[tuple[Any, ...], list[LlmCall]], call: LlmCall) -> None:
    """Drop waiting calls that `call` continues: it repeats their tool calls or names their id."""
    previous = call.request_params.get("previous_response_id")
    shown = {part.get("id") for part in _parts(call.input_messages, "tool_call")}
    for alike in waiting.values() if previous or shown else ():
        alike[:] = [
            one for one in alike if one.response_id != previous and shown.isdisjoint(item_ids(one))
        ]


def _turns(messages: Iterable[Message] | None) -> list[Message]:
    """Return all messages but the system prompt, which a provider does not store."""
    return [message for message in messages or [] if message["role"] != "system"]


def _answer(call: LlmCall) -> list[Message]:
    outputs = call.output_messages or []
    return [{"role": "assistant", "parts": outputs[0]["parts"]}] if outputs else []


def meet_ids(calls: Sequence[LlmCall]) -> None:
    """Give tool calls the ids that their responses use, if these differ within a rollout.

    Args:
        calls: The model calls of one rollout, in order; changed in place.
    """
    if False not in [_ids_meet(call.past) for call in calls]:
        return
    names: dict[str, str] = {}
    asked: list[str] = []
    for call in calls:
        # Ids of a history are compared within it, and with the output of the call before.
        names |= _disagreements(call.input_messages or [], asked)
        asked = [part["id"] for part in _parts(call.output_messages, "tool_call") if part.get("id")]
    if not names:
        return
    for call in calls:
        call.input_messages = _renamed(call.input_messages, names)
        call.output_messages = _renamed(call.output_messages, names)


def _ids_meet(past: History) -> bool:
    """Tell whether each response of a history has the id of a tool call, and no id is an item's."""
    if not past.asked:
        return past.is_paired
    return past.is_paired and not any(one and one.startswith(ITEM) for one in past.asked)


def _renamed(messages: list[Message] | None, names: Mapping[str, str]) -> list[Message] | None:
    """Return messages with replaced tool call ids, as copies: calls may share a message object."""
    return messages and [
        message
        if names.keys().isdisjoint(part.get("id") for part in _parts([message], "tool_call"))
        else message | {"parts": [_named(part, names) for part in message["parts"]]}
        for message in messages
    ]


def _named(part: Part, names: Mapping[str, str]) -> Part:
    asked = part["type"] == "tool_call" and part.get("id") in names
    return part | {"id": names[part["id"]]} if asked else part


def _disagreements(history: Sequence[Message], asked: Sequence[str]) -> Mapping[str, str]:
    """Pair tool call ids that no response uses with response ids that no tool call has, in order.

    Args:
        history: The input of one call.
        asked: Tool call ids in the output of the previous call. They are used until the history
            shows tool calls itself.

    Returns:
        The id to replace, with its replacement.
    """
    turns = _tool_turns(history, asked)
    names: dict[str, str] = {}
    # The calls that were asked for have no place in the history if it lost its tool calls. Where a
    # later response uses one of their ids, the first responses are not theirs.
    later = {one for turn in turns[1:] for one in turn.responses}
    for turn in turns[1:] if later.intersection(asked) else turns:
        names |= _paired(turn)
    # Traceloop's output names `fc_…` where the next input names `call_…`. If the last tool calls of
    # the history are as many as the asked ones and share no id with them, they are the same calls
    # in the same order.
    repeated = next((turn.calls for turn in reversed(turns[1:]) if turn.calls), [])
    if len(repeated) == len(asked) and set(repeated).isdisjoint(asked):
        pairs = zip(asked, repeated, strict=True)
        names |= {item: shown for item, shown in pairs if item.startswith(ITEM)}
    return {orphan: met for orphan, met in names.items() if orphan and met}


class _ToolTurn(NamedTuple):
    """The tool call ids of one assistant message, and the ids of the responses that follow it."""

    calls: list[str]
    responses: list[str]


def _tool_turns(history: Iterable[Message], asked: Sequence[str]) -> list[_ToolTurn]:
    """Split a history at its assistant messages; what comes before the first answers `asked`."""
    turns = [_ToolTurn(list(asked), [])]
    for message in history:
        if message["role"] == "assistant":
            turns.append(_ToolTurn(_ids(message, "tool_call"), []))
        turns[-1].responses.extend(_ids(message, "tool_call_response"))
    return turns


def _paired(turn: _ToolTurn) -> Mapping[str, str]:
    """Pair the calls of a turn that have no response with the responses that have no call."""
    orphans = [call for call in turn.calls if call not in turn.responses]
    strangers = [response for response in turn.responses if response not in turn.calls]
    # A tool that was not executed leaves an id without a partner.
    return dict(zip(orphans, strangers, strict=False))


def _ids(message: Message, kind: str) -> list[str]:
    parts = message["parts"]
    if len(parts) == 1 and parts[0]["type"] != kind:
        return []
    return [part["id"] for part in parts if part["type"] == kind]


def _parts(messages: Iterable[Message] | None, kind: str) -> Iterator[Part]:
    for message in messages or []:
        yield from (part for part in message["parts"] if part["type"] == kind)


def settle_stops(calls: Sequence[LlmCall], tools: Iterable[ToolCall], nodes: Nodes) -> None:
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
    beside: dict[Place, list[int]] = defaultdict(list)
    for tool in tools:
        node = nodes[tool.trace_id or "", tool.span_id or ""]
        beside[node.parent].append(node.start_ns or 0)
    # By parent span: the start of the next call, since calls are visited from the last to the
    # first.
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
            # Unknown: tools ran inside the call, or no parent span shows which tools ran after it.
            call.finish_reason = None


def _is_unsettled(call: LlmCall) -> bool:
    stopped = call.finish_reason == "stop" and span_rows.is_gemini(call)
    return stopped and not unpack(call).output_messages
