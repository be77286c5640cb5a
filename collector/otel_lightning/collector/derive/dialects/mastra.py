"""Mastra: one model call as nested spans, each with a part of what is known about it.

`model_generation` has the whole input of an agent's run, `model_step` an outline of each call's
input and the call's answer, and `model_inference` the model, the token counts and the finish
reason. The three are merged like any records of one call; `outlined_inputs` completes the inputs,
and `requests_in_spans` the answers by the pieces of a stream (`model_chunk`).
Mastra 0 has no `model_inference`: its steps hold the provider's own request and response, in which
deep values are cut. Through `@mastra/arize` the spans have OpenInference's keys instead of those of
the conventions, and their metadata is one JSON text.
"""

import re
from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.dialects import openinference, semconv
from otel_lightning.collector.derive.dialects.openinference import calls as openinference_calls
from otel_lightning.collector.derive.dialects.semconv import tools as semconv_tools
from otel_lightning.collector.derive.messages import messages, one_message, payloads
from otel_lightning.collector.derive.messages.tool_parts import Part, response_part
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Message, Reader, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "mastra"
RANK = 15
TYPE = "mastra.span.type"
BODY, MODEL = ("mastra.metadata.body", "body"), ("mastra.metadata.modelMetadata", "modelMetadata")
"""Keys of the provider's own response, which calls that were not streamed have, and of the model's
name."""
RUNS = {"agent_run": "agent", "workflow_run": "workflow"}
CUT = "[MaxDepth]"
"""The text that Mastra 0 writes in place of a value that is nested too deeply."""
OUTLINED = re.compile(r"\[tool(?P<result>-result)?: (?P<name>[^\]]+)\]")
"""Replaces a tool call, or its result, in an outline."""
PIECES = re.compile(r"(?s)\[tool-result: [^\]]+\]|(?:(?!\[tool-result: [^\]]+\]).)+")
"""Each result of an outline: what stands for it, or a text."""


def matches(span: Span) -> bool:
    """Return whether Mastra wrote the span."""
    return TYPE in span.attributes


def reader(span: Span) -> Reader:
    """Return the function that reads the spans of this type."""
    kind = span.attributes[TYPE]
    if kind == "model_step":
        return _read_step
    if kind == "model_generation":
        return _read_generation
    if kind == "model_inference":
        return _read_inference
    if kind == "model_chunk":
        return _read_chunk
    if kind in RUNS and openinference.KIND in span.attributes:
        return _read_run
    return _read_tool if kind.endswith("tool_call") else semconv.reader(span)


def _read_run(span: Span) -> AgentRun:
    name = reading.text(span.attributes, "agent.name") or span.name
    return span_rows.agent_run(span, RUNS[span.attributes[TYPE]], name)


def _read_call(span: Span) -> LlmCall:
    call = semconv.read_call(span, NAME, "chat")
    # The AI SDK's name of the provider, with the API after it: `openai.responses`.
    call.provider = call.provider and call.provider.partition(".")[0]
    return call


def _read_inference(span: Span) -> LlmCall:
    call = _read_call(span)
    if openinference.KIND in span.attributes:
        call.output_messages = _answer(span, "model_inference")
    if call.finish_reason == "tool_calls" and not span_rows.asks_for_tools(call):
        call.output_messages = None  # its text alone is not the answer
    span_rows.settle_broken_stream(call, semconv.finish_reasons(span.attributes)[0])
    return span_rows.completed(call)


def _read_generation(span: Span) -> LlmCall:
    call = _read_call(span)
    sent = _value(span, "mastra.model_generation.input", "input", "input.value")
    if isinstance(sent, dict):
        call.input_messages = payloads.request_messages(sent, span.memory)
    if openinference.KIND in span.attributes:
        openinference_calls.fill(call, span)
    call.output_messages = _answer(span, "model_generation") or call.output_messages
    return span_rows.completed(call)


