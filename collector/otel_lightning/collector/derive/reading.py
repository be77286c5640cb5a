"""Helpers of all dialect readers: typed values of text attributes, and rows with common fields."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from otel_lightning.collector.derive.plans import Field, Fields
from otel_lightning.collector.derive.plans import text as one_text
from otel_lightning.collector.derive.rows import (
    AgentRun,
    Attributes,
    LlmCall,
    Message,
    Retrieval,
    Span,
    ToolCall,
)
from otel_lightning.collector.derive.text import json_text
from otel_lightning.collector.derive.text.documents import documents, number
from otel_lightning.collector.derive.text.json_text import is_cut
from otel_lightning.collector.derive.text.message_memory import SharedMessage
from otel_lightning.instrumentation import attributes as names

LARGEST, LARGEST_TOKEN = 2**63, 2**31
"""Exclusive upper bounds of a count (a BIGINT column) and of a token id (an INTEGER column)."""
LONGEST_COUNT = 100
"""Limit in characters: a text of this length or more is not parsed as a number."""
CONVERSATION_KEYS = (
    "gen_ai.conversation.id",
    "session.id",
    "gen_ai.session.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "langsmith.metadata.session_id",
    "langsmith.metadata.thread_id",
    "ai.telemetry.metadata.sessionId",
    "lmnr.association.properties.session_id",
    "gen_ai.thread.id",
    "conversation.id",
    "gcp.vertex.agent.session_id",
)
"""The spellings of a conversation's id, the most reliable first."""
GRAPH_NODES = (
    "traceloop.association.properties.lc_agent_name",
    "traceloop.association.properties.langgraph_node",
    "langsmith.metadata.lc_agent_name",
    "langsmith.metadata.langgraph_node",
)
"""The spellings of the agent of a call in LangGraph: its name, else the node that calls."""
TOKEN_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "reasoning_tokens",
    "cache_creation_input_tokens",
)
COSTS = ("operation.cost", "gen_ai.usage.cost", "llm.cost.total", "gen_ai.usage.total_cost")
"""The spellings of the cost of a call, as instrumentations report it."""
SCHEMAS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema", "arguments")
"""The spellings of the schema of a tool's parameters."""
_CONVERSATION = frozenset(CONVERSATION_KEYS)
SPELLED = re.compile(rf"content={json_text.QUOTED}( .*)? tool_call_id='(?P<id>[^']+)'.*", re.DOTALL)
"""The `repr()` of LangChain's tool messages."""


def text(attributes: Attributes, *keys: str) -> str | None:
    """Return the first of these attributes that is present and not empty."""
    for key in keys:
        if value := attributes.get(key):
            return value
    return None


def provider(attributes: Attributes, *keys: str) -> str | None:
    """Return the provider's name in lower case, as the conventions write it.

    Example:
        >>> provider({"gen_ai.system": "OpenAI"}, "gen_ai.provider.name", "gen_ai.system")
        'openai'
    """
    name = text(attributes, *keys)
    return name and name.lower()


def integer(attributes: Attributes, *keys: str) -> int | None:
    """Return the first of these attributes that holds a whole number."""
    return _first_integer(*filter(None, map(attributes.get, keys)))


def one_integer(*keys: str) -> Field:
    """Return a field that is the first of these attributes that holds a whole number."""
    return Field(keys, _first_integer)


def _first_integer(*texts: str) -> int | None:
    for text in texts:
        if len(text) < LONGEST_COUNT and (count := _whole(text)) is not None:
            return count
    return None


@lru_cache(maxsize=4096)
def _whole(text: str) -> int | None:
    """Return the whole number that a text holds, or None. Cached, because counts repeat."""
    value = json_text.parse(text)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return int(value) if is_count(value) else None


