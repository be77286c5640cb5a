"""LangSmith's OpenTelemetry export: messages as LangChain serialises them, as one JSON text."""

import re
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.messages import (
    finish,
    joined_calls,
    langchain_results,
    payloads,
    token_counts,
    tool_values,
)
from otel_lightning.collector.derive.messages.openai_agents_responses import without_made_up_id
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Retrieval, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "langsmith"
RANK = 40
CONVERSATION_KEYS = ("langsmith.metadata.session_id", "langsmith.metadata.thread_id")
AGENT_KEYS = ("langsmith.metadata.lc_agent_name",)
NODE_KEYS = ("langsmith.metadata.langgraph_checkpoint_ns", "langsmith.metadata.langgraph_node")
KIND, METADATA = "langsmith.span.kind", "langsmith.metadata."
FLAT = {"gen_ai.prompt.0.content", "gen_ai.completion.0.content"}
_LABELS = {"type", "role"}
"""Keys of an answer that only say what the answer is."""
NOT_AWAITED = re.compile(r"<coroutine object [^<>]+ at 0x[0-9a-f]+>")
"""The output of a function that only returned a coroutine, which somebody awaited later."""
FIELDS = {"id": "id", "status": "status", "model": "ls_model_name"}


def matches(span: Span) -> bool:
    """Return whether the span has LangSmith's span kind, and no flattened messages.

    Spans that people write by hand, as LangSmith documents, may have both.
    """
    keys = span.attributes
    return KIND in keys and FLAT.isdisjoint(keys)


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read a LangSmith run."""
    kind = span.attributes[KIND].lower()
    if _has_failed(span):
        span = span._replace(status_code="ERROR")
    if kind == "llm":
        # If another package wrapped an async client first, LangSmith takes its functions for plain
        # ones. The call was made later, and the other package recorded it.
        return None if _is_not_awaited(span) else _read_call(span)
    if kind == "tool":
        return _read_tool(span)
    if kind == "retriever":
        sides = ("gen_ai.prompt", "gen_ai.completion")
        return span_rows.retrieval(
            span, kind, *(json_text.parse(span.attributes.get(k)) for k in sides)
        )
    is_agent = "lc_agent_name" in span.attributes and not span.parent_span_id
    return span_rows.agent_run(span, "agent", span.name) if is_agent else None


def _is_not_awaited(span: Span) -> bool:
    """Return whether a run ended with a coroutine that nobody had awaited yet."""
    text = span.attributes.get("gen_ai.completion", "")
    if NOT_AWAITED.search(text) is None:  # as in almost all runs
        return False
    output = _output(json_text.parse(text))
    return isinstance(output, str) and NOT_AWAITED.fullmatch(output) is not None


def _output(result: Any) -> Any:
    """Return what a decorated function returned."""
    fields = json_text.as_object(result)
    return fields.get("output", fields.get("outputs", result))


def _has_failed(span: Span) -> bool:
    """Return whether a run ended in an exception: it has an exception event and no whole output.

    The span's status is OK even so. Python's exporter sets OK when a run begins, and OpenTelemetry
    ignores a later status. The output of a failed run is `null`, `{}` or an object of empty values.
    """
    if "exception" not in [event.name for event in span.events]:
        return False
    result = json_text.parse(span.attributes.get("gen_ai.completion"))
    # LangChain keeps the server's refusal as the metadata of an answer without text, and what had
    # come of a stream that broke off, without a finish reason.
    if answers := langchain_results.choices(result):
        has_text = any(answer["parts"] for answer in answers)
        return not has_text or langchain_results.is_broken_off(result)
    return not _has_content(result)


def _has_content(value: Any) -> bool:
    """Return whether a value holds text or a number, not only types, empty lists and objects.

    The wrapper of Google's client writes `None` as the content of an answer that never came.
    """
    if isinstance(value, dict):
        inner_values = (inner for key, inner in value.items() if key not in _LABELS)
        return any(inner != "None" and _has_content(inner) for inner in inner_values)
    return any(map(_has_content, value)) if isinstance(value, list) else bool(value)


def _read_call(span: Span) -> LlmCall:
    """Read a call: first the conventions' keys, then the provider's or LangChain's payload."""
    attributes = span.attributes
    call = semconv.read_call(span, NAME, "chat")
    prompt = json_text.parse(attributes.get("gen_ai.prompt"))
    result = json_text.parse(attributes.get("gen_ai.completion"))
    if not payloads.fill_from_request(call, prompt, span.memory):
        text = json_text.plain(attributes.get("gen_ai.prompt"))
        sent = prompt if isinstance(prompt, dict) else {"messages": prompt or text}
        call.input_messages = payloads.request_messages(sent, span.memory)
        call.tool_definitions = payloads.request_tools(sent) or call.tool_definitions
    response = without_made_up_id(_with_metadata(result, span))
    if call.error_type and not _has_content(result):
        call.output_messages = None
    elif not payloads.fill_from_response(call, _with_calls_apart(response, call)):
        _fill_result(call, result or json_text.plain(attributes.get("gen_ai.completion")))
    counts = token_counts.usage(json_text.parse(attributes.get(f"{METADATA}usage_metadata")))
    if call.output_tokens is not None and counts.reasoning_tokens:
        # Its total includes reasoning that the count of output tokens lacks.
        call.output_tokens = max(call.output_tokens, counts.output_tokens or 0)
    token_counts.fill_usage(call, counts)
    if call.error_type and not (call.input_tokens or call.output_tokens):
        call.input_tokens = call.output_tokens = None
    _end_before_answer(call)
    sources = (attributes.get("gen_ai.prompt"), attributes.get("gen_ai.completion"))
    return span_rows.completed(call, *sources)


