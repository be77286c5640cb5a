"""Read provider payloads: OpenAI's, Anthropic's, Gemini's, Bedrock's and Cohere's.

Some instrumentations keep the provider's own request and response. These have the most content:
token ids, log probabilities, and the arguments of tool calls exactly as the model wrote them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from otel_lightning.collector.derive import reading
from otel_lightning.collector.derive.rows import LlmCall, Message
from otel_lightning.collector.derive.text import json_text, messages, tool_values
from otel_lightning.collector.derive.text.message_memory import MessageMemory

Payload = Mapping[str, Any]

_INPUT = ("prompt_tokens", "input_tokens", "prompt_token_count", "promptTokenCount", "inputTokens")
_GEMINI_OUTPUT = ("candidates_token_count", "candidatesTokenCount")
_OUTPUT = ("completion_tokens", "output_tokens", "outputTokens", *_GEMINI_OUTPUT)
_THOUGHTS = ("thoughts_token_count", "thoughtsTokenCount", "thoughtsTokens")
_REASONED = ("reasoning_tokens", "reasoningTokens", "reasoning", *_THOUGHTS)
_READ = ("cache_read_input_tokens", "cacheReadInputTokens")
_WRITTEN = ("cache_creation_input_tokens", "cacheCreationInputTokens", "cacheWriteInputTokens")
_CREATED = (*_WRITTEN, "cache_creation", "cache_creation_tokens", "cache_write_tokens")
_GEMINI_CACHED = ("cached_content_token_count", "cachedContentTokenCount", "cachedContentTokens")
_PLAIN_CACHED = ("cached_tokens", "cache_read", "cache_read_tokens", "cachedPromptTokens")
_CACHED = (*_PLAIN_CACHED, *_READ, *_GEMINI_CACHED)
_PLAIN_COUNTS = {*_INPUT, *_OUTPUT, "total_tokens", "totalTokens", "total_token_count"}
"""Keys of a usage object without cached tokens or reasoning."""
HISTORIES = ("messages", "input", "contents", "prompt")
"""The keys of a request under which providers expect the messages."""
CONFIGS = ("config", "toolConfig", "kwargs")
"""The keys of Gemini's and Bedrock's requests, and of Portkey's calls, that hold the tools and,
apart from Bedrock's, parameters."""
SYSTEMS = ("instructions", "system", "system_instruction", "systemInstruction")
GEMINI_REASONS = {1: "stop", 2: "length", 3: "content_filter"}
"""Gemini's finish reasons by the numbers that Vertex AI's client writes."""
OMITTED = ("<openai.Omit object at 0x", "<openai.NotGiven object at 0x", "NOT_GIVEN")
NOT_PARAMETERS = {"model", "modelId", *HISTORIES, *SYSTEMS, "tools", *CONFIGS, "extra_headers"}


