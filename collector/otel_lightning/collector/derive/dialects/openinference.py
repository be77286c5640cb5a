"""OpenInference: Arize's instrumentations, in Python and JavaScript.

Messages are flattened attributes (`llm.input_messages.N.message.…`). Most packages also keep the
provider's own request and response in `input.value` and `output.value`, which then take precedence.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Any

from otel_lightning.collector.derive import flattened, reading, span_rows
from otel_lightning.collector.derive.dialects import haystack, langchain_results
from otel_lightning.collector.derive.dialects.openai_agents_responses import without_made_up_id
from otel_lightning.collector.derive.rows import (
    AgentRun,
    LlmCall,
    Message,
    Retrieval,
    Span,
    ToolCall,
)
from otel_lightning.collector.derive.shapes import Shape, shape_of
from otel_lightning.collector.derive.text import (
    joined_calls,
    json_text,
    messages,
    payloads,
    text_blocks,
    tool_values,
)
from otel_lightning.collector.derive.text.hosted_tools import ITEM
from otel_lightning.collector.derive.text.message_memory import MessageMemory

NAME = "openinference"
KIND = "openinference.span.kind"
RANK = 10
COST_KEYS = ("llm.cost.total",)
OPERATIONS = {"LLM": "chat", "EMBEDDING": "embeddings"}
RETRIEVALS = {"RETRIEVER": "retriever", "RERANKER": "reranker"}
OTHERS = frozenset(
    {"ai.operationId", "gen_ai.output.messages", "gen_ai.tool.call.id", "mastra.span.type"}
)
"""Keys of another dialect. A span that has one of them was written by another instrumentation, and
a processor only added OpenInference's keys; the other dialect's keys hold more."""
WHOLE = {"input.value", "output.value"}
OWN = ("llm.", "lightning.")
REDACTED = "__REDACTED__"
DSPY_FINISH = "finish.__call__"
"""The span with which DSPy ends its loop. It looks like a tool, but is none."""


def matches(span: Span) -> bool:
    """Tell whether the span has OpenInference's span kind and no keys of another dialect."""
    return KIND in span.attributes and OTHERS.isdisjoint(span.attributes)


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read an OpenInference span."""
    kind = span.attributes[KIND]
    if kind in OPERATIONS and not _is_no_call(span):
        return _read_call(span, OPERATIONS[kind])
    if kind == "TOOL":
        return _read_handoff(span) or _read_tool(span)
    if kind in RETRIEVALS:
        return _read_retrieval(span, RETRIEVALS[kind])
    if kind == "AGENT":
        name = reading.text(span.attributes, "agent.name", "graph.node.id")
        return span_rows.agent_run(span, "agent", name or span.name)
    return None


def _read_retrieval(span: Span, kind: str) -> Retrieval:
    """Read a retriever's or reranker's span; a reranker's output documents take precedence."""
    attributes = span.attributes
    query = reading.text(attributes, "reranker.query") or _value(attributes.get("input.value"))
    prefixes = ("reranker.output_documents.", "retrieval.documents.", "reranker.input_documents.")
    listed = next(filter(None, (flattened.nested(attributes, one) for one in prefixes)), None)
    return span_rows.retrieval(span, kind, query, listed or _value(attributes.get("output.value")))


def _is_no_call(span: Span) -> bool:
    """Tell whether an `LLM` span records no model call.

    Two kinds of spans are no calls. One only prepared a request: its output holds the messages to
    send. The other is one token of a stream: it names no model, and lacks the input or the output.
    """
    attributes = span.attributes
    named = "llm.model_name" in attributes or "embedding.model_name" in attributes
    if not named and not attributes.keys() >= WHOLE and not span_rows.failed(span):
        is_whole = '"model"' in attributes.get("output.value", "")  # a provider's whole response
        return not is_whole and not any(key.startswith(OWN) for key in attributes)
    if "llm.token_count.total" in attributes or "llm.output_messages.0.message.role" in attributes:
        return False
    text = attributes.get("output.value")
    output = json_text.parse(text) if text and text.startswith('{"messages":') else None
    return isinstance(output, dict) and "tools" in output


