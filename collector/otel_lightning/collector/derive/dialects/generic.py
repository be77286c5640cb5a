"""Observability vendors' own spans: a type, an input and an output under the vendor's prefix.

LangWatch (`langwatch.span.type`, `langwatch.input`), Laminar (`lmnr.span.type`, `lmnr.span.input`),
Judgment (`judgment.span_kind`, `judgment.input`), DeepEval (`confident.span.type`,
`confident.span.input`), VoltAgent (`span.type`, `input`) and Genkit (`genkit:metadata:subtype`,
`genkit:input`) write such spans without the keys of any convention. Other vendors do the same, so
every prefix is accepted.
"""

from functools import lru_cache
from typing import Any, NamedTuple

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.dialects import semconv
from otel_lightning.collector.derive.dialects.semconv import counts as semconv_counts
from otel_lightning.collector.derive.dialects.semconv import tools as semconv_tools
from otel_lightning.collector.derive.messages import finish, payloads, token_counts
from otel_lightning.collector.derive.messages.openai_agents_responses import without_made_up_id
from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Retrieval, Span, ToolCall
from otel_lightning.collector.derive.text import json_text

NAME = "observed"
RANK = 110
CONVERSATION_KEYS = ("lmnr.association.properties.session_id", "confident.trace.thread_id")
OPERATIONS = {**dict.fromkeys(("llm", "generation", "model"), "chat"), "embedding": "embeddings"}
TOOLS = ("tool", "tool.v2")
"""The types of executions. The second is Genkit's in Go, whose results are in `output`."""
AGENT_KINDS = {"agent": "agent", "workflow": "workflow", "flow": "workflow"}
RETRIEVALS = {"rag": "retriever", "retriever": "retriever", "reranker": "reranker"}
TYPES = ("span.type", "span.kind", "span_kind", "observation.type", "metadata:subtype")
PAYLOADS = ("gen_ai.prompt", "gen_ai.completion")
"""Where Judgment has a whole request and response, instead of under its own prefix."""
REQUEST, RESPONSE = ".llm_request", ".llm_response"
"""Early Google ADK: the whole request and response under a prefix, without a type."""
MODELS = ("gen_ai.request.model", "gen_ai.response.model")
COUNTS = ("llm.input_token_count", "llm.output_token_count")
"""DeepEval's token counts, under its prefix."""


class Keys(NamedTuple):
    """The names of the attributes that hold the type and the content of a vendor's span."""

    kind: str
    """The attribute that holds the type, or the type itself if no attribute holds it."""
    input: str | None
    output: str | None
    params: str | None = None
    name: str | None = None
    metrics: str | None = None
    model: str | None = None
    """The attribute that holds the responding model, or the only one that is known."""
    subject: str | None = None
    """The attribute that holds the name of the tool or agent."""
    counts: tuple[str | None, ...] = ()
    """The attributes that hold the numbers of input and output tokens."""


def matches(span: Span) -> bool:
    """Return whether the span has a type and content under one prefix."""
    return _keys(tuple(span.attributes)) is not None


@lru_cache(maxsize=1024)
def _keys(names: tuple[str, ...]) -> Keys | None:
    """Return which attributes hold the type and content.

    Cached, because the spans of one vendor have the same few sets of attributes.
    """
    for name in names:
        prefix = next((name.removesuffix(end) for end in TYPES if name.endswith(end)), None)
        if prefix is not None and prefix[-1:] in {"", ".", ":"}:
            keys = _keys_under(prefix, name, names)
            return keys if keys.input or keys.output else None
        answer = f"{name.removesuffix(REQUEST)}{RESPONSE}"
        if name.endswith(REQUEST) and answer in names:
            return Keys("llm", name, answer)
    if {"gen_ai.system", "input", "output"}.issubset(names):
        return Keys("llm" if MODELS[0] in names else "tool", "input", "output")
    return None


