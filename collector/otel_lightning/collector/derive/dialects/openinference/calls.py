"""OpenInference's model calls.

Messages are flattened attributes (`llm.input_messages.N.message.…`). Most packages also keep the
provider's own request and response in `input.value` and `output.value`, which then take precedence.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

from otel_lightning.collector.derive import span_rows
from otel_lightning.collector.derive.attributes import flattened, graph_nodes, reading
from otel_lightning.collector.derive.attributes.compiled_fields import first
from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of
from otel_lightning.collector.derive.dialects import haystack
from otel_lightning.collector.derive.dialects.openinference import flattened_messages
from otel_lightning.collector.derive.histories import lost_arguments
from otel_lightning.collector.derive.messages import (
    finish,
    langchain_results,
    messages,
    one_message,
    payloads,
    token_counts,
    tool_values,
)
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.openai_agents_responses import without_made_up_id
from otel_lightning.collector.derive.rows import LlmCall, Message, Span
from otel_lightning.collector.derive.text import json_text, repr_objects

NAME = "openinference"
INPUT, OUTPUT, METADATA = "input.value", "output.value", "metadata"
REQUESTS = (INPUT, "langfuse.observation.input")
"""The keys of a request. LiteLLM's callback for Langfuse writes it into the second."""
PARAMETERS = ("llm.invocation_parameters", "embedding.invocation_parameters")
MODELS = ("llm.model_name", "embedding.model_name")
PROVIDERS = ("llm.provider", "llm.system")
COUNTS = {
    "input_tokens": "llm.token_count.prompt",
    "output_tokens": "llm.token_count.completion",
    "cached_input_tokens": "llm.token_count.prompt_details.cache_read",
    "reasoning_tokens": "llm.token_count.completion_details.reasoning",
    "cache_creation_input_tokens": "llm.token_count.prompt_details.cache_write",
}
SENT = "llm.input_messages."
CALLED = ("llm.token_count.total", "llm.output_messages.0.message.role")
"""Keys that only model calls have."""
OWN = ("llm.", "lightning.")
"""Prefixes of keys that no piece of a stream has."""
PROMPTS, CHOICES, EMBEDDED = "llm.prompts", "llm.choices.", "embedding.embeddings."
REASONS = ("llm.finish_reason", "llm.output_messages.0.message.finish_reason")
REASON = ".finish_reason"
"""Suffix of the keys of finish reasons."""
RESPONDING = {
    ("openinference.instrumentation.litellm", "responses"),
    ("openinference.instrumentation.litellm", "aresponses"),
}
"""The scopes and names of spans whose `llm.model_name` is overwritten by that of the answer."""
ANTHROPICS_STREAM = (
    "openinference.instrumentation.bedrock",
    "bedrock.invoke_model_with_response_stream",
)
"""The scope and the span's name of a streamed answer of Bedrock's `InvokeModel` in Python."""
LOSE_ANSWERS = {"openinference.instrumentation.groq"}
"""The scopes of packages that write nothing of a streamed answer."""
EMPTY = '{"text": "", '
"""Start of an empty text in such an answer."""
REASONED = "reasoning_content"
"""The key of the reasoning in an answer of a framework."""


LANGCHAINS, GRAPH = '"ls_', "langgraph_node"
"""What stands in LangChain's metadata of a model call: its provider (`ls_provider`) and model; and
the key of LangGraph's node."""
DROP_PARTS = "@arizeai/openinference-instrumentation-langchain"
"""The scope of the package that writes nothing of a streamed answer that broke off, and does not
say which answers were streamed."""
REFUSED = re.compile(r"\d{3} |Connection error")
"""Start of the error of a call that got no answer: the status of HTTP, or no connection."""