def _read_call(span: Span, operation: str) -> LlmCall:
    attributes = span.attributes
    call = span_rows.llm_call(span, NAME)
    call.operation = operation
    is_request, is_response = fill(call, span)
    sent, answered = attributes.get("input.value"), attributes.get("output.value")
    # What is a request or a response was parsed, so it was not cut.
    told = (None if is_request else sent, None if is_response else answered)
    span_rows.completed(call, *told)
    if REDACTED in (sent, answered) and call.content == "absent":
        call.content = "redacted"
    return call


def fill(call: LlmCall, span: Span) -> tuple[bool, bool]:
    """Set the fields of a call whose keys are OpenInference's.

    Returns:
        Whether the provider's own request and response say them.
    """
    attributes = span.attributes
    call.provider = reading.provider(attributes, "llm.provider", "llm.system")
    call.agent_name = call.agent_name or _graph_node(attributes.get("metadata", ""))
    is_request = _fill_request(call, span)
    is_response = _fill_response(call, span)
    _fill_usage(call, span)
    sent = attributes.get("input.value", "")
    if haystack.SPELLED in sent:
        inside = json_text.parse(sent), json_text.parse(attributes.get("output.value"))
        haystack.fill_spelled(call, *inside, span.memory)
    return is_request, is_response


def _graph_node(metadata: str) -> str | None:
    """Return the agent of a call in LangGraph: its name, else the node that calls."""
    found = json_text.parse(metadata) if "langgraph_node" in metadata else None
    if not isinstance(found, dict):
        return None
    name = found.get("lc_agent_name") or found.get("langgraph_node")
    return name if isinstance(name, str) else None


def _fill_request(call: LlmCall, span: Span) -> bool:
    """Set what was sent; return whether the provider's own request says it."""
    attributes = span.attributes
    # LiteLLM's callback for Langfuse writes the request into the second attribute.
    request = json_text.parse(reading.text(attributes, "input.value", "langfuse.observation.input"))
    is_request = payloads.fill_from_request(call, request, span.memory)
    # A request without tools may have lost them, so the attributes are read as well.
    if is_request and call.tool_definitions:
        call.request_model = (
            reading.text(attributes, "llm.request.model_name") or call.request_model
        )
        return True
    parameters = json_text.parse(
        reading.text(attributes, "llm.invocation_parameters", "embedding.invocation_parameters")
    )
    given = json_text.as_object(parameters)
    if not is_request:
        history = _indexed_messages(span, "llm.input_messages.")
        listed = request if isinstance(request, dict) else {"messages": request}
        others = _embedded(span) or payloads.request_messages(listed, span.memory)
        call.input_messages = _with_ids(history, request, span.memory) or others
        if not call.input_messages and (prompt := _prompt(span)):
            call.input_messages, call.operation = prompt, "text_completion"
        call.request_params = {
            key: value for key, value in given.items() if key not in payloads.NOT_PARAMETERS
        }
    call.request_model = (
        reading.text(attributes, "llm.request.model_name")
        or call.request_model
        or _model_asked_for(given)
    )
    told = _tools(span) or tool_values.flat_tools(given.get("tools") or [])
    # The last one is [] (the request offers no tools) or None (unknown).
    call.tool_definitions = call.tool_definitions or told or call.tool_definitions
    return is_request


def _with_ids(history: list[Message], request: Any, memory: MessageMemory | None) -> list[Message]:
    """Return the history with tool call ids, taken from the request's own copy of the messages.

    The flattened messages of LiteLLM and of early versions lack the ids of tool calls, and those of
    JavaScript lack blocks and texts. If the copy has fewer messages, the flattened history is
    returned.
    """
    parts = (part for message in history for part in message["parts"] or [{"id": None}])
    if not any("id" in part and part["id"] is None for part in parts):
        return history
    # The OpenAI Agents SDK's copy is the list itself, without the instructions.
    told = request if isinstance(request, dict) else {"messages": request}
    sent = told.get("messages")
    if not isinstance(sent, list) or any(isinstance(one, str) for one in sent):
        return history
    own = payloads.request_messages(told, memory) or []
    if own and own[0]["role"] != "system":
        own = [*takewhile(lambda message: message["role"] == "system", history), *own]
    return own if len(own) >= len(history) else history


