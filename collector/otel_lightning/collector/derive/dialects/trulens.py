"""TruLens: spans around decorated functions, with what they were called with and returned.

A generation returns the client's response, which becomes a `repr()` text, or the answer's text. The
requested model is not known.
"""

from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.messages import payloads, token_counts
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Retrieval, Span, ToolCall
from otel_lightning.collector.derive.text import json_text, repr_objects

NAME = "trulens"
RANK = 12
OWN = "ai.observability."
TYPE = f"{OWN}span_type"
FUNCTION, RETURNED = f"{OWN}call.function", f"{OWN}call.return"
CALL_ARGUMENTS = f"{OWN}call.kwargs."
QUERY, CONTEXTS = f"{OWN}retrieval.query_text", f"{OWN}retrieval.retrieved_contexts"
CONVERSATION_KEYS = (f"{OWN}conversation_id",)
COUNTS = {
    "input_tokens": f"{OWN}cost.num_prompt_tokens",
    "output_tokens": f"{OWN}cost.num_completion_tokens",
    "reasoning_tokens": f"{OWN}cost.num_reasoning_tokens",
}
RUNS = {"agent": "agent", "record_root": "workflow", "nested_record_root": "workflow"}
RETRIEVALS = {"retrieval": "retriever", "reranking": "reranker"}


def matches(span: Span) -> bool:
    """Return whether TruLens wrote the span."""
    return TYPE in span.attributes


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read the span of a decorated function."""
    kind = span.attributes[TYPE]
    if kind == "generation":
        return _read_call(span)
    if kind == "tool":
        given, returned = _call_arguments(span), _value(span.attributes.get(RETURNED))
        return span_rows.tool_call(span, _name(span), arguments=given, result=returned)
    if kind in RETRIEVALS:
        found = _value(span.attributes.get(CONTEXTS))
        return span_rows.retrieval(span, RETRIEVALS[kind], span.attributes.get(QUERY), found)
    return span_rows.agent_run(span, RUNS[kind], _name(span)) if kind in RUNS else None


def _read_call(span: Span) -> LlmCall:
    attributes = span.attributes
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    call.response_model = attributes.get(f"{OWN}cost.model") or None
    for value in _call_arguments(span).values():
        if isinstance(value, str | list) and value:
            request = {"messages": value}
            call.input_messages = payloads.request_messages(request, span.memory)
            break
    returned = attributes.get(RETURNED)
    response = repr_objects.parse(returned) or _value(returned)
    is_response = payloads.fill_from_response(call, response)
    if not is_response:
        call.output_messages = payloads.answer(response)
    counts = {name: reading.integer(attributes, key) for name, key in COUNTS.items()}
    token_counts.fill_usage(call, token_counts.Usage(**counts))
    # A function may give the model more than it was given, and return less than was answered.
    return span_rows.completed(call, returned, cut=bool(returned) and not is_response)


def _name(span: Span) -> str:
    """Return the name of the function, without its module and class."""
    return span.attributes.get(FUNCTION, span.name).rpartition(".")[2]


def _call_arguments(span: Span) -> dict[str, Any]:
    """Return what the function was called with."""
    return {
        key.removeprefix(CALL_ARGUMENTS): _value(text)
        for key, text in span.attributes.items()
        if key.startswith(CALL_ARGUMENTS)
    }


def _value(text: str | None) -> Any:
    value = json_text.parse(text)
    return text if value is None else value
