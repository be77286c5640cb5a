"""Braintrust's SDKs that write OpenTelemetry's spans (Go, Java), and spans in their form.

They keep the provider's messages and output as they were sent, the parameters in the metadata, and
the token counts in the metrics. Go's spans of OpenAI and Anthropic do not name their type.
"""

from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.messages import finish, payloads, token_counts
from otel_lightning.collector.derive.rows import LlmCall, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "braintrust"
RANK = 105
OWN = "braintrust."
TYPE, METADATA, METRICS = f"{OWN}span_attributes", f"{OWN}metadata", f"{OWN}metrics"
INPUTS, OUTPUTS = (f"{OWN}input_json", f"{OWN}input"), (f"{OWN}output_json", f"{OWN}output")
COUNTS = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "prompt_cached_tokens": "cached_input_tokens",
    "completion_reasoning_tokens": "reasoning_tokens",
    "prompt_cache_creation_tokens": "cache_creation_input_tokens",
}
REQUESTS = ("endpoint", "request_path")
"""Keys of the metadata of a request to a provider."""
NOT_PARAMETERS = {
    *("provider", "id", "object", "created", "usage", "stop_reason", "stop_sequence"),
    *("system_fingerprint", "request_base_uri", "request_method", *REQUESTS),
}


def matches(span: Span) -> bool:
    """Return whether the span has Braintrust's type, or its input and metadata.

    Other keys of Braintrust may stand beside those of any instrumentation.
    """
    attributes = span.attributes
    return TYPE in attributes or (METADATA in attributes and INPUTS[0] in attributes)


def read(span: Span) -> LlmCall | ToolCall | None:
    """Read a model call or a tool; tasks, evaluations and scores only group other spans."""
    named = json_text.as_object(json_text.parse(span.attributes.get(TYPE)))
    metadata = json_text.as_object(json_text.parse(span.attributes.get(METADATA)))
    asks = "provider" in metadata and any(key in metadata for key in REQUESTS)
    kind = named.get("type") or ("llm" if asks else None)
    if kind == "llm":
        return _read_call(span, metadata)
    if kind != "tool":
        return None
    name = named.get("name")
    arguments, result = _value(span, INPUTS), _value(span, OUTPUTS)
    return span_rows.tool_call(
        span, name if isinstance(name, str) else span.name, arguments=arguments, result=result
    )


def _value(span: Span, keys: tuple[str, ...]) -> Any:
    """Return the first of these attributes: JSON, or text."""
    text = next((found for key in keys if (found := span.attributes.get(key))), None)
    value = json_text.parse(text)
    return text if value is None else value


def _read_call(span: Span, metadata: dict[str, Any]) -> LlmCall:
    call = span_rows.llm_call(span, NAME)
    call.operation = "embeddings" if "embed" in span.name.lower() else "chat"
    provider = metadata.get("provider")
    call.provider = provider.lower() if isinstance(provider, str) else None
    sent, output = _value(span, INPUTS), _value(span, OUTPUTS)
    own = sent if isinstance(sent, dict) else {"messages": _system_first(sent)}
    given = {key: value for key, value in metadata.items() if key not in NOT_PARAMETERS}
    if not payloads.fill_from_request(call, {**given, **own}, span.memory):
        call.input_messages = payloads.request_messages(own, span.memory)
    if "tools" not in metadata:
        call.tool_definitions = None  # Java leaves them out
    if not payloads.fill_from_response(call, _response(output)):
        call.output_messages = payloads.answer(output)
    response_id = metadata.get("id")
    call.response_id = call.response_id or (response_id if isinstance(response_id, str) else None)
    call.finish_reason = call.finish_reason or finish.reason(metadata.get("stop_reason"))
    metrics = json_text.as_object(json_text.parse(span.attributes.get(METRICS)))
    counts = {COUNTS[key]: reading.count(n) for key, n in metrics.items() if key in COUNTS}
    token_counts.fill_usage(call, token_counts.Usage(**counts))
    keys = [key for key in (*INPUTS, *OUTPUTS) if key in span.attributes]
    return span_rows.completed(call, *map(span.attributes.get, keys))


def _system_first(sent: Any) -> Any:
    """Return messages with the system prompt first: Java writes Anthropic's last."""
    last = sent[-1] if isinstance(sent, list) and sent else None
    is_system = isinstance(last, dict) and last.get("role") == "system"
    return [last, *sent[:-1]] if is_system else sent


def _response(output: Any) -> Any:
    """Return an output in the form of the provider's response."""
    first = output[0] if isinstance(output, list) and output else None
    if not isinstance(first, dict):
        return output
    if "message" in first:  # the choices of a chat completion
        return {"choices": output}
    # The items of a response, or one message.
    return {"output": output} if "type" in first else None
