"""MLflow: every attribute is JSON; the inputs and outputs of a call are the provider's payloads."""

import re
from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.messages import (
    langchain_results,
    llama_index_messages,
    payloads,
    pydantic_ai_messages,
    stream_chunks,
    token_counts,
    tool_values,
)
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.openai_agents_responses import without_made_up_id
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Retrieval, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "mlflow"
RANK = 20
OPERATIONS = {"CHAT_MODEL": "chat", "LLM": "chat", "EMBEDDING": "embeddings"}
OPERATION = "gen_ai.operation.name"
"""The conventions' key of the operation, which other tracers write."""
COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "reasoning_tokens",
    "cache_creation_input_tokens",
)
"""The names of the counts in the order of `token_counts.Usage`."""
TOOL_NAME, TOOL_ID, RESULT = "tool_name", "tool_id", "result"
"""Where MLflow's plugins for coding agents have a tool's name and the id of the call; and the key
of the result in an object of its own."""
FUNCTION = "mlflow.spanFunctionName"
"""Where MLflow has the name of a tool that is a decorated function."""
RETRIEVALS = {"RETRIEVER": "retriever", "RERANKER": "reranker"}
CHUNKS = "mlflow.chunk.item."
"""Prefix of the names of events that hold the chunks of a stream; a number follows."""
PIECE = "new_token"
"""The event of a piece of a stream of LangChain."""
STATED = re.compile(r'"(finish_reason|stop_reason|model_name)":|"id": "resp_')
"""Found in each piece that states the finish reason, the model or the response id."""
OBJECT = re.compile(r"<[\w.]+ .*>", re.DOTALL)
"""The `repr()` of a Python object that is not data, such as a stream."""


def matches(span: Span) -> bool:
    """Return whether the span has MLflow's span type, and is no other tracer's.

    To the spans of Strands, MLflow adds its keys, with content that lacks tool calls.
    """
    keys = span.attributes
    is_own = OPERATION not in keys or (span.scope_name or "").startswith(NAME)
    return "mlflow.spanType" in keys and is_own


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read an MLflow span."""
    kind = str(_value(span, "mlflow.spanType"))
    if kind in OPERATIONS:
        if llama_index_messages.is_prepared(_value(span, "mlflow.spanOutputs")):
            return None
        return _read_call(span, OPERATIONS[kind])
    if kind == "TOOL":
        return _read_tool(span)
    if kind in RETRIEVALS:
        sent, found = (_value(span, f"mlflow.span{side}") for side in ("Inputs", "Outputs"))
        return span_rows.retrieval(span, RETRIEVALS[kind], sent, found)
    return span_rows.agent_run(span, "agent", span.name) if kind == "AGENT" else None


def _value(span: Span, key: str) -> Any:
    return json_text.parse(span.attributes.get(key))


def _read_call(span: Span, operation: str) -> LlmCall:
    call = span_rows.llm_call(span, NAME)
    call.operation = operation
    # The format is a provider's or a framework's; LangChain's provider is in its metadata.
    inside = json_text.as_object(_value(span, "metadata")).get("ls_provider")
    named = _value(span, "mlflow.llm.provider") or inside
    call.provider = named or _value(span, "mlflow.message.format")
    spread = _spread(span)
    # The response that is spread has the model that answered under this key.
    call.request_model = None if spread else _value(span, "model")
    sent, answer = (_value(span, f"mlflow.span{side}") for side in ("Inputs", "Outputs"))
    for form in (pydantic_ai_messages, llama_index_messages):
        sent, answer = form.request(sent) or sent, form.response(answer) or answer
    is_providers = payloads.fill_from_request(call, sent, span.memory)
    if not is_providers:
        _fill_frameworks_request(call, sent, spread, span.memory)
    answer = _streamed(span) or answer
    if isinstance(answer, list):
        answer = {**spread, "output": answer}
    _fill_answer(call, answer)
    for piece in _ends(span):
        langchain_results.fill(call, piece)
    _settle_models(
        call,
        _value(span, "mlflow.llm.model"),
        is_answered=is_providers and isinstance(answer, dict),
    )
    offered = tool_values.flat_tools(_value(span, "mlflow.chat.tools"))
    # The last one is [] (the request offers no tools) or None (unknown).
    call.tool_definitions = call.tool_definitions or offered or call.tool_definitions
    token_counts.fill_usage(call, _usage(span))
    if isinstance(answer, dict):
        token_counts.fill_usage(call, token_counts.usage(answer.get("usage")))
    sources = [span.attributes.get(f"mlflow.span{side}") for side in ("Inputs", "Outputs")]
    return span_rows.completed(call, *sources)


def _settle_models(call: LlmCall, model: Any, *, is_answered: bool) -> None:
    """Set the models that the payloads do not name from MLflow's own attribute."""
    call.request_model = call.request_model or model
    if isinstance(call.request_model, str):  # DSPy's begins with the provider
        call.request_model = call.request_model.removeprefix(f"{call.provider}/")
    if is_answered:
        call.response_model = call.response_model or model