def _end_before_answer(call: LlmCall) -> None:
    """End the input before the call's own answer, if the exporter wrote the input late.

    JavaScript writes it after the agent appended the answer, and perhaps the next turns. A text in
    the middle of a history may be an earlier answer in the same words: `late_inputs` looks whether
    a later history has it twice.
    """
    history = call.input_messages or []
    answer = call.output_messages[0]["parts"] if call.output_messages else None
    places = [at for at, message in enumerate(history) if answer and message["parts"] == answer]
    if places and (span_rows.asks_for_tools(call) or places[-1] == len(history) - 1):
        call.input_messages = history[: places[-1]]
    elif places:
        call.answered_at = places[-1]


def _with_calls_apart(response: Any, call: LlmCall) -> Any:
    """Return a response with the tool calls apart that JavaScript joins, if they were streamed.

    It keeps the id of the first of them.
    """
    choices = response.get("choices") if isinstance(response, dict) else None
    if not isinstance(choices, list):
        return response
    separated = [json_text.as_object(choice) for choice in choices]
    for place, choice in enumerate(separated):
        message = json_text.object_under(choice, "message")
        apart = joined_calls.separated(message, call.tool_definitions or [])
        if apart is not message:
            apart["tool_calls"][0]["id"] = message["tool_calls"][0].get("id")
            separated[place] = {**choice, "message": apart}
            call.lost_ids = True
    return {**response, "choices": separated}


def _with_metadata(result: Any, span: Span) -> Any:
    """Return a response completed by the fields that LangSmith's tracer keeps in the metadata.

    LangSmith's tracer of the OpenAI agents SDK takes `FIELDS` out of the response.
    """
    if span.attributes.get(f"{METADATA}object") != "response" or not isinstance(result, dict):
        return result
    fields = {key: span.attributes.get(f"{METADATA}{name}") for key, name in FIELDS.items()}
    return fields | result


def _fill_result(call: LlmCall, result: Any) -> None:
    """Set the fields of a call from LangChain's response, or from a decorated function's result."""
    answer = result
    if isinstance(result, dict) and "role" not in result:
        answer = result.get("output") or result.get("outputs") or _answered(result)
    metadata = langchain_results.metadata(result)
    call.output_messages = langchain_results.choices(result) or payloads.answer(answer)
    call.response_id = call.response_id or metadata.get("id")
    call.response_model = metadata.get("model_name") or call.response_model
    call.finish_reason = finish.reason(metadata.get("finish_reason")) or call.finish_reason
    counted = json_text.as_object(result).get("usage_metadata")
    for counts in (metadata.get("token_usage"), metadata.get("usage_metadata"), counted):
        token_counts.fill_usage(call, token_counts.usage(counts))


def _answered(result: dict[str, Any]) -> Any:
    """Return the answer in a list of messages, as LangSmith documents it for models of one's own.

    The list may have the whole conversation, which ends with the answer.
    """
    messages = result.get("messages")
    last = json_text.as_object(messages[-1]) if isinstance(messages, list) and messages else {}
    return last if last.get("role") == "assistant" else None


def _read_tool(span: Span) -> ToolCall:
    attributes = span.attributes
    result = json_text.parse(attributes.get("gen_ai.completion"))
    arguments = json_text.parse(attributes.get("gen_ai.prompt"))
    if isinstance(arguments, dict) and isinstance(arguments.get("input"), str):
        arguments = json_text.parse_literal(arguments["input"]) or arguments["input"]
    output = None if _is_not_awaited(span) else _output(result)
    message = tool_values.tool_message(output)
    match arguments:
        case {"args": [given, {"toolCallId": str(call_id)}]}:  # the AI SDK's call of a tool
            arguments, message = given, {"tool_call_id": call_id, **message}
    return span_rows.tool_call(
        span,
        name=reading.text(attributes, "gen_ai.tool.name") or span.name,
        tool_call_id=attributes.get("gen_ai.tool.call.id") or message.get("tool_call_id"),
        arguments=arguments,
        result=message.get("content", output),
    )