class Usage(NamedTuple):
    """Token counts of one call. Input tokens include cached ones, output tokens include reasoning.

    None means unknown.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


def fill_from_request(call: LlmCall, request: Any, memory: MessageMemory | None = None) -> bool:
    """Set the fields of a call from a provider's request.

    Args:
        call: The call; changed in place.
        request: The parsed request, or any other value.
        memory: Messages read before.

    Returns:
        False, and the call is unchanged, if `request` is not a request with model and messages.
    """
    model = _first(request, "model", "modelId") if isinstance(request, dict) else None
    history = request_messages(request, memory) if model else None
    if history is None:
        return False
    call.input_messages = history
    call.request_model = model_name(model)
    # The request is complete, so a request without tools offers none: [] and not None (unknown).
    call.tool_definitions = request_tools(request) or []
    config = details(request, *CONFIGS)
    call.request_params = {
        key: value
        for key, value in (*config.items(), *request.items())
        if key not in NOT_PARAMETERS and _is_given(value)
    }
    return True


def model_name(name: str | None) -> str | None:
    """Return the name of a model without the path of Google's resource names.

    Example:
        >>> model_name("projects/p/locations/l/publishers/google/models/gemini-2.5-flash")
        'gemini-2.5-flash'
    """
    is_path = name is not None and name.startswith(("projects/", "publishers/"))
    return name.rpartition("/models/")[2] if name and is_path else name


def _is_given(value: Any) -> bool:
    """Tell whether a parameter was given; Portkey writes the `repr()` of those that were not."""
    return value is not None and not (isinstance(value, str) and value.startswith(OMITTED))


def request_messages(request: Payload, memory: MessageMemory | None = None) -> list[Message] | None:
    """Return the messages of a request, the system prompt first; None if it has no messages."""
    values = next(filter(None, map(request.get, HISTORIES)), None)
    if isinstance(values, str) or (isinstance(values, dict) and "parts" in values):
        values = [values]
    if not isinstance(values, list):
        return None
    if len(values) == 1 and isinstance(values[0], list):  # a batch with one list of messages
        values = values[0]
    places = (request, details(request, *CONFIGS))
    given = (place.get(key) for place in places for key in SYSTEMS)
    instructions = next(filter(None, given), None)
    said = instructions if isinstance(instructions, dict) else {"content": instructions}
    head = [{**said, "role": "system"}] if instructions else []
    return messages.conversation([*head, *values], memory)


def request_tools(request: Payload) -> list[Any] | None:
    """Return the tools that a request offers, or None if it has no tools."""
    offered = request.get("tools") or details(request, *CONFIGS).get("tools")
    return tool_values.flat_tools(offered or [])


def answer(value: Any) -> list[Message] | None:
    """Return the turn that a function returned: a message, the items of a message, or text."""
    items = value if isinstance(value, list) else [value] if value else []
    return messages.one_turn(map(_answer_message, items)) or None


def _answer_message(item: Any) -> Payload:
    if not isinstance(item, dict):
        return {"role": "assistant", "content": item}
    inner = details(item, "message") or item
    reason = item.get("finishReason")
    reason = reason.get("unified") if isinstance(reason, dict) else reason
    return {"role": "assistant", "finish_reason": reason, **inner}


def fill_from_response(call: LlmCall, response: Any) -> bool:
    """Set the fields of a call from a provider's response, or from a list with one response.

    Returns:
        False, and the call is unchanged, if `response` has no known provider's form.
    """
    if isinstance(response, list) and len(response) == 1:
        response = response[0]
    if not isinstance(response, dict):
        return False
    outputs = response_messages(response)
    if outputs is None:
        return False
    call.output_messages = outputs
    call.response_id = _first(response, "id", "response_id", "responseId") or call.response_id
    answered = _first(response, "model", "model_version", "modelVersion")
    call.response_model = answered or call.response_model
    # Of several choices the agent reads the first.
    call.finish_reason = outputs[0].get("finish_reason") if outputs else None
    fill_usage(call, usage(details(response, "usage", "usage_metadata", "usageMetadata")))
    _fill_tokens(call, response)
    return True


def response_messages(response: Payload) -> list[Message] | None:
    """Return the output messages of a response, one per choice; None for an unknown form."""
    # OpenAI's chat completions, and the servers that copy them.
    if isinstance(response.get("choices"), list):
        return [_chat_choice(choice) for choice in response["choices"] if isinstance(choice, dict)]
    # OpenAI's Responses API.
    if isinstance(response.get("output"), list):
        status = details(response, "incomplete_details")
        ended = status.get("reason") or response.get("status")
        return _turn(response["output"], ended)
    alone = "parts" in details(response, "content")  # Google ADK keeps only the first candidate
    if isinstance(candidates := [response] if alone else response.get("candidates"), list):
        return [_candidate(one) for one in candidates if isinstance(one, dict)]
    # Anthropic's. An item of the Responses API has content too, but no stop reason.
    if "content" in response and "stop_reason" in response:
        return _turn([{**response, "role": "assistant"}], response["stop_reason"])
    said = details(details(response, "output"), "message")  # Bedrock's
    if "id" in response and "finish_reason" in response:
        said = details(response, "message")  # Cohere's
    reason = response.get("stopReason", response.get("finish_reason"))
    return _turn([said], reason) if said else None


def _chat_choice(choice: Payload) -> Message:
    turns = messages.read_message({"role": "assistant", **details(choice, "message")})
    parts = [part for turn in turns for part in turn["parts"]]
    return messages.choice(parts, choice.get("finish_reason"))


def _candidate(candidate: Payload) -> Message:
    """Return one of Gemini's answers, whose tool calls and text are parts of its content."""
    reason = candidate.get("finish_reason", candidate.get("finishReason"))
    reason = GEMINI_REASONS.get(reason, reason) if isinstance(reason, int) else reason
    (turn,) = messages.one_turn([{**details(candidate, "content"), "role": "model"}])
    return messages.choice(turn["parts"], reason)