def _model_asked_for(parameters: dict[str, Any]) -> str | None:
    """Return the model in the invocation parameters, unless they are a copy of the response."""
    return None if "id" in parameters else parameters.get("model")


def _fill_response(call: LlmCall, span: Span) -> bool:
    """Set what was answered; return whether the provider's own response, as it came, says it."""
    attributes = span.attributes
    payload = _chunk(json_text.parse(attributes.get("output.value")))
    body = _body(attributes.get("metadata", ""))
    payload = body or payload
    call.finish_reason = messages.finish_reason(attributes.get("llm.finish_reason"))
    is_response = payloads.fill_from_response(call, without_made_up_id(payload))
    if not is_response:
        call.response_id = attributes.get("llm.response.id")
        outputs = (
            _indexed_messages(span, "llm.output_messages.")
            or _answer(payload)
            or _completions(span)
        )
        choices = [messages.choice(one["parts"], call.finish_reason) for one in outputs]
        call.output_messages = langchain_results.choices(payload) or choices or None
        _fill_metadata(call, payload)
    elif isinstance(payload, list):
        # The OpenAI Agents SDK lists its responses. Its name is that of the requested model, which
        # its own record of a stream repeats as that of the response.
        call.request_model = call.request_model or attributes.get("llm.model_name")
        if call.response_model == call.request_model:
            call.response_model = None
    _settle_models(call, span)
    return is_response and not body


def _chunk(payload: Any) -> Any:
    """Return the response inside the last event of a stream, in the form of Mistral's client."""
    inner = payload.get("data") if isinstance(payload, dict) and len(payload) == 1 else None
    return inner if isinstance(inner, dict) else payload


def _body(metadata: str) -> Any:
    """Return the provider's response that Mastra keeps in the metadata of a step."""
    told = json_text.parse(metadata) if '"body":' in metadata else None
    body = told.get("body") if isinstance(told, dict) else None
    return json_text.parse(body) if isinstance(body, str) else None


def _fill_metadata(call: LlmCall, payload: Any) -> None:
    """Set usage, finish reason, id and model from a framework's own form of the response."""
    if not isinstance(payload, dict):
        return
    metadata = langchain_results.metadata(payload)
    payloads.fill_usage(call, payloads.usage(metadata.get("usage_metadata")))
    call.finish_reason = call.finish_reason or messages.finish_reason(metadata.get("finish_reason"))
    call.response_id = call.response_id or metadata.get("id")
    call.response_model = metadata.get("model_name") or payload.get("model")
    payloads.fill_usage(call, payloads.usage(payload.get("usage")))
    call.finish_reason = call.finish_reason or messages.finish_reason(payload.get("finish_reason"))


def _answer(payload: Any) -> list[Message]:
    """Return the answer of AutoGen (text or a list of tool calls) or of Mastra (either or both)."""
    said = json_text.as_object(payload)
    content = said.get("content") or said.get("toolCalls") or said.get("text")
    if isinstance(content, list):
        content = [{"type": "tool-call", **call} for call in content]
    return messages.read_message({"role": "assistant", "content": content}) if content else []


def _settle_models(call: LlmCall, span: Span) -> None:
    """Set both models from `llm.model_name`, which may be the requested or the responding model.

    It is the responding model if the requested one is known from elsewhere.
    """
    named = reading.text(span.attributes, "llm.model_name", "embedding.model_name")
    name = payloads.model_name(named)
    answered = call.response_model or reading.text(span.attributes, "llm.response.model_name")
    if answered is None and call.request_model is None:
        # Haystack's replies name the responding model; they are written as `repr()` texts.
        answered = name if f"'{name}'" in span.attributes.get("output.value", "") else None
    elif answered is None:
        echoed = name == call.request_model and call.operation == "chat"
        answered = None if echoed else name
    call.response_model = answered
    call.request_model = call.request_model or (None if name == answered else name)


COUNTS = {
    "input_tokens": "llm.token_count.prompt",
    "output_tokens": "llm.token_count.completion",
    "cached_input_tokens": "llm.token_count.prompt_details.cache_read",
    "reasoning_tokens": "llm.token_count.completion_details.reasoning",
    "cache_creation_input_tokens": "llm.token_count.prompt_details.cache_write",
}