def _keys_under(prefix: str, kind: str, names: tuple[str, ...]) -> Keys:
    """Return the attributes with a vendor's prefix, or Judgment's without it.

    Args:
        prefix: The prefix, such as `langwatch.`.
        kind: The attribute that holds the type.
        names: All attributes of the span.
    """
    sent, answered = (_under(prefix, names, name) for name in ("input", "output"))
    if not (sent or answered):
        sent, answered = (key if key in names else None for key in PAYLOADS)
    return Keys(
        kind,
        sent,
        answered,
        params=_under(prefix, names, "params"),
        name=_under(prefix, names, "name"),
        metrics=_under(prefix, names, "metrics") or _under(prefix, names, "usage.metadata"),
        model=_under(prefix, names, "llm.model"),
        subject=_under(prefix, names, "tool.name") or _under(prefix, names, "agent.name"),
        counts=tuple(_under(prefix, names, name) for name in COUNTS),
    )


def _under(prefix: str, names: tuple[str, ...], what: str) -> str | None:
    """Return the attribute `what` under a prefix, with or without `span.` between; None if none."""
    return next((key for key in (f"{prefix}{what}", f"{prefix}span.{what}") if key in names), None)


def read(span: Span) -> LlmCall | ToolCall | AgentRun | Retrieval | None:
    """Read a vendor's span."""
    keys = _keys(tuple(span.attributes))
    kind = span.attributes.get(keys.kind, keys.kind).lower() if keys else ""
    if keys and kind in OPERATIONS:
        embeds = keys.output is None and "embed" in span.name.lower()
        return _read_call(span, keys, "embeddings" if embeds else OPERATIONS[kind])
    if keys and kind in TOOLS:
        return _read_tool(span, keys)
    if keys and kind in RETRIEVALS:
        sent, found = (_content(span, key) for key in (keys.input, keys.output))
        return span_rows.retrieval(span, RETRIEVALS[kind], sent, found)
    if keys and kind in AGENT_KINDS:
        name = span.attributes.get(keys.subject or "", span.name)
        return span_rows.agent_run(span, AGENT_KINDS[kind], name)
    return None


def _content(span: Span, key: str | None) -> Any:
    """Return an attribute's value: parsed JSON, or text. `{"type", "value"}` is unwrapped."""
    text = span.attributes.get(key) if key else None
    value = json_text.parse(text)
    if isinstance(value, dict) and value.keys() == {"type", "value"}:
        return value["value"]
    if isinstance(value, list):  # DeepEval's messages are an array of JSON texts
        return [_parsed(one) for one in value]
    return text if value is None else value


def _parsed(value: Any) -> Any:
    """Return the object that a text holds as JSON; any other value as it is."""
    inner = json_text.parse(value) if isinstance(value, str) and value[:1] == "{" else None
    return value if inner is None else inner


def _read_tool(span: Span, keys: Keys) -> ToolCall:
    name = reading.text(span.attributes, *filter(None, (keys.subject, "tool.name", "name")))
    name = name or span.name
    arguments = _content(span, keys.input)
    match arguments:
        case {"action": str(named), "params": inner} if named == name:  # Browser Use's
            arguments = inner
    result, failure = _content(span, keys.output), None
    match result:
        case {"output": inner} if span.attributes.get(keys.kind) == TOOLS[1]:
            result = inner
        case {"is_done": bool(), "extracted_content": found, "error": failure}:  # Browser Use's
            result = failure if found is None else found
    tool = span_rows.tool_call(
        span,
        name,
        tool_call_id=reading.text(span.attributes, "tool.call.id"),
        arguments=arguments,
        result=result,
    )
    # Browser Use tells the model of an error, and its span ends without one.
    tool.error_type = tool.error_type or (semconv_tools.TOOL_ERROR if failure else None)
    return tool