class Plan:
    """How to read the model calls of a shape: decided once, by its keys."""

    __slots__ = (
        "counts",
        "has_choices",
        "has_embeddings",
        "has_own",
        "has_prompts",
        "is_bare",
        "is_call",
        "lost_beginning",
        "model",
        "parameters",
        "provider",
        "reason",
        "request",
    )

    def __init__(self, shape: Shape) -> None:
        """Look at the keys of a shape."""
        known = shape.known
        self.request = first(shape, REQUESTS)
        self.parameters = first(shape, PARAMETERS)
        self.model = first(shape, MODELS)
        self.provider = first(shape, PROVIDERS)
        self.counts = [(name, key) for name, key in COUNTS.items() if key in known]
        # TanStack AI's is under a prefix of its own.
        others = [key for key in shape.keys if key.endswith(REASON) and not key.startswith("llm.")]
        self.reason = first(shape, [*REASONS, *others])
        self.has_prompts = shape.has_any(PROMPTS)
        self.has_choices = shape.has_any(CHOICES)
        self.has_embeddings = shape.has_any(EMBEDDED)
        self.has_own = shape.has_any(OWN)
        # It names no model, and lacks the input or the output.
        self.is_bare = known.isdisjoint(MODELS) and not {INPUT, OUTPUT} <= known
        self.is_call = not known.isdisjoint(CALLED)
        self.lost_beginning = flattened.lost_beginning(shape, SENT, "message.role")


def read(span: Span, plan: Plan, operation: str) -> LlmCall | None:
    """Read a model call; None if the span records none.

    Args:
        span: A span of the kind `LLM` or `EMBEDDING`.
        plan: How to read spans with the keys of this one.
        operation: The operation of its kind.
    """
    if not plan.is_call and _is_no_call(span, plan):
        return None
    call = span_rows.llm_call(span, NAME)
    call.operation = operation
    is_cut = fill(call, span) or _may_have_lost_parts(call)
    call.lost_answers = span.scope_name in LOSE_ANSWERS
    if (span.scope_name, span.name) == ANTHROPICS_STREAM:
        # A reasoning block becomes an empty text there, and what follows it may be lost.
        lost_arguments.forget(call)
        is_cut = is_cut or EMPTY in span.attributes.get(OUTPUT, "")
    span_rows.completed(call, cut=is_cut)
    redacted = flattened_messages.REDACTED in map(span.attributes.get, (INPUT, OUTPUT))
    if call.content == "absent" and redacted:
        call.content = "redacted"
    return call


def _may_have_lost_parts(call: LlmCall) -> bool:
    """Return whether a call failed after its answer may have begun, and nothing of it is there."""
    if call.scope_name != DROP_PARTS or call.error_type is None or call.output_messages:
        return False
    return REFUSED.match(call.error_message or "") is None


def _is_no_call(span: Span, plan: Plan) -> bool:
    """Return whether an `LLM` span without the keys of a call records no model call.

    Two kinds of spans are no calls. One only prepared a request: its output holds the messages to
    send. The other is one token of a stream.
    """
    text = span.attributes.get(OUTPUT, "")
    if plan.is_bare and not span_rows.failed(span):
        return not plan.has_own and '"model"' not in text  # a provider's whole response
    output = json_text.parse(text) if text.startswith('{"messages":') else None
    return isinstance(output, dict) and "tools" in output


