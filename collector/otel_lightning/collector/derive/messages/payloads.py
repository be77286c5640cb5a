"""Read provider payloads: OpenAI's, Anthropic's, Gemini's, Bedrock's and Cohere's.

Some instrumentations keep the provider's own request and response. These have the most content:
token ids, log probabilities, and the arguments of tool calls exactly as the model wrote them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.attributes.shapes import Plans
from otel_lightning.collector.derive.messages import (
    messages,
    one_message,
    token_counts,
    tool_values,
)
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.stream_chunks import CHUNK
from otel_lightning.collector.derive.rows import LlmCall, Message
from otel_lightning.collector.derive.text import json_text

Payload = Mapping[str, Any]
_OLLAMA_INPUT, _OLLAMA_OUTPUT = "prompt_eval_count", "eval_count"
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
MODELS = ("model", "modelId")
NO_MODEL = {"none", "unknown"}
"""The texts that Spring AI and LangChain4j write where they know no model."""
ANSWERED_BY = ("model", "model_version", "modelVersion")
"""The keys of a response that name the model."""
IDS = ("id", "response_id", "responseId")
"""The keys of a response's id."""
ON_BEDROCK = "anthropic_version"
"""The key that only requests to Anthropic's models on Bedrock and Vertex AI have."""
CALLED_TOOLS = "automatic_function_calling_history"
"""The key of the history in which Google's client called tools by itself."""
FEEDBACKS = ("prompt_feedback", "promptFeedback")
USAGES = ("usage", "usage_metadata", "usageMetadata")
MOST_TOOLS = 64
"""Maximum number of cached lists of tools. When it is reached, the cache is cleared."""


class _Request(NamedTuple):
    """How to read the requests that have the same keys."""

    models: list[str]
    histories: list[str]
    parameters: list[str]
    has_tools: bool
    has_more: bool
    """Whether it may have instructions or a configuration, apart from the messages."""


def _request(keys: tuple[str, ...]) -> _Request:
    return _Request(
        models=[key for key in MODELS if key in keys],
        histories=[key for key in HISTORIES if key in keys],
        parameters=[key for key in keys if key not in NOT_PARAMETERS],
        has_tools="tools" in keys,
        has_more=not {*SYSTEMS, *CONFIGS}.isdisjoint(keys),
    )


_REQUESTS = Plans(_request)


def fill_from_request(call: LlmCall, request: Any, memory: MessageMemory | None = None) -> bool:
    """Set the fields of a call from a provider's request.

    Args:
        call: The call; changed in place.
        request: The parsed request, or any other value.
        memory: Messages read before.

    Returns:
        False, and the call is unchanged, if `request` is not a request with model and messages.
        The model of a request to Anthropic's models on Bedrock is in its address.
    """
    if not isinstance(request, dict):
        return False
    plan = _REQUESTS[tuple(request)]
    model = _first_text(request, plan.models)
    is_request = model or ON_BEDROCK in request
    history = request_messages(request, memory) if is_request else None
    if history is None:
        return False
    call.input_messages = history
    call.request_model = model_name(model) if model else call.request_model
    # The request is complete, so a request without tools offers none: [] and not None (unknown).
    call.tool_definitions = request_tools(request) or []
    given = {key: value for key in plan.parameters if _is_given(value := request[key])}
    config = json_text.object_under(request, *CONFIGS) if plan.has_more else {}
    call.request_params = {**_parameters(config), **given} if config else given
    return True


def _parameters(config: Payload) -> dict[str, Any]:
    """Return the parameters in a configuration."""
    return {
        key: value
        for key, value in config.items()
        if key not in NOT_PARAMETERS and _is_given(value)
    }


def model_name(name: str | None) -> str | None:
    """Return the name of a model without the path of Google's resource names; None for no model.

    Example:
        >>> model_name("projects/p/locations/l/publishers/google/models/gemini-2.5-flash")
        'gemini-2.5-flash'
    """
    if name in NO_MODEL:
        return None
    if name and name.startswith(("projects/", "publishers/")):
        return name.rpartition("/models/")[2]
    return name


def _is_given(value: Any) -> bool:
    """Return whether a parameter was given.

    Portkey writes the `repr()` of those that were not, OpenInference for Mistral an empty text.
    """
    return value not in (None, "") and not (isinstance(value, str) and value.startswith(OMITTED))


def request_messages(request: Payload, memory: MessageMemory | None = None) -> list[Message] | None:
    """Return the messages of a request, the system prompt first; None if it has no messages."""
    plan = _REQUESTS[tuple(request)]
    values = _first_set(request, plan.histories)
    if isinstance(values, str) or (isinstance(values, dict) and "parts" in values):
        values = [values]
    if not isinstance(values, list):
        return None
    if len(values) == 1 and isinstance(values[0], list):  # a batch with one list of messages
        values = values[0]
    if plan.has_more and (instructions := _instructions(request)):
        system = instructions if isinstance(instructions, dict) else {"content": instructions}
        values = [{**system, "role": "system"}, *values]
    return messages.conversation(values, memory)