def _counts(shape: Shape) -> list[tuple[str, str]]:
    """Return the token counts that spans of this shape state: the field and its key."""
    return [(name, key) for name, key in COUNTS.items() if key in shape.known]


def _fill_usage(call: LlmCall, span: Span) -> None:
    """Set the token counts that the response did not state."""
    for name, key in shape_of(span.attributes).plan(_counts):
        if getattr(call, name) is None:
            setattr(call, name, reading.integer(span.attributes, key))


def _tools(span: Span) -> list[Any] | None:
    items = flattened.nested(span.attributes, "llm.tools.")
    return tool_values.flat_tools(_definition(item.get("tool", {})) for item in items)


def _definition(tool: dict[str, Any]) -> Any:
    """Return a tool's definition from `json_schema`.

    The schema is either the whole definition, or only that of the parameters. In the second case
    the name and the description come from the attributes beside it.
    """
    schema = json_text.parse(tool.get("json_schema"))
    known = tool.keys() & {"name", "description"} if isinstance(schema, dict) else ()
    alone = known and schema.keys().isdisjoint({"name", "function"})
    return {**{key: tool[key] for key in known}, "parameters": schema} if alone else schema


def _indexed_messages(span: Span, prefix: str) -> list[Message]:
    items = flattened.nested(span.attributes, prefix)
    return messages.conversation([_plain_message(item, span) for item in items], span.memory)


def _embedded(span: Span) -> list[Message] | None:
    """Return the texts of an embedding, each as a user's message."""
    items = flattened.nested(span.attributes, "embedding.embeddings.")
    texts = [item.get("embedding", {}).get("text") for item in items]
    return messages.conversation([text for text in texts if text], span.memory) or None


def _prompt(span: Span) -> list[Message]:
    """Return the prompt of a completion model as a user's message, if there is only one prompt.

    The key is `llm.prompts`, a list of texts, or `llm.prompts.0.prompt.text`. Several prompts are
    several requests in one span, which have no history in common.
    """
    told = _texts(span, "llm.prompts.", "prompt") or reading.array(span.attributes, "llm.prompts")
    alone = told is not None and len(told) == 1 and isinstance(told[0], str)
    return messages.conversation(told or [], span.memory) if alone else []


def _completions(span: Span) -> list[Message]:
    """Return the answers of a completion model: one a choice, or the whole output."""
    told = _texts(span, "llm.choices.", "completion")
    if not told and _prompt(span):
        told = [_value(span.attributes.get("output.value"))]
    texts = [{"role": "assistant", "content": one} for one in told if isinstance(one, str)]
    return messages.conversation(texts)


def _texts(span: Span, prefix: str, name: str) -> list[Any]:
    items = flattened.nested(span.attributes, prefix)
    return [payloads.details(item, name).get("text") for item in items if isinstance(item, dict)]


def _plain_message(item: dict[str, Any], span: Span) -> dict[str, Any]:
    """Return a flattened message in a provider's form."""
    message = item.get("message", {})
    if "function" in item:
        return {"role": "tool", "content": [_function_result(text) for text in item["function"]]}
    blocks = [_plain_block(block) for block in message.get("contents", [])]
    calls = [
        {**one, "id": _call_id(one["id"], span)}
        for call in message.get("tool_calls", [])
        for one in _separate(_plain_call(call["tool_call"]), span)
    ]
    return {
        "role": message.get("role"),
        "content": message.get("content", blocks or None),
        "tool_calls": calls,
        "tool_call_id": _call_id(message.get("tool_call_id") or _id_inside(message), span),
    }


def _call_id(told: str | None, span: Span) -> str | None:
    """Return the id of a tool call, also where the flattened messages have that of its item.

    For the Responses API, Agno writes item ids (fc_…) into them, and both ids beside them.
    """
    if not (told or "").startswith(ITEM):
        return told
    values = (span.attributes.get(key, "") for key in ("input.value", "output.value"))
    return _ids_of_items(*values).get(told or "", told)


