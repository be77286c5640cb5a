"""Merge the records of one model call into one row: each field from the record that knows it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from otel_lightning.collector.derive.content_state import content_state
from otel_lightning.collector.derive.messages import tool_parts
from otel_lightning.collector.derive.messages.packing import has_input, has_output, outputs, unpack
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.span_tree import Place, place_of

FIELDS = tuple(field.name for field in fields(LlmCall))
CONTENT_RANK = {"full": 0, "truncated": 1, "redacted": 2, "absent": 3}
FROM_RICHEST = (
    *("dialect", "content", "input_messages", "output_messages", "tool_definitions"),
    "from_executions",
)
"""Fields taken together from the record with the most content, so that they are consistent."""
FROM_POLL = (
    *("end_ns", "output_messages", "finish_reason", "error_type", "error_message"),
    *("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens"),
    *("cache_creation_input_tokens", "cost", "is_broken_off", "lost_arguments"),
    *("prompt_token_ids", "completion_token_ids", "completion_logprobs"),
)
"""Fields taken from the poll that got the answer of a response in the background."""
FROM_OUTERMOST = ("agent_name", "conversation_id")
"""Fields taken from the outermost record: an agent framework knows them, an SDK does not."""


def merge(records: Iterable[LlmCall], depth: Mapping[Place, int]) -> LlmCall:
    """Merge the records of one call into one row.

    Args:
        records: The records.
        depth: Number of calls above each record.
    """
    # Innermost first: the innermost record gives ids and times.
    layers = [unpack(layer) for layer in sorted(records, key=lambda one: _inner_first(one, depth))]
    if are_polls(layers):
        return _polled(layers)
    richest = min(layers, key=_content_rank)
    call = replace(layers[0], **{name: getattr(richest, name) for name in FROM_RICHEST})
    _place(call, layers)
    call.lost_ids = any(layer.lost_ids for layer in layers)
    call.late_end = any(layer.late_end for layer in layers)
    call.lost_arguments = any(layer.lost_arguments for layer in layers)
    call.lost_answers = any(layer.lost_answers for layer in layers)
    _fill_unknown(call, layers)
    _choose_model_and_counts(call, layers)
    # Outermost first, so that the innermost value of a parameter wins: it is the closest to the
    # request.
    call.request_params = {k: v for layer in layers[::-1] for k, v in layer.request_params.items()}
    _settle_end(call, layers[-1])
    return call


def are_polls(records: Sequence[LlmCall]) -> bool:
    """Return whether one record is the request of a response, and the others only fetched it.

    Such a response runs in the background: the record of the request has no answer, and those of
    the polls have no input. The last poll has the answer.
    """
    halves = [(has_input(record), has_output(record)) for record in records]
    is_asked_once = [sent for sent, _ in halves].count(True) == 1
    return is_asked_once and (True, False) in halves and (False, True) in halves


def _polled(records: Sequence[LlmCall]) -> LlmCall:
    """Return the call of a response in the background: its request, with the answer of a poll."""
    polls = [record for record in records if not has_input(record)]
    (asked,) = (record for record in records if has_input(record))
    answered = max(filter(has_output, polls), key=lambda poll: (poll.end_ns or 0, place_of(poll)))
    call = replace(asked, **{name: getattr(answered, name) for name in FROM_POLL})
    call.response_model = asked.response_model or answered.response_model
    call.merged_places = sorted(map(place_of, polls))
    call.merged_span_ids = sorted({poll.span_id for poll in polls})
    call.content = content_state(call, cut=call.is_broken_off)
    return call


def _place(call: LlmCall, layers: Sequence[LlmCall]) -> None:
    """Set the ids of a merged call, its parent, and the spans that were merged into it."""
    outer, home = layers[-1], _home(layers)
    # A parent's span id has a meaning only in its own trace.
    above = outer if outer.trace_id == home.trace_id else home
    call.parent_span_id = above.parent_span_id
    call.trace_id, call.span_id, call.history = home.trace_id, home.span_id, home.history
    places = {place_of(layer) for layer in layers}
    call.merged_places = sorted(places - {place_of(home)})
    call.merged_span_ids = sorted({layer.span_id for layer in layers} - {home.span_id})


def _fill_unknown(call: LlmCall, layers: Sequence[LlmCall]) -> None:
    """Take each field that the merged call lacks from the innermost record that has it."""
    outer = layers[-1]
    if is_instant(outer):  # the end of a stream, so its error is that of the call
        call.error_type = call.error_type or outer.error_type
    for name in FROM_OUTERMOST:
        setattr(call, name, _first(layers[::-1], name))
    for name in FIELDS:
        # The innermost record decides whether the call failed: an outer layer may fail after the
        # model answered. Without an error, a message of one would be wrong.
        is_unknown = getattr(call, name) is None and name != "error_type"
        if is_unknown and (name != "error_message" or call.error_type):
            setattr(call, name, _first(layers, name))


def _choose_model_and_counts(call: LlmCall, layers: Sequence[LlmCall]) -> None:
    """Correct the model that answered and the count of its tokens, which a record may not know."""
    # Some records repeat the requested model as the one that answered, where others know it.
    answering = (one for one in layers if one.response_model not in (None, one.request_model))
    if (record := next(answering, None)) is not None:
        call.response_model = record.response_model
    if any(layer.error_type and layer.input_tokens and not layer.output_tokens for layer in layers):
        call.output_tokens = None  # another record has the count of the stream's start


def _settle_end(call: LlmCall, outer: LlmCall) -> None:
    """Set error and content of a call whose answer is missing or broken off."""
    if call.error_type is None and not call.output_messages and call.operation != "embeddings":
        # The record with the content is one that failed, so it has no answer.
        call.content = "truncated" if call.content == "full" else call.content
    if call.finish_reason == "error" and call.error_type is None:
        # The SDK of a client that left the stream does not tell how it ended.
        call.error_type, call.error_message = outer.error_type, outer.error_message
    # The record with the content may not know that the answer was broken off, by the limit of
    # tokens or by an error.
    if call.finish_reason == "length" and call.output_messages:
        whole = [{**one, "parts": [{**p} for p in one["parts"]]} for one in call.output_messages]
        if tool_parts.forget_completed_arguments(whole):
            call.output_messages, call.content = whole, "truncated"
    if call.finish_reason == "error" and call.content == "full" and call.output_messages:
        call.content = "truncated"


def _home(layers: Sequence[LlmCall]) -> LlmCall:
    """Return the record whose trace id and span id the merged call gets.

    An SDK that was not called inside the framework's span writes a separate trace, without the
    agent and its tools. So the trace is that of the outermost record with a parent, and the record
    is the innermost one in this trace.
    """
    traces = [layer.trace_id for layer in layers if layer.parent_span_id]
    home = traces[-1] if traces else layers[0].trace_id
    return next(layer for layer in layers if layer.trace_id == home)


def _content_rank(call: LlmCall) -> tuple[int, int, bool]:
    """Return a sort key by which the record with the most content is the smallest."""
    parts = [part for message in call.output_messages or [] for part in message["parts"]]
    # Of equals, the record with the arguments as the model wrote them wins: token ids can be
    # compared with these only.
    has_raw = all("arguments_raw" in part for part in parts if part["type"] == "tool_call")
    return CONTENT_RANK[call.content], -len(tool_call_ids(call)), not has_raw


def _first(layers: Iterable[LlmCall], name: str) -> Any:
    values = (getattr(layer, name) for layer in layers)
    return next((value for value in values if value is not None), None)


def is_instant(call: LlmCall) -> bool:
    """Return whether a record took no time: it is the record of a late answer."""
    return call.start_ns is not None and call.start_ns == call.end_ns


def tool_call_ids(call: LlmCall) -> set[str]:
    """Return the ids of the tool calls in the output of a call."""
    parts = tool_parts.parts_of(outputs(call), "tool_call")
    return {part["id"] for part in parts if part.get("id")}


def _inner_first(call: LlmCall, depth: Mapping[Place, int]) -> tuple[bool, int, int, int, Place]:
    place = place_of(call)
    # False sorts first: the record of a late answer is the outermost. Next to each other, the
    # record with the shorter time is the inner one.
    return is_instant(call), -depth.get(place, 0), -(call.start_ns or 0), call.end_ns or 0, place
