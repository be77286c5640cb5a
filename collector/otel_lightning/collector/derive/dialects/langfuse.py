"""Langfuse's SDK: an observation's type, input and output, model and usage."""

from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import graph_nodes, reading
from otel_lightning.collector.derive.messages import (
    finish,
    joined_calls,
    one_message,
    payloads,
    token_counts,
    tool_values,
)
from otel_lightning.collector.derive.messages.documents import number
from otel_lightning.collector.derive.messages.openai_agents_responses import without_made_up_id
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Retrieval, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "langfuse"
RANK = 30
CONVERSATION_KEYS = ("langfuse.session.id",)
OPERATIONS = {"generation": "chat", "embedding": "embeddings"}
PREFIX = "langfuse.observation."
MESSAGE = frozenset({"role", "content", "parts", "tool_calls", "message", "text", "type"})
"""A message, or an item of one, has at least one of these keys."""
RESPONSES = ".responses"
"""Suffix of the name that JavaScript's SDK gives to a call of the Responses API."""
ITEM = '"function_call_output"'
"""The type of an item that only a request of the Responses API has."""
OTHERS = frozenset({"gen_ai.input.messages", "gen_ai.response.id"})
"""Keys of another dialect. A span that has one of them was written by another instrumentation and
only got Langfuse's keys added; the other dialect's keys hold more."""


def matches(span: Span) -> bool:
    """Return whether the span has Langfuse's observation type and no keys of another dialect."""
    return f"{PREFIX}type" in span.attributes and OTHERS.isdisjoint(span.attributes)


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read a Langfuse observation."""
    kind = span.attributes[f"{PREFIX}type"]
    if kind in OPERATIONS:
        return _read_call(span, OPERATIONS[kind])
    if kind == "tool":
        return _read_tool(span)
    if kind == "retriever":
        return _read_retrieval(span)
    return span_rows.agent_run(span, "agent", span.name) if kind == "agent" else None


def _read_retrieval(span: Span) -> Retrieval:
    sent, found = (json_text.parse(_text(span, side)) for side in ("input", "output"))
    query = tool_values.named_arguments(sent, "query") or _text(span, "input")
    return span_rows.retrieval(span, "retriever", query, found)


def _text(span: Span, name: str) -> str | None:
    return reading.text(span.attributes, f"{PREFIX}{name}")


def _read_call(span: Span, operation: str) -> LlmCall:
    call = span_rows.llm_call(span, NAME)
    call.operation = operation
    # LangGraph: the name of the agent, else the node that calls.
    named = _metadata_text(span, "metadata.lc_agent_name")
    nodes = (_metadata_text(span, f"metadata.langgraph_{key}") for key in ("checkpoint_ns", "node"))
    call.agent_name = call.agent_name or named or graph_nodes.agent(*nodes)
    request = _request(span)
    call.input_messages = payloads.request_messages(request, span.memory)
    call.tool_definitions = payloads.request_tools(request)
    text = _text(span, "output")
    call.request_params = json_text.as_object(json_text.parse(_text(span, "model.parameters")))
    answer = joined_calls.separated(json_text.parse(text), call.tool_definitions or [])
    whole = _whole(span, answer, call.request_params.get("n"))
    if not payloads.fill_from_response(call, without_made_up_id(whole)):
        is_text = operation == "chat" and not _is_message(answer)
        is_answer = isinstance(answer, dict | list) and not is_text
        call.output_messages = payloads.answer(answer if is_answer else text)
    reason = finish.reason(_metadata_text(span, "metadata.finish_reason"))
    call.finish_reason = call.finish_reason or reason
    # Of a stream, JavaScript's SDK reads neither the model nor the ids of tool calls, which the
    # inputs have.
    call.lost_ids = is_streamed = call.request_params.get("stream") is True
    _fill_models(call, span, is_streamed=is_streamed)
    token_counts.fill_usage(call, _usage(json_text.parse(_text(span, "usage_details"))))
    costs = json_text.as_object(json_text.parse(_text(span, "cost_details")))
    call.cost = call.cost or number(costs.get("total")) or None  # it is 0 for a call that failed
    if _text(span, "level") == "ERROR":
        _note_failure(call, span)
    return span_rows.completed(call, _text(span, "input"), text, cut=call.lost_system)


def _fill_models(call: LlmCall, span: Span, *, is_streamed: bool) -> None:
    model, name = _text(span, "metadata.ls_model_name"), _text(span, "model.name")
    call.request_model = model and model.strip('"')  # LangChain writes it with or without quotes
    if is_streamed:
        call.request_model = call.request_model or name
    # A name that is the requested one may only be an echo of the request.
    call.response_model = call.response_model or (None if name == call.request_model else name)


def _note_failure(call: LlmCall, span: Span) -> None:
    call.error_type = call.error_type or "_OTHER"
    call.error_message = call.error_message or _text(span, "status_message")
    call.request_model = call.request_model or call.response_model
    call.response_model = None  # no model answered
    call.lost_system = _lacks_instructions(call, span)


def _lacks_instructions(call: LlmCall, span: Span) -> bool:
    """Return whether a call that failed may lack the system's instructions.

    JavaScript's SDK takes those of the Responses API from the response. It writes an empty
    `response_format` for each request.
    """
    if call.request_params.get("response_format") != "":
        return False
    is_response = span.name.endswith(RESPONSES) or ITEM in (_text(span, "input") or "")
    return is_response and not any(one["role"] == "system" for one in call.input_messages or ())


def _is_message(answer: Any) -> bool:
    """Return whether an output is a message or a list; structured output is the JSON itself."""
    return not isinstance(answer, dict) or not answer or not MESSAGE.isdisjoint(answer)


def _metadata_text(span: Span, name: str) -> str | None:
    """Return a text of the metadata, which is JSON in Python and plain in JavaScript."""
    text = _text(span, name)
    value = json_text.parse(text)
    return value if isinstance(value, str) else text


def _whole(span: Span, answer: Any, choices: object) -> Any:
    """Return the provider's response around a list of what it holds, if that is known.

    The output has the items of a response, whose other fields are in the metadata, or the messages
    of several choices. A single item of a stream stands without a list.
    """
    if isinstance(answer, dict) and "type" in answer:
        answer = [answer]
    if not isinstance(answer, list):
        return answer
    if _metadata_text(span, "metadata.object") == "response":
        fields = {name: _metadata_text(span, f"metadata.{name}") for name in ("id", "status")}
        ended = json_text.parse(_text(span, "metadata.incomplete_details"))
        return {"output": answer, "incomplete_details": ended, **fields}
    if choices == len(answer) and choices != 1:
        return {"choices": [{"message": one} for one in answer]}
    return answer


def _request(span: Span) -> payloads.Payload:
    """Return the provider's request, or build one from the messages and the metadata."""
    text = _text(span, "input")
    sent = tool_values.named_arguments(json_text.parse(text), "messages")
    if isinstance(sent, list):
        offered = [one["content"] for one in sent if _is_definition(one)]
        sent = {"messages": [one for one in sent if not _is_definition(one)], "tools": offered}
    request = sent if isinstance(sent, dict) else {"messages": sent or text}
    tools = request.get("tools") or reading.array(span.attributes, f"{PREFIX}metadata.tools")
    # The system prompt may be in the metadata alone, or there too.
    beside = (
        {}
        if _has_system(request)
        else {"instructions": _metadata_text(span, "metadata.instructions")}
    )
    return {**beside, **request, "tools": tools}


