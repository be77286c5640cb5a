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
from otel_lightning.collector.derive.text.packing import unpack

Part = dict[str, Any]


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
    for message in [*history, {"role": "assistant", "parts": []}]:
        if message["role"] == "assistant":
            orphans = [call for call in calls if call not in responses]
            strangers = [response for response in responses if response not in calls]
            names |= dict(zip(orphans, strangers, strict=False))
            calls, responses = [part["id"] for part in _parts([message], "tool_call")], []
        responses += [part["id"] for part in _parts([message], "tool_call_response")]
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
