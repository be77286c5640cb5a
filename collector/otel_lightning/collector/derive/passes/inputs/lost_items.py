"""Mark the inputs in which an instrumentation left out tool calls, and maybe their results.

OpenLIT writes only those items of a request that have texts of their own. So the requests of an
agent that its tools answer have the same input as the first one. In JavaScript it also leaves out
the tool calls of answers, and what the assistant said before. From a message of chat completions it
writes the text without the tool calls, but the results of those follow.
"""

from collections.abc import Iterable

from otel_lightning.collector.derive.messages import tool_parts
from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.rows import LlmCall

SCOPE = "openlit.instrumentation.openai"
IN_JAVASCRIPT = "@openlit/instrumentation-openai"
RESPONSE = "resp_"
"""Prefix of the ids of responses."""


def may_lack_turns(call: LlmCall) -> bool:
    """Return whether a response that was recorded in JavaScript may lack turns or tool calls.

    All tool calls and their results are left out there, so a response is whole only if it offered
    no tools and one user spoke.
    """
    roles = [message["role"] for message in call.input_messages or ()]
    return bool(call.tool_definitions) or roles.count("user") != 1


def mark(calls: Iterable[LlmCall]) -> None:
    """Mark a call as `truncated` if its input lacks a tool call.

    Such an input has more results than tool calls. One of a response may also be the same as that
    of an earlier response that asked for tools.

    Args:
        calls: Model calls in time order; changed in place.
    """
    asked = set[tuple[str | None, str]]()
    for call in calls:
        is_odd = call.history.unrequested_ids or not call.history.is_paired
        if call.content == "full" and is_odd and _lacks_a_tool_call(call):
            call.content = "truncated"
        if call.scope_name != SCOPE or not (call.response_id or "").startswith(RESPONSE):
            continue
        sent = (call.service_name, call.history.input_hash or "")
        if sent in asked and call.content == "full":
            call.content = "truncated"
        if call.history.tool_call_ids:
            asked.add(sent)


def _lacks_a_tool_call(call: LlmCall) -> bool:
    """Return whether an input has more results than tool calls.

    A result whose id is unknown may answer a tool call that has another id: an item of the
    Responses API has two.
    """
    sent = unpack(call).input_messages
    asked, answered = (
        sum(1 for _ in tool_parts.parts_of(sent, kind))
        for kind in ("tool_call", "tool_call_response")
    )
    return answered > asked
