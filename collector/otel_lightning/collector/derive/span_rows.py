"""Rows of spans: the fields that all dialects share, and those that follow from other fields."""

import re
from collections.abc import Callable
from typing import Any

from otel_lightning.collector.derive.attributes import graph_nodes, reading, spellings
from otel_lightning.collector.derive.attributes.compiled_fields import Field, Fields, first
from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of
from otel_lightning.collector.derive.content_state import content_state
from otel_lightning.collector.derive.messages import finish
from otel_lightning.collector.derive.messages.documents import documents, number
from otel_lightning.collector.derive.messages.tool_parts import forget_completed_arguments
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
from otel_lightning.collector.derive.text.json_text import is_cut
from otel_lightning.instrumentation import attributes as names

TOKEN_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "reasoning_tokens",
    "cache_creation_input_tokens",
)

REASONS = {"gen_ai.response.finish_reasons", "ai.response.finishReason"}
"""Keys of the reason why a model ended its answer, in spans of Vercel's AI SDK."""
STOPPED = ("stop", "completed")
"""The reasons that some providers and instrumentations give for an answer with tool calls, too."""
TOKENS_OF_NOTHING = 3
"""The most tokens of an answer that says nothing: its end. A tool call takes more."""


def failed(span: Span) -> bool:
    """Return whether the span ended in an error. An exception event alone does not count as one.

    Rust's `tracing` leaves the status of a span unset that has an `error.type`. Beside the status
    OK an `error.type` is of an error that was overcome.
    """
    if span.status_code.endswith("OK"):
        return False
    if span.attributes.get("error.type"):
        return True
    return span.status_code.endswith("ERROR") and not _is_error_of_another(span)


def _is_error_of_another(span: Span) -> bool:
    """Return whether a span has the error of another one.

    OpenInference's processor for Vercel's AI SDK gives that of a tool to other spans of the trace.
    """
    if "openinference.span.kind" not in span.attributes or not REASONS & span.attributes.keys():
        return False
    return "exception" not in [event.name for event in span.events]


def error(span: Span) -> tuple[str | None, str | None]:
    """Return the type and message of the error that ended a span; (None, None) without an error."""
    if not failed(span):
        return None, None
    last: Attributes = next(
        (event.attributes for event in reversed(span.events) if event.name == "exception"), {}
    )
    kind = (
        reading.text(span.attributes, "error.type")
        or reading.text(last, "exception.type")
        or "_OTHER"
    )
    # Keep the class name alone: some packages add the module, which differs between versions.
    name = kind.rpartition(".")[2]
    kind = name if name[:1].isupper() else kind
    return kind, span.status_message or reading.text(last, "exception.message")


LOGFIRE = "logfire."
"""Prefix of Logfire's scopes."""
INTERRUPTS = {"GraphInterrupt", "NodeInterrupt", "ToolInterruptError"}
"""The exceptions by which LangGraph and Genkit leave a tool that waits for a person."""
INTERRUPTED = re.compile(rf"^({'|'.join(sorted(INTERRUPTS))}):", re.MULTILINE)
"""One of them in the text of an error, where LangChain for JavaScript names it."""
MESSAGES = ("error.message", "exception.message", "langfuse.observation.status_message")
"""The attributes that may have such a text."""


def is_logfires(record: Span | LlmCall) -> bool:
    """Return whether Logfire wrote a span or a call's record."""
    return (record.scope_name or "").startswith(LOGFIRE)


def is_interrupted(span: Span) -> bool:
    """Return whether a span ended because its tool waits for a person, who may resume it.

    LangGraph then runs the tool again, from its beginning, and Genkit is given its result, so this
    run was none.
    """
    attributes = span.attributes
    raised = [event.attributes for event in span.events if event.name == "exception"]
    kinds = [one["exception.type"] for one in raised if "exception.type" in one]
    if "error.type" in attributes:
        kinds.append(attributes["error.type"])
    if not INTERRUPTS.isdisjoint([kind.rpartition(".")[2] for kind in kinds]):
        return True
    texts = [attributes[key] for key in MESSAGES if key in attributes]
    if span.status_message and failed(span):
        texts.append(span.status_message)
    return any(map(INTERRUPTED.search, texts))


def _cost(*texts: str) -> float | None:
    return number(next(filter(None, texts), None))