def _fill_frameworks_request(
    call: LlmCall, sent: Any, spread: dict[str, Any], memory: MessageMemory | None
) -> None:
    """Set messages and tools from a framework's request, which does not name the model."""
    request = sent if isinstance(sent, dict) else {**spread, "input": sent}
    match sent:
        case {"args": [str(prompt)]}:  # of a function that takes a text, such as LlamaIndex's
            request = {"messages": prompt}
    call.input_messages = payloads.request_messages(request, memory)
    call.tool_definitions = payloads.request_tools(request)


def _fill_answer(call: LlmCall, answer: Any) -> None:
    """Set the answer from a provider's response, a text, a message or LangChain's result."""
    if payloads.fill_from_response(call, without_made_up_id(answer)):
        return
    is_text = isinstance(answer, str) and not OBJECT.fullmatch(answer)
    if is_text or "role" in json_text.as_object(answer):
        call.output_messages = payloads.answer(answer)
    # MLflow leaves LangChain's results as they are where it does not know their blocks.
    call.output_messages = call.output_messages or langchain_results.choices(answer) or None
    langchain_results.fill(call, answer)


def _streamed(span: Span) -> dict[str, Any] | None:
    """Return the response of a streamed answer of OpenAI's; None if the chunks do not say it.

    MLflow's own response of a chat lacks tool calls, reasoning and all choices but the first. Of a
    response that was cut off at its token limit, it has only the texts. The chunks are events; of
    many, OpenTelemetry drops the first ones.
    """
    values = {
        event.name: value
        for event in span.events
        if (value := event.attributes.get("mlflow.chunk.value")) is not None
    }
    if not values:
        return None
    texts = [values.get(f"{CHUNKS}{number}") for number in range(len(values))]
    streamed = stream_chunks.response(map(json_text.parse, texts))
    return streamed or stream_chunks.responses_response(map(json_text.parse, values.values()))


def _ends(span: Span) -> Iterator[dict[str, Any]]:
    """Yield the pieces of LangChain's stream that state how it ended, in the form of its results.

    MLflow's own response lacks the finish reason, the model and the id.
    """
    for event in span.events:
        if event.name == PIECE and STATED.search(event.attributes.get("chunk", "")):
            chunk = json_text.as_object(json_text.parse(event.attributes["chunk"]))
            yield {"generations": [[chunk.get("kwargs")]]}


def _spread(span: Span) -> dict[str, Any]:
    """Return the response that the OpenAI agents SDK writes field by field as span attributes."""
    if _value(span, "object") != "response":
        return {}
    return {key: _value(span, key) for key in span.attributes if "." not in key}


def _usage(span: Span) -> token_counts.Usage:
    counts = json_text.as_object(_value(span, "mlflow.chat.tokenUsage"))
    return token_counts.Usage(*(reading.count(counts.get(name)) for name in COUNTS))


def _read_tool(span: Span) -> ToolCall:
    result = tool_values.plain_result(_value(span, "mlflow.spanOutputs"))
    message = tool_values.tool_message(result)
    call_id = _value(span, TOOL_ID)
    if call_id and isinstance(result, dict) and result.keys() == {RESULT}:
        result = result[RESULT]
    named = (_value(span, key) for key in (FUNCTION, TOOL_NAME))
    return span_rows.tool_call(
        span,
        name=next(filter(None, named), None) or _own_name(span) or span.name,
        tool_call_id=message.get("tool_call_id") or call_id,
        arguments=_arguments(_value(span, "mlflow.spanInputs")),
        result=message.get("content", result),
    )


def _own_name(span: Span) -> str | None:
    """Return the name of a tool of LlamaIndex, whose span has that of a method."""
    name = _value(span, "name") if "description" in span.attributes else None
    return name if isinstance(name, str) else None


def _arguments(given: Any) -> Any:
    """Return a tool's arguments by name, without objects that are not the model's."""
    if not isinstance(given, dict) or given.keys() != {"kwargs"}:
        return given
    named = json_text.as_object(given["kwargs"])
    return {key: one for key, one in named.items() if not OBJECT.fullmatch(str(one))}