def fill(call: LlmCall, span: Span) -> bool:
    """Set the fields of a call whose keys are OpenInference's.

    Returns:
        Whether the texts of a request or a response were truncated that the messages lack.
    """
    attributes = span.attributes
    plan = shape_of(attributes).plan(Plan)
    provider = plan.provider(attributes)
    call.provider = provider and provider.lower()
    metadata = attributes.get(METADATA, "")
    about: Mapping[str, Any] = {}
    if LANGCHAINS in metadata or GRAPH in metadata:
        about = json_text.as_object(json_text.parse(metadata))
        call.provider = call.provider or _stated(about, "ls_provider")
        if GRAPH in about:
            call.agent_name = call.agent_name or graph_node(about)
    sent, answered = attributes.get(INPUT, ""), attributes.get(OUTPUT, "")
    request = _providers(json_text.parse(plan.request(attributes)))
    is_part = flattened_messages.is_joined(request) or plan.lost_beginning
    is_cut = not _fill_request(call, span, plan, request) and (is_part or _is_cut(sent, request))
    payload = _providers(json_text.parse(answered))
    body = _body(metadata) if '"body":' in metadata else None
    # A text that is a response was parsed, so it was not truncated.
    is_response = _fill_response(call, span, plan, body or _response_inside(payload)) and not body
    is_cut = is_cut or (not is_response and _is_cut(answered, payload))
    _settle_models(call, span, plan)
    if about:  # LangChain names Gemini's models, and OpenInference does not
        call.request_model = call.request_model or _stated(about, "ls_model_name")
    for name, key in plan.counts:
        # Only counts that the response did not state.
        if getattr(call, name) is None:
            setattr(call, name, reading.integer(attributes, key))
    if span_rows.is_gemini(call):
        span_rows.count_hidden(call, reading.integer(attributes, CALLED[0]))
    if haystack.REPR_MESSAGE in sent:
        haystack.fill_from_repr(call, json_text.parse(sent), payload, span.memory)
    return is_cut