COMMON = Fields(
    agent_name=Field(spellings.AGENT),
    conversation_id=Field(spellings.CONVERSATION),
    # The loader writes this attribute where it cut a value that was too long.
    content=Field((names.TRUNCATED,), lambda _: "truncated"),
    cost=Field(spellings.COST, _cost),
    prompt_token_ids=Field(
        (names.PROMPT_TOKEN_IDS,), lambda text: reading.token_ids(reading.parsed_array(text))
    ),
    completion_token_ids=Field(
        (names.COMPLETION_TOKEN_IDS,), lambda text: reading.token_ids(reading.parsed_array(text))
    ),
    completion_logprobs=Field(
        (names.COMPLETION_LOGPROBS,), lambda text: reading.logprobs(reading.parsed_array(text))
    ),
)
"""Fields of a model call whose keys are the same in all dialects."""
NODES = Fields(agent_name=Field(spellings.NODE, graph_nodes.agent))
"""The name of the agent of a call that states only the node of LangGraph that makes it."""


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
    call.scope_name = span.scope_name
    COMMON.fill(call, span.attributes)
    if call.agent_name is None:
        NODES.fill(call, span.attributes)
    if failed(span):
        call.error_type, call.error_message = error(span)
    return call


def _conversation(shape: Shape) -> Callable[[Attributes], str | None]:
    return first(shape, spellings.CONVERSATION)


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
        conversation_id=shape_of(span.attributes).plan(_conversation)(span.attributes),
        error=error(span),
    )


def retrieval(span: Span, kind: str, query: Any, retrieved: Any) -> Retrieval:
    """Return the search or reranking of documents that a span records.

    Args:
        span: The span of a retriever or reranker.
        kind: `retriever` or `reranker`.
        query: The search query: text, or an object that holds the text.
        retrieved: The documents, in any framework's form.
    """
    if isinstance(query, dict):
        texts = (query.get(key) for key in ("query", "input", "question", "text"))
        query = next((one for one in texts if isinstance(one, str)), None) or dict(query)
    text = query if query is None or isinstance(query, str) else json_text.dumps(query).decode()
    return Retrieval(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        kind=kind,
        name=span.name,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        query=text,
        documents=documents(retrieved),
        error_type=error(span)[0],
    )


def tool_call(span: Span, name: str | None, **fields: Any) -> ToolCall:
    """Return the execution of a tool that a span records.

    Args:
        span: The span of the execution.
        name: The tool's name, if known.
        fields: Further fields of `ToolCall` that the dialect knows.
    """
    return ToolCall(
        name=name,
        trace_id=span.trace_id,
        span_id=span.span_id,
        error_type=error(span)[0],
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        **fields,
    )


def no_row(_: Span) -> None:
    """Read a span that only groups other spans."""


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
    _settle_finish_reason(call, outputs)
    cut = _forget_broken_end(call, outputs) or cut or _lacks_choices(call, outputs)
    cut = cut or call.content == "truncated" or (bool(sources) and any(map(is_cut, sources)))
    call.content = content_state(call, cut=cut)
    return call


def _lacks_choices(call: LlmCall, outputs: list[Message]) -> bool:
    """Return whether a call has fewer choices than it asked for.

    Most packages join the choices of a stream to one text, which the model did not say.
    """
    asked = call.request_params.get("n") or call.request_params.get("choice.count")
    return type(asked) is int and 0 < len(outputs) < asked


def _settle_finish_reason(call: LlmCall, outputs: list[Message]) -> None:
    """Set the finish reason by the answer's messages, its tool calls and the error of a call."""
    reason = call.finish_reason
    if reason is None:
        for message in outputs:
            if "finish_reason" in message:
                reason = message["finish_reason"]
                break
    if reason == "stop" and asks_for_tools(call):
        reason = "tool_calls"
    if reason == "error" and not call.error_type:
        # Some packages write `error` where the provider gave no reason. A call with an answer did
        # not fail, nor did one whose stream the client left.
        answered = call.is_broken_off or any(message["parts"] for message in outputs)
        reason, call.error_type = (None, None) if answered else ("error", "_OTHER")
    # An answer without a reason was broken off by the error. With one, a layer failed after it.
    if call.error_type and not (outputs and reason):
        reason = "error"
    call.finish_reason = reason