@lru_cache(maxsize=8)
def _ids_of_items(*values: str) -> Mapping[str, str]:
    """Return the id of each tool call by that of its item. Cached for the messages of one span."""
    parsed = map(json_text.parse, values)
    listed = [one.get("messages") if isinstance(one, dict) else one for one in parsed]
    told = (one for some in listed if isinstance(some, list) for one in some)
    calls = [one.get("tool_calls") for one in told if isinstance(one, dict)]
    pairs = (one for some in calls if isinstance(some, list) for one in some)
    return {str(one["id"]): str(one["call_id"]) for one in pairs if _has_both(one)}


def _has_both(call: Any) -> bool:
    return isinstance(call, dict) and bool(call.get("id") and call.get("call_id"))


def _id_inside(message: dict[str, Any]) -> str | None:
    """Return the id of the tool call that a message answers, which BeeAI writes into its blocks."""
    blocks = (payloads.details(block, "message") for block in message.get("contents", ()))
    return next(filter(None, (block.get("tool_call_id") for block in blocks)), None)


def _separate(call: dict[str, Any], span: Span) -> list[dict[str, Any]]:
    """Return the tool calls that JavaScript joins into one entry, if the call was streamed."""
    if joined_calls.JOINED not in str(call["arguments"]):
        return [call]
    names = [str(tool.get("name")) for tool in _tools(span) or () if isinstance(tool, dict)]
    return joined_calls.separate(call, names)


def _function_result(text: str) -> dict[str, Any]:
    """Return a function result that AutoGen writes into a message as JSON."""
    result = json_text.as_object(json_text.parse(text))
    return {
        "type": "tool_result",
        "call_id": result.get("call_id"),
        "output": result.get("content"),
    }


def _plain_call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a flattened tool call. Packages omit empty arguments, so absent ones become `{}`."""
    function = call.get("function", {})
    arguments = function.get("arguments", {})
    return {"id": call.get("id"), "name": function.get("name"), "arguments": arguments}


def _plain_block(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("message_content", {})
    if "tool_call" in block:
        return {"type": "tool_call", **_plain_call(block["tool_call"])}
    if content.get("type") == "image":
        return {"type": "image", "image": content.get("image", {}).get("image", {}).get("url")}
    return dict(content)


def _read_handoff(span: Span) -> AgentRun | None:
    """Read a handoff, which the OpenAI agents package writes as a tool named `handoff to NAME`."""
    said, _, name = span.name.partition("handoff to ")
    # A user's tool of such a name states it as `tool.name` too.
    is_handoff = not said and name and span.attributes.get("tool.name") != span.name
    return span_rows.agent_run(span, "handoff", name) if is_handoff else None


def _read_tool(span: Span) -> ToolCall | None:
    attributes = span.attributes
    is_event = attributes.get("metadata.path", "").endswith(f".{span.name}")  # of a tool, in BeeAI
    if span.name == DSPY_FINISH or is_event:
        return None
    result = _value(attributes.get("output.value"))
    message = tool_values.tool_message(result)
    own = text_blocks.plain(tool_values.plain_result(result))  # without MCP's blocks
    return span_rows.tool_call(
        span,
        # DSPy names the span after the method.
        name=reading.text(attributes, "tool.name") or span.name.removesuffix(".__call__"),
        tool_call_id=reading.text(attributes, "tool_call.id", "tool.id")
        or message.get("tool_call_id"),
        arguments=_arguments(_value(attributes.get("input.value"))),
        result=message.get("content", own),
    )


def _value(text: str | None) -> Any:
    """Return the parsed value of a JSON text, or the text. The MIME type is not reliable."""
    parsed = json_text.parse(text)
    # The text `null` is a result: the tool returned nothing.
    return text if parsed is None and text != "null" else parsed


def _arguments(value: Any) -> Any:
    """Return a tool's arguments; of a Python tool recorded as args and kwargs, the kwargs."""
    if isinstance(value, str) and value.startswith("{"):
        # Some packages write the `repr()` of a dictionary.
        value = json_text.parse_literal(value) or value
    if isinstance(value, dict) and "kwargs" in value and not value.get("args"):
        return value["kwargs"]
    if isinstance(value, dict) and value.keys() == {"input", "options"}:  # BeeAI's call of a tool
        return value["input"]
    return value