def _instructions(request: Payload) -> Any:
    """Return the system prompt that stands apart from the messages of a request."""
    return _first_set(request, SYSTEMS) or _first_set(
        json_text.object_under(request, *CONFIGS), SYSTEMS
    )


def _first_set(payload: Payload, keys: Iterable[str]) -> Any:
    """Return the first of these values that is present and not empty."""
    for key in keys:
        if value := payload.get(key):
            return value
    return None


def request_tools(request: Payload) -> list[Any] | None:
    """Return the tools that a request offers, or None if it has no tools."""
    plan = _REQUESTS[tuple(request)]
    offered = request["tools"] if plan.has_tools else None
    if not offered and plan.has_more:
        offered = json_text.object_under(request, *CONFIGS).get("tools")
    return _flat_tools(offered) if offered else None


_known_tools: dict[bytes, list[Any] | None] = {}


def _flat_tools(offered: Any) -> list[Any] | None:
    """Return tools in the conventions' form; the calls of an agent, which repeat them, share them.

    Tools that equal each other may be written differently (`1` and `true`), so their text is
    compared.
    """
    try:
        text = orjson.dumps(offered)
    except TypeError:  # values that are no JSON, or numbers of more than 64 bits
        return tool_values.flat_tools(offered)
    if text not in _known_tools:
        if len(_known_tools) >= MOST_TOOLS:
            _known_tools.clear()
        _known_tools[text] = tool_values.flat_tools(offered)
    return _known_tools[text]


def answer(value: Any) -> list[Message] | None:
    """Return the turn that a function returned: a message, the items of a message, or text."""
    items = value if isinstance(value, list) else [value] if value else []
    return messages.one_turn(map(_answer_message, items)) or None


def _answer_message(item: Any) -> Payload:
    if not isinstance(item, dict):
        return {"role": "assistant", "content": item}
    inner = json_text.object_under(item, "message") or item
    if _is_bare(inner):
        inner = {"content": inner["text"], **inner}
    reason = item.get("finishReason")
    reason = reason.get("unified") if isinstance(reason, dict) else reason
    return {"role": "assistant", "finish_reason": reason, **inner}


def _is_bare(item: Any) -> bool:
    """Return whether an answer is DSPy's: one text per choice, or an object with its reasoning."""
    return isinstance(item, dict) and isinstance(item.get("text"), str) and "type" not in item


class _Response(NamedTuple):
    """How to read the responses that have the same keys."""

    ids: list[str]
    models: list[str]
    usages: list[str]
    has_choices: bool


def _response(keys: tuple[str, ...]) -> _Response:
    return _Response(
        ids=[key for key in IDS if key in keys],
        models=[key for key in ANSWERED_BY if key in keys],
        usages=[key for key in USAGES if key in keys],
        has_choices="choices" in keys,
    )


_RESPONSES = Plans(_response)


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
    plan = _RESPONSES[tuple(response)]
    call.output_messages = outputs
    call.response_id = _first_text(response, plan.ids) or call.response_id
    call.response_model = _first_text(response, plan.models) or call.response_model
    # If there are several choices, the agent reads the first.
    call.finish_reason = outputs[0].get("finish_reason") if outputs else _refusal(response)
    if call.finish_reason is None and _is_broken_off(response):
        call.is_broken_off = True
    for key in plan.usages:
        if isinstance(counts := response[key], dict):
            token_counts.fill_usage(call, token_counts.usage(counts))
            break
    if _OLLAMA_INPUT in response:  # it has no usage object
        token_counts.fill_usage(call, token_counts.usage(response))
    if plan.has_choices or "prompt_token_ids" in response:
        _fill_tokens(call, response)
    if called := response.get(CALLED_TOOLS):
        _fill_calls(call, called)
    return True


def _fill_calls(call: LlmCall, called: Any) -> None:
    """Set the input to the history in which Google's client itself had called tools.

    The client returns the last of several responses, whose input is the history, not the request.
    """
    history = request_messages({"contents": called}) or []
    first = (call.input_messages or [])[:1]
    system = [message for message in first if message["role"] == "system"]
    if any(message["role"] == "tool" for message in history):
        call.input_messages = [*system, *history]


def _refusal(response: Payload) -> str | None:
    """Return the finish reason of a response without outputs: Gemini may refuse the prompt."""
    feedback = json_text.object_under(response, *FEEDBACKS)
    blocked = feedback.get("block_reason") or feedback.get("blockReason")
    return "content_filter" if blocked else None


