"""Provider payloads as they are: OpenAI's, Anthropic's and Gemini's, LangChain's results.

Some instrumentations keep the provider's own request and response. They carry the most: token ids,
log probabilities, the arguments in the model's own words.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from otel_lightning.collector import messages, reading
from otel_lightning.collector.records import LlmCall, Message

Payload = Mapping[str, Any]

_GEMINI_INPUT = ("prompt_token_count", "promptTokenCount")
_GEMINI_OUTPUT = ("candidates_token_count", "candidatesTokenCount")
NOT_PARAMETERS = {"model", "messages", "input", "instructions", "system", "tools", "extra_headers"}


class Usage(NamedTuple):
    """Token counts of one call; the cached ones are among the input tokens."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None


def fill_from_request(call: LlmCall, request: Any) -> bool:
    """Set what a provider's request says; return False, and set nothing, if it is none."""
    if not isinstance(request, Mapping) or not request.get("model"):
        return False
    history = request_messages(request)
    if history is None:
        return False
    call.input_messages = history
    call.request_model = _name(request["model"])
    call.tool_definitions = reading.flat_tools(request.get("tools") or [])
    call.request_params = {
        key: value
        for key, value in request.items()
        if key not in NOT_PARAMETERS and value is not None
    }
    return True


def request_messages(request: Payload) -> list[Message] | None:
    """Return the history that a request sends, its system prompt first."""
    values = request.get("messages", request.get("input"))
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, list) or not values:
        return None
    instructions = request.get("instructions") or request.get("system")
    head = [{"role": "system", "content": instructions}] if instructions else []
    return messages.conversation([*head, *values])


def fill_from_response(call: LlmCall, response: Any) -> bool:
    """Set what a provider's response says; return False, and set nothing, if it is none."""
    if not isinstance(response, Mapping):
        return False
    outputs = response_messages(response)
    if outputs is None:
        return False
    call.output_messages = outputs
    call.response_id = _first(response, "id", "response_id", "responseId") or call.response_id
    answered = _first(response, "model", "model_version", "modelVersion")
    call.response_model = answered or call.response_model
    call.finish_reason = outputs[0].get("finish_reason") if outputs else None
    fill_usage(call, usage(_details(response, "usage", "usage_metadata", "usageMetadata")))
    _fill_tokens(call, response)
    return True


def response_messages(response: Payload) -> list[Message] | None:
    """Return the output messages of a response of any known provider, one a choice, or None."""
    if isinstance(response.get("choices"), list):
        return [_chat_choice(choice) for choice in response["choices"]]
    if isinstance(response.get("output"), list):
        status = response.get("incomplete_details") or {}
        ended = status.get("reason") or response.get("status")
        return _turn(response["output"], ended)
    if isinstance(response.get("candidates"), list):
        return [_candidate(candidate) for candidate in response["candidates"]]
    if response.get("type") == "message" and "content" in response:
        return _turn([{**response, "role": "assistant"}], response.get("stop_reason"))
    return None


def _chat_choice(choice: Payload) -> Message:
    turns = messages.read_message({"role": "assistant", **(choice.get("message") or {})})
    parts = [part for turn in turns for part in turn["parts"]]
    return messages.choice(parts, choice.get("finish_reason"))


def _candidate(candidate: Payload) -> Message:
    """Return one of Gemini's answers, whose tool calls and text are parts of its content."""
    reason = candidate.get("finish_reason", candidate.get("finishReason"))
    (turn,) = messages.one_turn([{**(candidate.get("content") or {}), "role": "model"}])
    return messages.choice(turn["parts"], reason)


def _turn(items: list[Any], ended: object) -> list[Message]:
    return [messages.choice(turn["parts"], ended) for turn in messages.one_turn(items)]


def usage(counts: Any) -> Usage:
    """Return the token counts of any provider's usage object.

    Anthropic counts cached tokens apart from the others; the conventions count them in.
    """
    if not isinstance(counts, Mapping):
        return Usage()
    given = _count(counts, "prompt_tokens", "input_tokens", *_GEMINI_INPUT)
    apart = [_count(counts, f"cache_{what}_input_tokens") for what in ("read", "creation")]
    inputs = _details(counts, "prompt_tokens_details", "input_tokens_details")
    outputs = _details(counts, "completion_tokens_details", "output_tokens_details")
    if given is not None:
        given += sum(count for count in apart if count is not None)
    return Usage(
        given,
        _count(counts, "completion_tokens", "output_tokens", *_GEMINI_OUTPUT),
        _count(inputs, "cached_tokens") if inputs else apart[0],
        _count(outputs, "reasoning_tokens"),
    )


def fill_usage(call: LlmCall, counts: Usage) -> None:
    """Set the token counts that are not known yet."""
    if call.input_tokens is None:
        call.input_tokens = counts.input_tokens
    if call.output_tokens is None:
        call.output_tokens = counts.output_tokens
    if call.cached_input_tokens is None:
        call.cached_input_tokens = counts.cached_input_tokens
    if call.reasoning_tokens is None:
        call.reasoning_tokens = counts.reasoning_tokens


def _count(counts: Payload, *keys: str) -> int | None:
    return next((counts[key] for key in keys if reading.is_count(counts.get(key))), None)


def _details(counts: Payload, *keys: str) -> Payload:
    return next((counts[key] for key in keys if isinstance(counts.get(key), Mapping)), {})


def _fill_tokens(call: LlmCall, response: Payload) -> None:
    """Set the token ids and log probabilities of the first choice, where a server returned them."""
    first: Payload = next(iter(response.get("choices") or []), {})
    prompt = response.get("prompt_token_ids") or first.get("prompt_token_ids")
    call.prompt_token_ids = call.prompt_token_ids or reading.token_ids(prompt)
    sampled = reading.token_ids(first.get("token_ids"))
    call.completion_token_ids = call.completion_token_ids or sampled
    tokens = (first.get("logprobs") or {}).get("content") or []
    call.completion_logprobs = call.completion_logprobs or logprobs(tokens)


def logprobs(tokens: list[Any]) -> list[float] | None:
    """Return the log probability of each token of OpenAI's list, or None where one lacks it."""
    return reading.logprobs([token.get("logprob") for token in tokens])


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _first(response: Payload, *keys: str) -> str | None:
    return next((name for key in keys if (name := _name(response.get(key)))), None)


def langchain_usage(result: Any) -> Usage:
    """Return the token counts that LangChain keeps beside a message."""
    try:
        counts = result["generations"][0][0]["message"]["kwargs"]["usage_metadata"]
        inputs, outputs = counts["input_token_details"], counts["output_token_details"]
    except (KeyError, IndexError, TypeError):
        return Usage()
    return Usage(
        _count(counts, "input_tokens"),
        _count(counts, "output_tokens"),
        _count(inputs, "cache_read"),
        _count(outputs, "reasoning"),
    )


def langchain_metadata(result: Any) -> Payload:
    """Return the response metadata inside a result that LangChain serialised, if it is there."""
    try:
        metadata = result["generations"][0][0]["message"]["kwargs"]["response_metadata"]
    except (KeyError, IndexError, TypeError):
        return {}
    return metadata if isinstance(metadata, Mapping) else {}