def _has_system(request: payloads.Payload) -> bool:
    """Return whether the messages of a request begin with the system prompt."""
    sent = next((request[key] for key in payloads.HISTORIES if request.get(key)), None)
    first = json_text.as_object(sent[0]) if isinstance(sent, list) else {}
    return one_message.ROLES.get(str(first.get("role"))) == "system"


def _is_definition(message: Any) -> bool:
    """Return whether a message defines a tool: the LangChain handler appends tools to messages."""
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, dict) and content.get("type") == "function"


def _usage(details: Any) -> token_counts.Usage:
    """Return the token counts from a provider's usage object, or from Langfuse's own.

    Langfuse counts cached and reasoning tokens separately, so the totals are sums over all keys
    that begin with `input` or `output`.
    """
    if not isinstance(details, dict) or "input" not in details:
        return token_counts.usage(details)

    def total(side: str) -> int:
        # Those of the tier `priority` are counted under the other keys, too.
        again = f"{side}_priority"
        named = (one for one in details.items() if not one[0].startswith(again))
        counts = (count for name, count in named if name.partition("_")[0] == side)
        return sum(count for count in counts if reading.is_count(count))

    cached = details.get("input_cached_tokens", details.get("input_cache_read"))
    reasoned = details.get("output_reasoning_tokens", details.get("output_reasoning"))
    created = details.get("input_cache_creation", details.get("cache_creation_input_tokens"))
    return token_counts.Usage(total("input"), total("output"), cached, reasoned, created)


def _read_tool(span: Span) -> ToolCall:
    text = _text(span, "output")
    parsed = json_text.parse(text)
    result = text if parsed is None else parsed
    message = tool_values.tool_message(result)
    return span_rows.tool_call(
        span,
        name=json_text.parse(_text(span, "metadata.haystack.tool.name")) or span.name,
        tool_call_id=message.get("tool_call_id"),
        arguments=tool_values.named_arguments(json_text.parse(_text(span, "input"))),
        result=message.get("content", result),
    )