def _is_broken_off(response: Payload) -> bool:
    """Return whether a response was put together from a stream that did not end."""
    if response.get("type") == "message" and "stop_reason" in response:  # Anthropic's
        return response["stop_reason"] is None
    choices = response.get("choices") if response.get("object") == CHUNK else ()
    ends = [json_text.as_object(one).get("finish_reason") for one in choices or ()]
    return bool(ends) and not any(ends)


def response_messages(response: Payload) -> list[Message] | None:
    """Return the output messages of a response, one per choice; None for an unknown form."""
    # OpenAI's chat completions, and the servers that copy them.
    if isinstance(choices := response.get("choices"), list):
        return [_chat_choice(choice) for choice in choices if isinstance(choice, dict)]
    # OpenAI's Responses API.
    if isinstance(response.get("output"), list):
        status = json_text.object_under(response, "incomplete_details")
        ended = status.get("reason") or response.get("status")
        return _turn(response["output"], ended)
    alone = "parts" in json_text.object_under(
        response, "content"
    )  # Google ADK keeps only the first candidate
    if isinstance(candidates := [response] if alone else response.get("candidates"), list):
        return [_candidate(one) for one in candidates if isinstance(one, dict)]
    if json_text.object_under(response, *FEEDBACKS):  # Gemini refused the prompt
        return []
    # Anthropic's. An item of the Responses API has content too, but no stop reason.
    if "content" in response and "stop_reason" in response:
        return _turn([{**response, "role": "assistant"}], response["stop_reason"])
    message = json_text.object_under(
        json_text.object_under(response, "output"), "message"
    )  # Bedrock's
    if "done" in response:
        message = json_text.object_under(response, "message")  # Ollama's
    if "id" in response and "finish_reason" in response:
        message = json_text.object_under(response, "message")  # Cohere's
    # A plain completion of Ollama or Workers AI; LlamaIndex's engines have sources.
    if isinstance(text := response.get("response"), str) and "sources" not in response:
        message = {"role": "assistant", "content": text, "tool_calls": response.get("tool_calls")}
    reason = _first_set(response, ("stopReason", "finish_reason", "done_reason"))
    return _turn([message], reason) if message else None


def _chat_choice(choice: Payload) -> Message:
    message, reason = json_text.object_under(choice, "message"), choice.get("finish_reason")
    if not message and isinstance(text := choice.get("text"), str):  # of a completion model
        message = {"role": "assistant", "content": text}
    if "role" in message and (plain := one_message.plain_text(message)) is not None:
        return messages.choice(plain["parts"], reason)
    turns = one_message.read_message({"role": "assistant", **message})
    return messages.choice([part for turn in turns for part in turn["parts"]], reason)


def _candidate(candidate: Payload) -> Message:
    """Return one of Gemini's answers, whose tool calls and text are parts of its content."""
    reason = candidate.get("finish_reason", candidate.get("finishReason"))
    reason = GEMINI_REASONS.get(reason, reason) if isinstance(reason, int) else reason
    (turn,) = messages.one_turn([{**json_text.object_under(candidate, "content"), "role": "model"}])
    return messages.choice(turn["parts"], reason)


def _turn(items: list[Any], ended: object) -> list[Message]:
    bare = all(isinstance(item, str) or _is_bare(item) for item in items)
    choices = [[_answer_message(item)] for item in items] if bare else [items]
    turns = (turn for choice in choices for turn in messages.one_turn(choice))
    return [messages.choice(turn["parts"], ended) for turn in turns]


def _fill_tokens(call: LlmCall, response: Payload) -> None:
    """Set the token ids and log probabilities of the first choice, if the server returned them."""
    choices = response.get("choices")
    first = json_text.as_object(choices[0]) if choices and isinstance(choices, list) else {}
    if _TOKENS.isdisjoint(first) and "prompt_token_ids" not in response:
        return
    # vLLM writes these ids beside the choices of a chat, and into each choice of a completion.
    prompt = response.get("prompt_token_ids") or first.get("prompt_token_ids")
    call.prompt_token_ids = call.prompt_token_ids or reading.token_ids(prompt)
    sampled = reading.token_ids(first.get("token_ids"))
    call.completion_token_ids = call.completion_token_ids or sampled
    tokens = json_text.object_under(first, "logprobs").get("content")
    call.completion_logprobs = call.completion_logprobs or logprobs(tokens)


def logprobs(tokens: Any) -> list[float] | None:
    """Return the log probability of each token in OpenAI's list; None if any token has none."""
    if not isinstance(tokens, list) or not all(isinstance(token, dict) for token in tokens):
        return None
    return reading.logprobs([token.get("logprob") for token in tokens])


_TOKENS = {"prompt_token_ids", "token_ids", "logprobs"}
"""Keys of a choice under which a server returns tokens."""


def _first_text(payload: Payload, keys: Iterable[str]) -> str | None:
    """Return the first of these values that is a text and not empty. All keys are present."""
    for key in keys:
        if isinstance(text := payload[key], str) and text:
            return text
    return None
