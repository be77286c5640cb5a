"""Mark the inputs of responses in which OpenLIT left out tool calls and their results.

It writes only those items of a request that have texts of their own. So the requests of an agent
that its tools answer have the same input as the first one.
"""

from collections.abc import Iterable

from otel_lightning.collector.derive.rows import LlmCall

SCOPE = "openlit.instrumentation.openai"
RESPONSE = "resp_"
"""Prefix of the ids of responses."""


def mark(calls: Iterable[LlmCall]) -> None:
    """Mark a response as `truncated` if an earlier one with the same input asked for tools.

    Args:
        calls: Model calls in time order; changed in place.
    """
    asked = set[tuple[str | None, str]]()
    for call in calls:
        if call.scope_name != SCOPE or not (call.response_id or "").startswith(RESPONSE):
            continue
        sent = (call.service_name, call.history.input_hash or "")
        if sent in asked and call.content == "full":
            call.content = "truncated"
        if call.history.tool_call_ids:
            asked.add(sent)