def is_count(value: object) -> bool:
    """Tell whether a value is a whole number that a column can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def array(attributes: Attributes, key: str) -> list[Any] | None:
    """Return the value of an attribute that is a non-empty array, or None for any other."""
    text = attributes.get(key)
    return _array(text) if text else None


def _array(text: str) -> list[Any] | None:
    value = json_text.parse(text)
    return value if isinstance(value, list) and value else None


def token_ids(value: object) -> list[int] | None:
    """Return the value if it is a non-empty list of token ids, otherwise None."""
    if not isinstance(value, list) or not value:
        return None
    return value if all(is_count(one) and 0 <= one < LARGEST_TOKEN for one in value) else None


def logprobs(value: object) -> list[float] | None:
    """Return the value as floats if it is a non-empty list of log probabilities, otherwise None."""
    if not isinstance(value, list) or not value:
        return None
    known = [float(one) for one in value if isinstance(one, int | float)]
    return known if len(known) == len(value) else None


def conversation_id(attributes: Attributes) -> str | None:
    """Return the conversation id that a span or event states, if any."""
    if _CONVERSATION.isdisjoint(attributes):
        return None
    return text(attributes, *CONVERSATION_KEYS)


def failed(span: Span) -> bool:
    """Tell whether the span ended in an error. An exception event alone does not count as one."""
    return span.status_code.endswith("ERROR")


def error(span: Span) -> tuple[str | None, str | None]:
    """Return the type and message of the error that ended a span; (None, None) without an error."""
    if not failed(span):
        return None, None
    last: Attributes = next(
        (event.attributes for event in reversed(span.events) if event.name == "exception"), {}
    )
    kind = text(span.attributes, "error.type") or text(last, "exception.type") or "_OTHER"
    # Keep the class name alone: some packages add the module, which differs between versions.
    name = kind.rpartition(".")[2]
    kind = name if name[:1].isupper() else kind
    return kind, span.status_message or text(last, "exception.message")


def _cost(*texts: str) -> float | None:
    return number(next(filter(None, texts), None))


COMMON = Fields(
    agent_name=one_text("gen_ai.agent.name", "agent.name", *GRAPH_NODES),
    conversation_id=one_text(*CONVERSATION_KEYS),
    content=Field((names.TRUNCATED,), lambda _: "truncated"),
    cost=Field(COSTS, _cost),
    prompt_token_ids=Field((names.PROMPT_TOKEN_IDS,), lambda said: token_ids(_array(said))),
    completion_token_ids=Field((names.COMPLETION_TOKEN_IDS,), lambda said: token_ids(_array(said))),
    completion_logprobs=Field((names.COMPLETION_LOGPROBS,), lambda said: logprobs(_array(said))),
)
"""Fields of a model call whose keys are the same in all dialects."""


def llm_call(span: Span, dialect: str) -> LlmCall:
    """Return a model call with the fields that all dialects share.

    These are ids, times, names, error, cost, and the token ids and log probabilities under our own
    attribute names.
    """
    call = LlmCall(
        span.trace_id,
        span.span_id,
        span.parent_span_id,
        span.start_ns,
        span.end_ns,
        dialect,
        span.resource.get("service.name") or None,
    )
    COMMON.fill(call, span.attributes)
    if failed(span):
        call.error_type, call.error_message = error(span)
    return call


def agent_run(span: Span, kind: str, name: str | None) -> AgentRun:
    """Return the run of an agent, workflow or handoff that a span records."""
    return AgentRun(
        trace_id=span.trace_id,
        span_id=span.span_id,
        name=name,
        kind=kind,
        parent_span_id=span.parent_span_id,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        conversation_id=conversation_id(span.attributes),
    )


def retrieval(span: Span, kind: str, query: Any, found: Any) -> Retrieval:
    """Return the search or reranking of documents that a span records.

    Args:
        span: The span of a retriever or reranker.
        kind: `retriever` or `reranker`.
        query: The search query: text, or an object that holds the text.
        found: The documents, in any framework's form.
    """
    if isinstance(query, Mapping):
        texts = (query.get(key) for key in ("query", "input", "question", "text"))
        query = next((one for one in texts if isinstance(one, str)), None) or dict(query)
    told = query if query is None or isinstance(query, str) else json_text.dumps(query).decode()
    return Retrieval(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        kind=kind,
        name=span.name,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        query=told,
        documents=documents(found),
        error_type=error(span)[0],
    )


def tool_call(span: Span, name: str | None, **said: Any) -> ToolCall:
    """Return the execution of a tool that a span records.

    Args:
        span: The span of the execution.
        name: The tool's name, if known.
        said: Further fields of `ToolCall` that the dialect knows.
    """
    return ToolCall(
        name=name,
        trace_id=span.trace_id,
        span_id=span.span_id,
        error_type=error(span)[0],
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        **said,
    )


def completed(call: LlmCall, *sources: str | None, cut: bool = False) -> LlmCall:
    """Set the fields that follow from others: the finish reason and the state of the content.

    Args:
        call: A call whose messages are set; changed in place.
        sources: The texts that its messages were read from.
        cut: Whether one of these texts is known to have been truncated.

    Returns:
        The same call.
    """
    outputs = call.output_messages or []
    if call.input_tokens == 0:  # a model always reads input, so 0 means that nobody counted
        for name in TOKEN_COUNTS:
            setattr(call, name, getattr(call, name) or None)
    if call.finish_reason is None:
        for message in outputs:
            if "finish_reason" in message:
                call.finish_reason = message["finish_reason"]
                break
    if call.finish_reason == "stop" and asks_for_tools(call):
        call.finish_reason = "tool_calls"
    if call.finish_reason == "error" and not call.error_type:
        # Some packages write `error` where the provider gave no reason. A call with an answer did
        # not fail.
        answered = any(message["parts"] for message in outputs)
        call.finish_reason, call.error_type = (None, None) if answered else ("error", "_OTHER")
    if call.error_type and not outputs:
        call.finish_reason = "error"
    cut = cut or call.content == "truncated" or (bool(sources) and any(map(is_cut, sources)))
    call.content = _content(call, cut)
    return call


def _content(call: LlmCall, cut: bool) -> str:  # noqa: FBT001
    if not call.input_messages and not call.output_messages:
        return "truncated" if cut else "absent"
    if _any_left_out(call.input_messages) or _any_left_out(call.output_messages):
        return "redacted"
    answered = call.output_messages or call.error_type or call.operation == "embeddings"
    return "truncated" if cut or not call.input_messages or not answered else "full"


def _any_left_out(messages: list[Message] | None) -> bool:
    """Tell whether one of these messages is only an outline; a shared one is looked at once."""
    for message in messages or ():
        if type(message) is not SharedMessage:
            if _left_out(message):
                return True
        elif not message.is_whole:
            if _left_out(message):
                return True
            message.is_whole = True
    return False


def _left_out(message: Message) -> bool:
    """Tell whether a message has roles and types only: its text or arguments were not recorded."""
    parts = message["parts"]
    if not parts:
        return bool(message["role"] != "assistant")
    return False in [_CARRIED.get(part["type"], "type") in part for part in parts]


def is_gemini(call: LlmCall) -> bool:
    """Tell whether a call is to Gemini.

    Gemini reports `stop` also for a turn that requests tools, and its tool calls have no ids.
    """
    named = (call.provider or "").startswith(("gemini", "google", "vertex_ai", "gcp."))
    return named or call.operation == "generate_content"


def asks_for_tools(call: LlmCall) -> bool:
    """Tell whether the call's output holds a tool call."""
    for output in call.output_messages or ():
        for part in output["parts"]:
            if part["type"] == "tool_call":
                return True
    return False