def _forget_broken_end(call: LlmCall, outputs: list[Message]) -> bool:
    """Forget what is not reliable of an answer whose end is missing.

    Args:
        call: The call, with its settled finish reason; changed in place.
        outputs: Its answers.

    Returns:
        Whether an answer is known to lack something that the model said.
    """
    reason, is_left = call.finish_reason, call.is_broken_off
    if is_left:
        call.output_tokens = None  # that of Anthropic's first event is 1
    if is_left or reason == "error":
        broken_off = outputs
    else:
        broken_off = [one for one in outputs if one.get("finish_reason", reason) == "length"]
    lacks_arguments = bool(broken_off) and forget_completed_arguments(broken_off)
    if reason == "error":  # it failed inside its answer, if it has one
        return is_left or any(message["parts"] for message in outputs)
    ends_inside = reason is None and _ends_inside_a_tool_call(outputs)
    return is_left or lacks_arguments or ends_inside


def settle_broken_stream(call: LlmCall, raw: object) -> None:
    """Set the error of a call whose stream broke off, if its finish reason alone tells that.

    Call it before `completed`, for senders that write `error` for no other reason.

    Args:
        call: The call; changed in place.
        raw: The finish reason that the span states.
    """
    if finish.reason(raw) == "error":
        call.error_type, call.finish_reason = call.error_type or "_OTHER", "error"


def _ends_inside_a_tool_call(outputs: list[Message]) -> bool:
    """Return whether an answer ends with a tool call whose arguments are no JSON."""
    last = [message["parts"][-1] for message in outputs if message["parts"]]
    return any(
        part["type"] == "tool_call" and part.get("arguments_raw") and part["arguments"] is None
        for part in last
    )


def without_doubtful_reason(call: LlmCall, raw: object) -> LlmCall:
    """Doubt an empty answer that "stopped": the instrumentation may have dropped its tool calls.

    Its reason is then unknown, and it is not learned from. Nor is a stream that broke off, which
    the AI SDK 7 ends with the reason `other` and without counts, though its message says `stop`.

    Args:
        call: A completed call; changed in place.
        raw: The reason that the span states, in any spelling, if it states one. Anthropic's
            `end_turn` never stands for tool calls.
    """
    if call.finish_reason == "stop" and raw == "other":
        call.finish_reason = None
        is_cut = call.output_tokens is None and call.content == "full"
        call.content = "truncated" if is_cut else call.content
    if call.finish_reason not in {"stop", None} or call.content != "full":
        return call
    is_doubtful = call.finish_reason is None or raw is None or str(raw).lower() in STOPPED
    if not is_doubtful or any(message["parts"] for message in call.output_messages or ()):
        return call
    if call.finish_reason is None or not _counts_nothing(call):
        call.finish_reason, call.content = None, "truncated"
    return call


def _counts_nothing(call: LlmCall) -> bool:
    """Return whether the provider counted too few output tokens for a tool call.

    Counts that a package estimates from the text do not tell cached and reasoning tokens apart.
    """
    details = (call.cached_input_tokens, call.reasoning_tokens, call.cache_creation_input_tokens)
    if call.output_tokens is None or all(count is None for count in details):
        return False
    return call.output_tokens - (call.reasoning_tokens or 0) <= TOKENS_OF_NOTHING


def is_gemini(call: LlmCall) -> bool:
    """Return whether a call is to Gemini.

    Gemini reports `stop` also for a turn that requests tools, and its tool calls have no ids.
    """
    named = (call.provider or "").startswith(("gemini", "google", "vertex_ai", "gcp."))
    return named or call.operation == "generate_content"


def count_hidden(call: LlmCall, total: int | None) -> None:
    """Add the tokens that only the total counts: Bedrock's cached input, or reasoning.

    Gemini and xAI do not count reasoning as output.
    """
    if not (total and call.input_tokens and call.output_tokens):
        return
    hidden = total - call.input_tokens - call.output_tokens
    cached = (call.cached_input_tokens or 0) + (call.cache_creation_input_tokens or 0)
    if hidden > 0 and hidden == cached:
        call.input_tokens += hidden
    elif hidden > 0 and (hidden == call.reasoning_tokens or is_gemini(call)):
        call.output_tokens += hidden


def asks_for_tools(call: LlmCall) -> bool:
    """Return whether the call's output holds a tool call."""
    for output in call.output_messages or ():
        for part in output["parts"]:
            if part["type"] == "tool_call":
                return True
    return False
