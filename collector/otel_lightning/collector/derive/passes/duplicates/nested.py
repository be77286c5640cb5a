"""Records of one model call inside each other, and spans that sum up several calls."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from otel_lightning.collector.derive import time_order
from otel_lightning.collector.derive.messages.packing import has_output, outputs
from otel_lightning.collector.derive.passes.answers.unanswered_calls import is_unanswered
from otel_lightning.collector.derive.passes.duplicates.equal_answers import agree, comparable_parts
from otel_lightning.collector.derive.passes.duplicates.merged_records import tool_call_ids
from otel_lightning.collector.derive.passes.duplicates.sdk_records import failed_midway
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.span_tree import Nodes, Place, nearest_above, place_of
from otel_lightning.collector.derive.text.json_text import parse


def calls_below(
    by_place: Mapping[Place, LlmCall],
    nodes: Nodes,
    above: Mapping[Place, Place],
    between: Collection[Place],
) -> dict[Place, list[LlmCall]]:
    """Return the calls whose nearest call above is this one, with no tool or agent between them.

    Args:
        by_place: All calls.
        nodes: All spans.
        above: The nearest call above each call.
        between: The spans of tools and agents.
    """
    if above and between:
        nearest = nearest_above(nodes, {**dict.fromkeys(between), **by_place})
        above = {place: up for place, up in above.items() if nearest[place] == up}
    below: dict[Place, list[LlmCall]] = defaultdict(list)
    for place, up in above.items():
        below[up].append(by_place[place])
    return below


def find_aggregates(
    below: Mapping[Place, Sequence[LlmCall]], repeated: Collection[Place]
) -> set[Place]:
    """Return the spans that sum up several calls below them.

    A span above two records of one call sums up nothing, nor does one above failed attempts.

    Args:
        below: The calls below each call.
        repeated: The records of failed calls that others repeat.
    """
    return {
        place
        for place, inner in below.items()
        if len(_identities(inner, repeated)) > 1 and not all(map(_is_attempt, inner))
    }


def pairs(
    by_place: Mapping[Place, LlmCall],
    below: Mapping[Place, Sequence[LlmCall]],
    aggregates: Collection[Place],
) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield each call with the only call below it, where the two have equal outputs.

    If several attempts failed, the last one is the call's; the others count as calls of their own.
    """
    for place, inner in below.items():
        if place in aggregates:
            continue
        outer = by_place[place]
        # Otherwise, all records below are of one call: else the span would be an aggregate.
        duplicates = [max(inner, key=time_order.of_call)] if all(map(_is_attempt, inner)) else inner
        if all(_same_output(outer, one) for one in duplicates):
            yield from ((outer, one) for one in duplicates if place_of(one) not in aggregates)


def _is_attempt(call: LlmCall) -> bool:
    """Return whether a record only says that an attempt of a call failed: it names no model."""
    named = call.request_model or call.response_model
    return call.error_type is not None and named is None and call.content == "absent"


def _identities(calls: Iterable[LlmCall], repeated: Collection[Place]) -> set[str]:
    """Return an id of each call that some records are of.

    Args:
        calls: The records.
        repeated: The records of failed calls that others repeat.
    """
    return {call.response_id or call.span_id for call in calls if place_of(call) not in repeated}


def _same_output(outer: LlmCall, inner: LlmCall) -> bool:
    """Return whether two nested calls have the same answer, as far as both recorded one."""
    if outer.response_id and inner.response_id:
        return outer.response_id == inner.response_id
    # OpenLIT records one of the parallel tool calls of Responses.
    if tool_call_ids(outer) & tool_call_ids(inner):
        return True
    only_inner_failed = inner.error_type and not (has_output(inner) or outer.error_type)
    is_same_stream = failed_midway(inner) and outer.finish_reason is None
    if only_inner_failed and not is_unanswered(outer) and not is_same_stream:
        return False  # another attempt answered, which is not recorded by itself
    if _lacks_tool_calls(outer, inner):
        return True
    return agree(outer, inner) and not _differ_in_tokens(outer, inner)


def _lacks_tool_calls(outer: LlmCall, inner: LlmCall) -> bool:
    """Return whether the outer record has the inner one's text and not its tool calls.

    Or the arguments of the only one as its text: a framework asks for structured output that way.
    """
    texts, inner_parts = comparable_parts(outputs(outer)), comparable_parts(outputs(inner))
    tool_calls = [part for part in inner_parts if part["type"] == "tool_call"]
    if not texts or not tool_calls or any(part["type"] != "text" for part in texts):
        return False
    if texts == [part for part in inner_parts if part not in tool_calls]:
        return True
    return [parse(part["content"]) for part in texts] == [part["arguments"] for part in tool_calls]


def _differ_in_tokens(one: LlmCall, other: LlmCall) -> bool:
    """Return whether two records differ in both token counts, if content cannot be compared."""
    if has_output(one) and has_output(other):
        return False
    pairs = (one.input_tokens, other.input_tokens), (one.output_tokens, other.output_tokens)
    return all(None not in pair and pair[0] != pair[1] for pair in pairs)