def _read_call(span: Span, keys: Keys, operation: str) -> LlmCall:
    call = span_rows.llm_call(span, NAME)
    call.operation = operation
    _fill_requested_model(call, span, keys)
    _fill_request(call, span, keys)
    answered_by = span.attributes.get(keys.model or "")
    call.request_model = call.request_model or answered_by
    if call.request_model not in {None, answered_by}:  # a stream that broke off repeats it
        call.response_model = call.response_model or answered_by
    answer = _content(span, keys.output)
    if answer == "null":  # how Logfire writes that there is none
        answer = None
    is_streamed = keys.output == PAYLOADS[1] or call.request_params.get("stream") is True
    streamed = span.attributes.get(keys.output or "") if is_streamed else None
    is_text = _fill_answer(call, answer, streamed)
    _fill_counts(call, span, keys, json_text.as_object(answer))
    (reason, *_) = semconv.finish_reasons(span.attributes)
    call.finish_reason = call.finish_reason or finish.reason(reason)
    span_rows.completed(call, *(span.attributes.get(key) for key in keys[1:3] if key))
    if is_streamed and is_text:
        call.content = "truncated"  # a stream's text, without the tool calls if there were any
    return span_rows.without_doubtful_reason(call, reason)


def _fill_requested_model(call: LlmCall, span: Span, keys: Keys) -> None:
    """Set the provider and the models, which may be written as `provider/model`."""
    call.provider = reading.provider(span.attributes, "gen_ai.provider.name", "gen_ai.system")
    call.request_model, call.response_model = map(span.attributes.get, MODELS)
    named = span.attributes.get(keys.name or "", "")
    call.request_model = call.request_model or (named if "/" in named else None)
    if call.provider is None and "/" in (call.request_model or ""):
        call.provider, _, call.request_model = (call.request_model or "").partition("/")


def _fill_answer(call: LlmCall, answer: Any, streamed: str | None) -> bool:
    """Set the output from a provider's response, or from an answer in another form.

    Args:
        call: The call.
        answer: The answer: parsed JSON, or a text.
        streamed: The same as it was written, if it was streamed.

    Returns:
        Whether the answer is a text.
    """
    whole = json_text.as_object(answer)
    # Genkit keeps the provider's own response as `raw` or `custom` beside its own form.
    response = without_made_up_id(whole.get("raw") or whole.get("custom") or answer)
    if not payloads.fill_from_response(call, response):
        call.output_messages = payloads.answer(answer)
        is_answered = any(message["parts"] for message in call.output_messages or ())
        if streamed is not None and not is_answered:  # a text that is JSON
            answer = streamed
            call.output_messages = payloads.answer(answer)
    return isinstance(answer, str)


def _fill_counts(call: LlmCall, span: Span, keys: Keys, response: dict[str, Any]) -> None:
    """Set the token counts; of several places with the same count, the first one counts."""
    places = (
        json_text.parse(span.attributes.get("usage")),
        _content(span, keys.metrics),
        *map(response.get, payloads.USAGES),
    )
    own_keys = (reading.integer(span.attributes, key or "") for key in keys.counts)
    for counts in (
        *map(token_counts.usage, places),
        semconv_counts.usage(span.attributes),
        token_counts.Usage(*own_keys),
    ):
        token_counts.fill_usage(call, counts)


def _fill_request(call: LlmCall, span: Span, keys: Keys) -> None:
    sent, params = _content(span, keys.input), _content(span, keys.params)
    if payloads.fill_from_request(call, sent, span.memory):
        return
    given = json_text.as_object(params)
    request = sent if isinstance(sent, dict) else {"messages": sent}
    call.input_messages = payloads.request_messages(request, span.memory)
    call.tool_definitions = payloads.request_tools(request) or payloads.request_tools(given)
    config = request.get("config")
    given = {**given, **json_text.as_object(config)}
    call.request_params = {k: v for k, v in given.items() if k not in payloads.NOT_PARAMETERS}