def _read_step(span: Span) -> LlmCall | None:
    call = span_rows.llm_call(span, NAME)
    call.operation = "chat"
    sent = _value(span, "mastra.model_step.input", "input")
    request = sent.get("body") if isinstance(sent, dict) else None
    request = json_text.parse(request) if isinstance(request, str) else request
    if not payloads.fill_from_request(call, _uncut(request), span.memory):
        listed = sent if isinstance(sent, list) else []
        history = [one for message in listed for one in _outlined(message)]
        call.input_messages = messages.joined(history, span.memory) or None
    response = _value(span, *BODY)
    if payloads.fill_from_response(call, _uncut(response)):
        # The Responses API repeats the tools that it was given.
        call.tool_definitions = call.tool_definitions or payloads.request_tools(_uncut(response))
    # The response has the arguments as the model wrote them, unless it was cut.
    own = _answer(span, "model_step")
    if own and (call.output_messages is None or CUT in str(response)):
        call.output_messages = own
    named = json_text.as_object(_value(span, *MODEL))
    call.request_model = call.request_model or named.get("modelId")
    if not call.input_messages and not any(one["parts"] for one in call.output_messages or ()):
        return None  # the call failed; the span of the generation records that
    # Mastra makes up an id for a call that failed.
    call.response_id = call.response_id or span.attributes.get("id")
    call.response_model = call.response_model or span.attributes.get("modelId")
    return span_rows.completed(call)


def _read_chunk(span: Span) -> ToolCall | None:
    """Read the text of a piece of a streamed answer: no other span has that of the reasoning."""
    output = json_text.as_object(_value(span, "mastra.model_chunk.output", "output"))
    if not output.get("text") or span.parent_span_id is None:
        return None
    piece = span_rows.tool_call(span, None, result=output["text"], source="request")
    piece.llm_span_id = span.parent_span_id
    return piece


def _value(span: Span, *keys: str) -> Any:
    text = reading.text(span.attributes, *keys)
    if text is None:
        metadata = json_text.as_object(json_text.parse(span.attributes.get("metadata")))
        text = metadata.get(keys[-1])
    return json_text.parse(text) if isinstance(text, str) else text


def _uncut(value: Any) -> Any:
    """Return a provider's request or response without the values that were cut."""
    if isinstance(value, dict):
        # A schema that was cut is left out whole: without a part it would be another schema.
        kept = (
            (key, one) for key, one in value.items() if key != "parameters" or CUT not in str(one)
        )
        return {key: _uncut(one) for key, one in kept if one != CUT}
    return [_uncut(one) for one in value if one != CUT] if isinstance(value, list) else value


def _answer(span: Span, kind: str) -> list[Message] | None:
    output = _value(span, f"mastra.{kind}.output", "output")
    if not isinstance(output, dict):
        return None
    content = {"content": output.get("text"), "tool_calls": output.get("toolCalls")}
    if not any(content.values()):
        return None  # no answer: the call may have failed; then an outer span records that
    return messages.one_turn([{"role": "assistant", **content}])


def _outlined(message: Any) -> Iterator[Message]:
    """Yield the messages of an outline; what it leaves out of tool calls and results is not set."""
    text = message.get("content") if isinstance(message, dict) else None
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(text, str) or str(role) not in {"assistant", "tool"}:
        yield from one_message.read_message(message)
    elif role == "tool":
        # The results that the model gets in words of the tool's own, such as those of agents, are
        # texts between the outlines of the others.
        pieces = PIECES.findall(text) or [text]
        results = (None if OUTLINED.fullmatch(one) else one for one in pieces)
        yield from ({"role": "tool", "parts": [response_part(None, one)]} for one in results)
    else:
        words = OUTLINED.sub("", text)
        parts = [{"type": "text", "content": words}] if words else []
        calls = map(_outlined_call, OUTLINED.finditer(text))
        yield {"role": "assistant", "parts": [*parts, *calls]}


def _outlined_call(found: re.Match[str]) -> Part:
    return {"type": "tool_call", "id": None, "name": found["name"]}


def _read_tool(span: Span) -> ToolCall | None:
    if span.attributes[TYPE] == "client_tool_call":
        return None  # the client executes it, and a later input has the result
    tool = semconv_tools.read(span)
    # Mastra 1, which records the id of the tool call, tells the model this message. Mastra 0 tells
    # it more.
    if tool is not None and tool.error_type and tool.tool_call_id and tool.result is None:
        tool.result = span.attributes.get("error.message") or span.status_message
    return tool