def _turn(items: list[Any], ended: object) -> list[Message]:
    bare = all(isinstance(item, str) for item in items)  # DSPy writes one text per choice
    choices = [[item] for item in items] if bare else [items]
    turns = (turn for choice in choices for turn in messages.one_turn(choice))
    return [messages.choice(turn["parts"], ended) for turn in turns]


def usage(counts: Any) -> Usage:
    """Return the token counts of any provider's usage object.

    Anthropic and Bedrock exclude cached tokens from the input tokens, and Gemini excludes thoughts
    from the output tokens. The conventions include both, so they are added here.
    """
    if not isinstance(counts, dict):
        return Usage()
    counts = details(counts, "tokens") or counts  # Cohere's, beside the units that it bills
    given, answered = _count(counts, *_INPUT), _count(counts, *_OUTPUT)
    if counts.keys() <= _PLAIN_COUNTS:
        return Usage(given, answered)
    inputs, outputs = (
        details(counts, f"{old}_tokens_details", f"{new}_tokens_details", f"{new}_token_details")
        for old, new in (("prompt", "input"), ("completion", "output"))
    )
    if given is not None:
        given += sum(_count(counts, *apart) or 0 for apart in (_READ, _WRITTEN))
    if answered is not None:
        answered += _count(counts, *_THOUGHTS) or 0
    reasoned = _count(outputs or counts, *_REASONED)
    # Providers without such details have the counts in the usage object itself.
    cached = _count(inputs or counts, *_CACHED)
    return Usage(given, answered, cached, reasoned, _count(inputs or counts, *_CREATED))


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
    if call.cache_creation_input_tokens is None:
        call.cache_creation_input_tokens = counts.cache_creation_input_tokens


def _count(counts: Payload, *keys: str) -> int | None:
    for key in keys:
        if (count := reading.count(counts.get(key))) is not None:
            return count
    return None


def details(counts: Payload, *keys: str) -> Payload:
    """Return the object under the first of these keys that holds one; {} if there is none."""
    for key in keys:
        if isinstance(inner := counts.get(key), dict):
            return inner
    return {}


def _fill_tokens(call: LlmCall, response: Payload) -> None:
    """Set the token ids and log probabilities of the first choice, if the server returned them."""
    choices = response.get("choices")
    first = json_text.as_object(choices[0]) if choices and isinstance(choices, list) else {}
    # vLLM writes these ids beside the choices of a chat, and into each choice of a completion.
    prompt = response.get("prompt_token_ids") or first.get("prompt_token_ids")
    call.prompt_token_ids = call.prompt_token_ids or reading.token_ids(prompt)
    sampled = reading.token_ids(first.get("token_ids"))
    call.completion_token_ids = call.completion_token_ids or sampled
    tokens = details(first, "logprobs").get("content")
    call.completion_logprobs = call.completion_logprobs or logprobs(tokens)


def logprobs(tokens: Any) -> list[float] | None:
    """Return the log probability of each token in OpenAI's list; None if any token has none."""
    if not isinstance(tokens, list) or not all(isinstance(token, dict) for token in tokens):
        return None
    return reading.logprobs([token.get("logprob") for token in tokens])


def _first(response: Payload, *keys: str) -> str | None:
    for key in keys:
        if isinstance(name := response.get(key), str) and name:
            return name
    return None