def _stated(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    return value if value and isinstance(value, str) else None


def _providers(payload: Any) -> Any:
    """Return a request or response as it is; {} if a processor made it from a few attributes.

    Those for Strands and others name the messages as attributes do (`message.role`), and leave the
    tool calls and the id out of a response.
    """
    if not isinstance(payload, dict):
        return payload
    sent, choices = payload.get("messages"), payload.get("choices")
    first = sent[0] if isinstance(sent, list) and sent else None
    named = isinstance(first, dict) and "message.role" in first
    return {} if named or (isinstance(choices, list) and "id" not in payload) else payload


def _is_cut(text: str, parsed: Any) -> bool:
    """Return whether a text was truncated: it begins as JSON array or object but does not parse."""
    return parsed is None and text.startswith(("[", "{"))


def graph_node(metadata: Mapping[str, Any]) -> str | None:
    """Return the agent of a run in LangGraph: its name, else the node that stands for it."""
    stated = (metadata.get(key) for key in ("langgraph_checkpoint_ns", "langgraph_node"))
    node = graph_nodes.agent(*(one for one in stated if isinstance(one, str)))
    named = metadata.get("lc_agent_name")
    return named if named and isinstance(named, str) else node


def _fill_request(call: LlmCall, span: Span, plan: Plan, request: Any) -> bool:
    """Set what was sent; return whether the provider's own request says it."""
    attributes = span.attributes
    is_request = payloads.fill_from_request(call, request, span.memory)
    requested = attributes.get("llm.request.model_name") or call.request_model
    # A request without tools may have lost them, so the attributes are read as well.
    if is_request and call.tool_definitions:
        call.request_model = requested
        return True
    given = _invocation_parameters(plan.parameters(attributes))
    if not is_request:
        _fill_messages(call, span, plan, request)
        call.request_params = {**given.parameters}
    call.request_model = requested or given.model
    offered = flattened_messages.tools(attributes) or given.tools
    # The last one is [] (the request offers no tools) or None (unknown).
    call.tool_definitions = call.tool_definitions or offered or call.tool_definitions
    return is_request


def _fill_messages(call: LlmCall, span: Span, plan: Plan, request: Any) -> None:
    """Set the messages of a call that the provider's own request does not say."""
    listed = request if isinstance(request, dict) else {"messages": request}
    places = shape_of(span.attributes).plan(flattened_messages.sent)
    history = flattened_messages.conversation(places, span)
    if _lacks_ids(history):
        history = _with_ids(history, listed, span.memory)
    if not history and plan.has_embeddings:
        history = flattened_messages.embedded(span) or []
    call.input_messages = history or payloads.request_messages(listed, span.memory)
    if not call.input_messages and plan.has_prompts and (prompt := flattened_messages.prompt(span)):
        call.input_messages, call.operation = prompt, "text_completion"
    if not call.input_messages:
        call.input_messages = flattened_messages.plain(span, INPUT, "user") or None


class _InvocationParameters(NamedTuple):
    """The request's parameters, model and tools, as the invocation parameters state them."""

    parameters: dict[str, Any]
    model: str | None
    tools: list[Any] | None


@lru_cache(maxsize=64)
def _invocation_parameters(text: str | None) -> _InvocationParameters:
    """Read invocation parameters. Cached, as all calls of an agent repeat the same text."""
    given = json_text.as_object(json_text.parse(text))
    return _InvocationParameters(
        {key: value for key, value in given.items() if key not in payloads.NOT_PARAMETERS},
        # The parameters may be a copy of the response.
        None if "id" in given else given.get("model"),
        tool_values.flat_tools(given.get("tools") or []),
    )


def _lacks_ids(history: list[Message]) -> bool:
    """Return whether a history has tool calls without ids, or messages without any part."""
    for message in history:
        if not message["parts"]:
            return True
        for part in message["parts"]:
            if "id" in part and part["id"] is None:
                return True
    return False


def _with_ids(
    history: list[Message], request: payloads.Payload, memory: MessageMemory | None
) -> list[Message]:
    """Return the history with tool call ids, taken from the request's own copy of the messages.

    The flattened messages of LiteLLM and of early versions lack the ids of tool calls, and those of
    JavaScript lack blocks and texts. If the copy has fewer messages, the flattened history is
    returned.
    """
    # The OpenAI Agents SDK's copy is the list itself, without the instructions.
    sent = request.get("messages")
    if not isinstance(sent, list) or any(isinstance(one, str) for one in sent):
        return history
    own = payloads.request_messages(request, memory) or []
    if own and own[0]["role"] != "system":
        own = [*takewhile(lambda message: message["role"] == "system", history), *own]
    return own if len(own) >= len(history) else history


def _fill_response(call: LlmCall, span: Span, plan: Plan, payload: Any) -> bool:
    """Set what was answered; return whether a provider's own response says it."""
    attributes = span.attributes
    call.finish_reason = finish.reason(plan.reason(attributes))
    if not payloads.fill_from_response(call, without_made_up_id(payload)):
        call.response_id = attributes.get("llm.response.id")
        call.output_messages = _choices(call, span, plan, payload) or None
        _fill_metadata(call, payload)
        return False
    if isinstance(payload, list):
        # The OpenAI Agents SDK lists its responses. Its name is that of the requested model, which
        # its own record of a stream repeats as that of the response.
        call.request_model = call.request_model or attributes.get("llm.model_name")
        if call.response_model == call.request_model:
            call.response_model = None
    return True


def _choices(call: LlmCall, span: Span, plan: Plan, payload: Any) -> list[Message]:
    """Return the answers of a call that no provider's own response says."""
    places = shape_of(span.attributes).plan(flattened_messages.answered)
    outputs = flattened_messages.conversation(places, span)
    # The flattened answers of the OpenAI Agents SDK lack reasoning and refusals, its own have both.
    if not any(one["parts"] for one in outputs) or (
        isinstance(payload, list) and REASONED in span.attributes[OUTPUT]
    ):
        outputs = _answers(payload) or outputs
    if not outputs and (plan.has_choices or plan.has_prompts):
        outputs = _completions(span)
    choices = [
        messages.choice(one["parts"], call.finish_reason or one.get("finish_reason"))
        for one in outputs
    ]
    choices = langchain_results.choices(payload) or choices
    if not choices:
        choices = flattened_messages.plain(span, OUTPUT, "assistant")
    thought = payload.get("thought") if isinstance(payload, dict) else None
    if choices and isinstance(thought, str) and thought:
        # AutoGen calls the text beside tool calls a thought, as it does reasoning beside a text.
        kind = "text" if isinstance(payload.get("content"), list) else "reasoning"
        parts = [{"type": kind, "content": thought}, *choices[0]["parts"]]
        choices = [choices[0] | {"parts": parts}, *choices[1:]]
    return choices


def _response_inside(payload: Any) -> Any:
    """Return the provider's response that an answer keeps, or the answer itself.

    Mistral's client has it inside the last event of a stream. Smolagents' answers keep its client's
    object as `raw`, which becomes a `repr()` text.
    """
    if not isinstance(payload, dict):
        return payload
    inner = payload.get("data") if len(payload) == 1 else None
    if isinstance(raw := payload.get("raw"), str):
        inner = repr_objects.parse(raw)
    return inner if isinstance(inner, dict) else payload


def _body(metadata: str) -> Any:
    """Return the provider's response that Mastra keeps in the metadata of a step."""
    fields = json_text.parse(metadata)
    body = fields.get("body") if isinstance(fields, dict) else None
    return json_text.parse(body) if isinstance(body, str) else None


def _fill_metadata(call: LlmCall, payload: Any) -> None:
    """Set usage, finish reason, id and model from a framework's own form of the response."""
    if not isinstance(payload, dict):
        return
    langchain_results.fill(call, payload)
    call.response_model = call.response_model or payload.get("model")
    token_counts.fill_usage(call, token_counts.usage(payload.get("usage")))
    call.finish_reason = call.finish_reason or finish.reason(payload.get("finish_reason"))


def _answers(payload: Any) -> list[Message]:
    """Return the answers of a framework: one, or a list of them, as DSPy and Flowise write."""
    if not isinstance(payload, list):
        return _answer(payload)
    listed = [{"content": item} if isinstance(item, str) else item for item in payload]
    return [one for item in listed for one in _answer(item)]


def _answer(payload: Any) -> list[Message]:
    """Return the answer of AutoGen, Mastra or OpenAI (text, tool calls or both), or DSPy (text)."""
    answer = json_text.as_object(payload)
    if answer.get("tool_calls") or answer.get("refusal"):  # OpenAI's message, DSPy's with a text
        return one_message.read_message(
            {"role": "assistant", "content": answer.get("text"), **answer}
        )
    content = answer.get("content") or answer.get("toolCalls") or answer.get("text")
    if isinstance(content, list):
        content = [{"type": "tool-call", **call} for call in content if isinstance(call, dict)]
    thought = answer.get(REASONED)
    if not content and not thought:
        return []
    message = {"role": "assistant", "content": content, REASONED: thought}
    return one_message.read_message(message)


def _completions(span: Span) -> list[Message]:
    """Return the answers of a completion model: one a choice, or the whole output."""
    answers = flattened_messages.texts(span, CHOICES, "completion")
    if not answers and flattened_messages.prompt(span):
        answers = [flattened_messages.value(span.attributes.get(OUTPUT))]
    texts = [{"role": "assistant", "content": one} for one in answers if isinstance(one, str)]
    return messages.conversation(texts)


def _settle_models(call: LlmCall, span: Span, plan: Plan) -> None:
    """Set both models from `llm.model_name`, which may be the requested or the responding model.

    It is the responding model if the requested one is known from elsewhere.
    """
    attributes = span.attributes
    name = payloads.model_name(plan.model(attributes))
    answered = call.response_model or attributes.get("llm.response.model_name") or None
    if answered is None and call.output_messages and (span.scope_name, span.name) in RESPONDING:
        answered = name
    elif answered is None and call.request_model is None:
        # Haystack's replies name the responding model; they are written as `repr()` texts.
        answered = name if f"'{name}'" in attributes.get(OUTPUT, "") else None
    elif answered is None:
        # For Bedrock, JavaScript's package writes `claude-1` for `anthropic.claude-1-v1:0`.
        echoed = (name or "") in (call.request_model or "") and call.operation == "chat"
        answered = None if echoed else name
    call.response_model = answered
    call.request_model = call.request_model or (None if name == answered else name)
