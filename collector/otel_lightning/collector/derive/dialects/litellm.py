"""LiteLLM's callback: conventions with missing keys, and a child span with the raw response.

The child's values are `repr()` texts of the provider's payload. They are parsed as literals and
never executed.

The callback that `LITELLM_OTEL_V2` switches on has no such child. It writes what else the proxy did
with the same keys: tools of MCP servers, moderations, rerankings, files.
"""

import base64
import re
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import flattened, reading
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.messages import payloads, token_counts, tool_parts, tool_values
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Attributes,
    LlmCall,
    Retrieval,
    Span,
    ToolCall,
)
from otel_lightning.collector.derive.text import json_text

NAME = "litellm"
RANK = 60
COST_KEYS = ("litellm.cost.total",)
RAW = "raw_gen_ai_request"
PREFIX = "llm."
OFFERED = "gen_ai.tool.", "llm.request.functions."
ROUTE, STREAMED = "litellm.call_type", "litellm.request.streaming"
"""The newer callback's keys of what was asked of LiteLLM, as its operation is `chat` for most of
it, and whether the answer was streamed."""
GENERATE = ("generate_content", "agenerate_content")
CALLS = {
    *(name for name in semconv.OPERATIONS if name.endswith(("completion", "responses"))),
    *("embedding", "aembedding", "completion_with_retries", "_aresponses_websocket"),
    *("anthropic_messages", "aanthropic_messages", "create_interaction", "acreate_interaction"),
    *(f"{name}{end}" for name in GENERATE for end in ("", "_stream")),
    *("pass_through_endpoint", "allm_passthrough_route", "llm_passthrough_route"),
}
"""The values of `ROUTE` that are calls of a language model."""
ROUTED, DECLARED = "litellm.provider.model", "litellm.request.tools.declared"
"""The newer callback's keys of the model that the provider was asked for, where the requested model
is the name that the proxy gave it, and of the number of tools, of which it writes the first ten."""
RESPONSES = "resp_"
"""The prefix of response ids of the Responses API."""
PUNCTUATION = re.compile(r"[\W_]")
WRAPPED, INVENTED = "resp_bGl0ZWxsbT", re.compile(r"chatcmpl-\w{8}(-\w{4}){3}-\w{12}")
"""`WRAPPED`: the prefix of response ids that LiteLLM encoded together with its routing.
`INVENTED`: the form of ids that LiteLLM made up because the provider gave none."""


def matches(span: Span) -> bool:
    """Return whether LiteLLM wrote the span."""
    return span.scope_name == "litellm" or "litellm.call_id" in span.attributes


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read a LiteLLM span: the request, or its child with the raw payload."""
    if span.name == RAW:
        return _read_raw(span)
    attributes = span.attributes
    is_search = attributes.get("gen_ai.operation.name") == "retrieval"
    if "litellm.call_id" not in attributes or "mcp.method.name" in attributes or is_search:
        return semconv.read(span)
    route = attributes.get(ROUTE)
    return None if route and route.lower() not in CALLS else _read_request(span)


def _read_request(span: Span) -> LlmCall:
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name", "chat")
    call = semconv.read_call(span, NAME, semconv.OPERATIONS.get(operation, operation))
    # A request that failed has LiteLLM's own id of the request in its place.
    is_own = call.response_id == attributes["litellm.call_id"]
    call.response_id = None if is_own else _providers_own(call.response_id)
    call.lost_ids = True  # its outputs lack the ids of tool calls; its inputs have them
    # A task of its own ends the span of a stream, when its reader may have made the next call.
    is_streamed = attributes.get("llm.is_streaming") == "True" or attributes.get(STREAMED) == "true"
    call.late_end = is_streamed or call.request_params.get("stream") is True
    _settle_models(call, attributes.get(ROUTED))
    _fill_tools(call, attributes)
    if (attributes.get(ROUTE) or "").endswith("responses") and call.content == "full":
        # The request's instructions are not written.
        roles = [message["role"] for message in call.input_messages or ()]
        call.content = "full" if "system" in roles else "truncated"
    call.cost = call.cost or None  # it is 0 for a model whose price LiteLLM does not know
    counted = json_text.parse_literal(attributes.get("metadata.usage_object", ""))
    token_counts.fill_usage(call, token_counts.usage(counted))
    return call


def _settle_models(call: LlmCall, routed: str | None) -> None:
    """Replace the proxy's own name of the model by the model that the provider was asked for."""
    if (model := _routed_model(call, routed)) == call.request_model:
        return
    # The proxy also puts its own name of the model into the response.
    is_own = call.response_model == call.request_model
    call.request_model, call.response_model = model, None if is_own else call.response_model


def _fill_tools(call: LlmCall, attributes: Attributes) -> None:
    """Set the tools that are offered, and the tool calls, which the output does not have."""
    functions = next(filter(None, (flattened.nested(attributes, key) for key in OFFERED)), ())
    call.tool_definitions = call.tool_definitions or tool_values.flat_tools(functions)
    if (reading.integer(attributes, DECLARED) or 0) > len(call.tool_definitions or ()):
        call.tool_definitions = None
    if not call.output_messages or span_rows.asks_for_tools(call):
        return
    call.output_messages[0]["parts"] += [
        tool_parts.tool_call_part(None, item["function_call"].get("name"), arguments)
        for item in flattened.nested(attributes, "gen_ai.completion.")
        if "function_call" in item and (arguments := item["function_call"].get("arguments"))
    ]


def _routed_model(call: LlmCall, routed: str | None) -> str | None:
    """Return the model that the provider was asked for, without LiteLLM's name of the provider."""
    if not routed:
        return call.request_model
    prefix, _, model = routed.partition("/")
    # LiteLLM's `azure`, `vertex_ai` and `xai` are `azure.ai.openai`, `gcp.vertex_ai` and `x_ai`.
    name, provider = (PUNCTUATION.sub("", one.lower()) for one in (prefix, call.provider or ""))
    return model if model and provider and (name in provider or provider in name) else routed


def _providers_own(response_id: str | None) -> str | None:
    """Return the provider's response id, decoded from LiteLLM's; None if LiteLLM made it up."""
    if response_id is None or INVENTED.fullmatch(response_id):
        return None
    if not response_id.startswith(WRAPPED):
        return response_id
    try:
        # Behind `resp_`: `litellm:model_id:…;response_id:resp_1` in base64. Padding that is not
        # needed is ignored.
        unwrapped = base64.b64decode(f"{response_id[5:]}==").decode(errors="replace")
    except ValueError:  # the id was truncated
        return response_id
    return unwrapped.partition("response_id:")[2] or response_id


def _read_raw(span: Span) -> LlmCall | None:
    """Read the raw payload: `llm.PROVIDER.` holds the fields of both request and response."""
    fields: dict[str, Any] = {}
    for key, text in span.attributes.items():
        name = key.removeprefix(PREFIX).partition(".")[2]
        value = json_text.parse_literal(text)
        if key.startswith(PREFIX) and name:
            fields[name] = text if value is None else value
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    call.input_messages = payloads.request_messages(fields, span.memory)
    call.tool_definitions = tool_values.flat_tools(fields.get("tools") or [])
    if not payloads.fill_from_response(call, fields):
        return None
    if (call.response_id or "").startswith(RESPONSES):
        # The span above has it, or the encrypted one that the proxy's clients get instead.
        call.response_id = None
    return span_rows.completed(call)