_CARRIED = {"tool_call": "arguments", "tool_call_response": "response"}
"""The key that holds the content of a part of each type. A part without it was redacted."""


def flat_tools(definitions: Iterable[Any]) -> list[Any] | None:
    """Return tool definitions in the conventions' form: type, name, description, parameters."""
    tools = [
        _flat_tool(tool)
        for definition in definitions
        if isinstance(definition, dict)
        for tool in _declared(definition)
    ]
    return tools or None


def _declared(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tools of one definition. A definition in Gemini's form holds several."""
    declared = definition.get("function_declarations", definition.get("functionDeclarations"))
    if not isinstance(declared, list):
        return [definition]
    return [tool for tool in declared if isinstance(tool, dict)]


def _flat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    inside = (tool.get(key) for key in ("function", "toolSpec"))
    body = next((value for value in inside if isinstance(value, dict)), tool)
    kind = str(tool.get("type") or "function")
    # A tool that the provider runs has no name and no schema; it is kept unchanged.
    if body is tool and "name" not in tool and kind != "function":
        return {"type": kind, "name": tool.get("server_label") or kind, **tool}
    flat = {"type": "function", "name": body.get("name"), "description": body.get("description")}
    for key in SCHEMAS:
        if body.get(key):
            flat["parameters"] = _schema(body[key])
            break
    return {key: value for key, value in flat.items() if value is not None}


def _schema(value: Any) -> Any:
    """Return a JSON schema that came as JSON text, in Bedrock's wrapper `{"json": …}`, or plain."""
    value = json_text.parse(value) if isinstance(value, str) else value
    value = value.get("json", value) if isinstance(value, dict) else value
    if not isinstance(value, dict) or "properties" not in value:
        return value
    return {"type": "object", **{key: said for key, said in value.items() if said is not None}}


def is_a_call(value: object) -> bool:
    """Tell whether a value is a function's arguments as a decorator records them: args, kwargs."""
    if not isinstance(value, dict) or value.keys() != {"args", "kwargs"}:
        return False
    return isinstance(value["args"] or [], list) and isinstance(value["kwargs"], dict)


def named_arguments(value: Any, first: str | None = None) -> Any:
    """Return a decorated function's arguments by name; unchanged if some have no name.

    Args:
        value: The recorded arguments, `{"args", "kwargs"}`. Any other value is returned unchanged.
        first: The name for the first positional argument. The other positional ones are dropped.
    """
    if not is_a_call(value) or (value["args"] and not first):
        return value
    return {**({first: value["args"][0]} if value["args"] else {}), **value["kwargs"]}


def plain_result(result: Any) -> Any:
    """Return a tool's own result without the record that LlamaIndex wraps around it."""
    inner = result.get("tool_output", result) if isinstance(result, dict) else result
    return inner.get("raw_output", inner) if isinstance(inner, dict) else inner


def tool_message(result: Any) -> Mapping[str, Any]:
    """Return the LangChain tool message that a result holds, in each known serialisation.

    Returns:
        The message, with `content` and `tool_call_id`; {} if the result holds none.
    """
    for key in ("output", "data", "kwargs"):
        inner = result.get(key) if isinstance(result, dict) else None
        result = inner if isinstance(inner, dict | str) else result
    if isinstance(result, str) and (found := SPELLED.fullmatch(result)):
        return {"content": json_text.parse_literal(found["quoted"]), "tool_call_id": found["id"]}
    return result if isinstance(result, dict) and "tool_call_id" in result else {}
