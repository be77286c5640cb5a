"""Give inputs the tool calls that a sender leaves out of histories, without the ids of results.

Sentry and Future AGI's traceAI write so what LangChain's models are sent. The answers of the calls
before have the tool calls.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.messages.tool_parts import parts_of
from otel_lightning.collector.derive.rows import LlmCall, Message

SCOPES = ("@sentry/", "traceai_langchain")
"""Prefixes of the scopes of such packages. LangChain sends results in the order in which they were
asked for; others, such as TanStack AI, may not."""
Askers = Mapping[tuple[str, int], list[tuple[list[Message], LlmCall]]]
"""Calls that asked for tools, by trace and number of messages sent; each with these messages."""


def fill(calls: Sequence[LlmCall]) -> list[LlmCall]:
    """Complete the inputs that have results of tools, but neither tool calls nor ids.

    Args:
        calls: Model calls in time order; those that are completed are changed.

    Returns:
        The calls that were completed.
    """
    lacking = {id(call) for call in calls if _lacks_tool_calls(call)}
    if not lacking:  # as in most batches
        return []
    askers: defaultdict[tuple[str, int], list[tuple[list[Message], LlmCall]]] = defaultdict(list)
    completed = []
    for call in calls:
        sent = unpack(call).input_messages or []
        if id(call) in lacking and (whole := _with_tool_calls(call, sent, askers)):
            call.input_messages = whole
            completed.append(call)
        if call.history.tool_call_ids and len(call.output_messages or ()) == 1:
            askers[call.trace_id, len(sent)].append((sent, call))
    return completed


def _lacks_tool_calls(call: LlmCall) -> bool:
    history = call.history
    if not (call.scope_name or "").startswith(SCOPES):
        return False
    if not history.has_responses or history.is_paired or history.unrequested_ids:
        return False
    sent = unpack(call).input_messages
    known = (part.get("id") for part in parts_of(sent, "tool_call_response"))
    return not any(known) and not any(True for _ in parts_of(sent, "tool_call"))


def _with_tool_calls(call: LlmCall, sent: list[Message], askers: Askers) -> list[Message] | None:
    """Return an input with its tool calls, or None if a call that asked for them is not known."""
    whole: list[Message] = []
    roles = [message["role"] for message in sent]
    done = 0
    while "tool" in roles[done:]:
        first = results = roles.index("tool", done)
        while first > done and roles[first - 1] == "assistant":
            first -= 1
        asked = _asked(call, sent[:first], sent[first:results], askers)
        ids = [part.get("id") for part in asked if part["type"] == "tool_call"]
        last = results + len(ids)
        if not ids or roles[results:last] != ["tool"] * len(ids):
            return None
        whole += [*sent[done:first], {"role": "assistant", "parts": asked}]
        for call_id, message in zip(ids, sent[results:last], strict=True):
            whole.append({**message, "parts": [{**message["parts"][0], "id": call_id}]})
        done = last
    return [*whole, *sent[done:]]


def _asked(
    call: LlmCall, before: list[Message], turn: list[Message], askers: Askers
) -> list[dict[str, Any]]:
    """Return the parts of the answer that asked for some results; [] unless one call fits.

    Args:
        call: The call whose input has the results.
        before: The messages that the asking call sent.
        turn: The part of its answer that the input has: texts, or nothing.
        askers: The calls that asked for tools.
    """
    said = "".join(_texts(message["parts"]) for message in turn)
    answers = [
        (unpack(asker).output_messages or [])[0]["parts"]
        for sent, asker in askers.get((call.trace_id, len(before)), ())
        if sent == before and (asker.end_ns or 0) <= call.latest_start_ns
    ]
    same = [parts for parts in answers if _texts(parts) == said]
    return same[0] if len(same) == 1 else []


def _texts(parts: Sequence[Mapping[str, object]]) -> str:
    return "".join(str(part["content"]) for part in parts if part["type"] == "text")
