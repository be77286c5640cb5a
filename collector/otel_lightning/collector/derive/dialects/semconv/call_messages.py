"""Messages of OpenTelemetry's GenAI conventions, from attributes, events and log records."""

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from otel_lightning.collector.derive.attributes import reading
from otel_lightning.collector.derive.attributes.shapes import Shape
from otel_lightning.collector.derive.dialects.semconv import bodies, counts
from otel_lightning.collector.derive.dialects.semconv.events import CHOICE, EVENTS, listed, records
from otel_lightning.collector.derive.messages import messages, one_message, payloads, resumed
from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.messages.openai_agents_responses import without_made_up_id
from otel_lightning.collector.derive.rows import Attributes, LlmCall, Message, Span
from otel_lightning.collector.derive.text import json_text

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
SENTRY = "@sentry/"
"""Prefix of Sentry's scopes. It leaves the instructions of a Responses request out."""
SENTRY_INPUT, SENTRY_TOOLS = "gen_ai.request.messages", "gen_ai.request.available_tools"
SENTRY_TEXTS, SENTRY_TOOL_CALLS = "gen_ai.response.text", "gen_ai.response.tool_calls"
"""Sentry's keys: the messages sent, the tools offered, the answer's texts and its tool calls."""
PROMPT_JSON, COMPLETION_JSON = "gen_ai.prompt_json", "gen_ai.completion_json"
OTHER_INPUTS = ("input", "input.value", "gen_ai.prompt", PROMPT_JSON)
OTHER_OUTPUTS = ("output", "output.value", "gen_ai.completion", COMPLETION_JSON, "gen_ai.output")
"""Keys of content beside the conventions' model and usage: Pipecat's, OpenInference's, those of
Spring AI and LangChain4j in Quarkus, those of Cloudflare's AI Gateway, and any-agent's."""
JOINED = re.compile(r"(system|user|assistant|tool): ")
"""Start of an input that OpenLIT 1.34 joined to one text, without tool calls and most results."""
JOINS = {"openlit.otel.tracing"}
"""The scopes of packages that join the messages of an input so."""
TOOL_NAME, TOOL_ARGUMENTS = "tool.name", "tool.args"
"""any-agent's keys of the name and the arguments of a tool call."""
REASONS = "gen_ai.response.finish_reasons"
PROVIDER, OUTPUT_TOKENS = "gen_ai.provider.name", "gen_ai.usage.output_tokens"
SENTRY_STREAMED = "gen_ai.response.streaming"
STREAMED = ("gen_ai.is_streaming", "gen_ai.request.stream", SENTRY_STREAMED)
IN_PROGRESS = "in_progress"
"""The status of a response whose stream has not ended."""
OLD_ROLE = "gen_ai.prompt.0.role"
OF_RUN = "pydantic_ai.all_messages"
"""Pydantic AI's key of the messages of an agent's run."""
REASONED = "gen_ai.content.reasoning"
"""OpenLIT's key of an answer's reasoning, which its messages lack."""
MORE_OF_MESSAGES = (SYSTEM, EVENTS, OLD_ROLE, REASONED, *STREAMED)
"""Keys that say more of the messages than `INPUT` and `OUTPUT` do."""
OF_RESPONSES = {"microsoft-otel-openai-agents"}
"""The scopes of packages that write a request of the Responses API without its instructions, and
the model that answered as the one that was asked for. Calls of other APIs have the provider's own
response as their answer."""
RESPONSE = ('[{"', '{"')
"""Start of a text that may be a provider's response, or a list with one."""
COMPLETION = '"object":"chat.completion"'
"""Part of the text of such a response."""
_MESSAGE = {"role", "parts", "tool_calls"}
"""A message has at least one of these keys."""
ITEMS = "["
"""Start of a text that may hold the items of a Responses request; see `_sent_items`."""
ITEM_TYPES = ("_call", "_output", "reasoning")
"""Suffixes of the types of a Responses request's items without a role."""


class Plan:
    """Where the spans of a shape have the messages: decided once, by its keys."""

    __slots__ = ("is_plain", "is_streamed", "listed", "other_input", "other_output", "sent")

    def __init__(self, shape: Shape) -> None:
        """Look at the keys of a shape."""
        known = shape.known
        self.sent = tuple(key for key in (INPUT, SENTRY_INPUT) if key in known)
        others = (key for key in OTHER_INPUTS if key in known and not self.sent)
        self.other_input = next(others, None)
        others = (key for key in OTHER_OUTPUTS if key in known and OUTPUT not in known)
        self.other_output = next(others, None)
        self.listed = EVENTS in known
        self.is_streamed = not known.isdisjoint(STREAMED)
        self.is_plain = (
            self.sent == (INPUT,) and OUTPUT in known and known.isdisjoint(MORE_OF_MESSAGES)
        )


def fill(call: LlmCall, span: Span, attributes: Attributes, plan: Plan, reasons: int) -> bool:
    """Set the messages of a call.

    Args:
        call: The call; changed in place.
        span: Its span.
        attributes: The span's attributes, merged with those of its details event.
        plan: Where attributes with these keys have the messages.
        reasons: Number of finish reasons that the span states.

    Returns:
        Whether a text was truncated.
    """
    is_plain = plan.is_plain and span.scope_name not in OF_RESPONSES
    if is_plain and _fill_texts(call, attributes):
        return False
    content = _content_of_texts(call, span, attributes, plan)
    _add_content_of_records(content, span, attributes, plan)
    system = _system(attributes)
    call.input_messages = _input(content, system, span.memory) or None
    if not content.is_response:
        is_each = span.scope_name in counts.OF_EACH_CHOICE
        call.output_messages = _choices(content.outputs or [], reasons, is_each=is_each)
    if call.output_messages and (thought := attributes.get(REASONED)):
        choice, *others = call.output_messages
        parts = [{"type": "reasoning", "content": thought}, *choice["parts"]]
        call.output_messages = [{**choice, "parts": parts}, *others]
    call.output_messages = call.output_messages or None
    lacks_system = _settle_response(call, span.scope_name)
    is_cut = content.is_input_cut or content.is_output_cut or json_text.is_cut(system)
    if plan.is_streamed and _is_abandoned(attributes, content.outputs or []):
        call.is_broken_off = True
    # Sentry joins the choices of a stream to one text.
    is_joined = plan.is_streamed and 0 < len(call.output_messages or ()) < reasons
    return lacks_system or is_cut or is_joined


@dataclass(slots=True)
class _Content:
    """What a span records of a call's messages, before they have one form."""

    sent: str | None
    """The text of the input."""
    history: list[Any] | None
    """The messages of the input; None if they are not read yet."""
    outputs: list[Any] | None
    """The messages of the answer; None if they are not read yet."""
    turns: list[Message] | None
    """The input in its final form, if it continues a conversation that was read before."""
    is_response: bool
    """Whether the answer is the provider's own response, from which the call is filled already."""
    is_input_cut: bool
    is_output_cut: bool
    is_from_text: bool = True
    """Whether `history` was read from `sent`."""


def _content_of_texts(call: LlmCall, span: Span, attributes: Attributes, plan: Plan) -> _Content:
    """Read the attributes that hold all messages of the input, and of the answer, as one text."""
    memory = span.memory
    sent, answered = reading.text(attributes, *plan.sent), attributes.get(OUTPUT)
    turns = resumed.continued(sent, memory) if memory and not plan.listed else None
    history, outputs = turns or listed(sent), listed(answered)
    is_joined = False
    is_own = call.dialect == "semconv"  # other dialects read the other keys themselves
    if plan.other_input and is_own:
        sent = attributes[plan.other_input]
        is_joined = span.scope_name in JOINS and bool(JOINED.match(sent))
        history = None if is_joined else _other_input(sent)
    if plan.other_output and is_own:
        answered = attributes[plan.other_output]
        outputs = _other_answer(answered)
    if (body := bodies.request(sent)) is not None:
        history = payloads.request_messages(body, memory)
        bodies.fill_from_request(call, body)
    is_response = bodies.fill_from_response(call, answered)
    return _Content(
        sent,
        history,
        outputs,
        turns,
        is_response,
        is_input_cut=is_joined or (history is None and bodies.is_unknown(sent)),
        is_output_cut=not is_response and outputs is None and bodies.is_unknown(answered),
    )


def _add_content_of_records(
    content: _Content, span: Span, attributes: Attributes, plan: Plan
) -> None:
    """Add messages of events and log records, and answers under Sentry's keys."""
    recorded = list(records(span)) if span.events or span.logs or plan.listed else []
    if content.history is None and not content.is_input_cut:
        content.history = [message for name, message in recorded if name != CHOICE]
        content.is_from_text = False
    if content.outputs is None and not content.is_output_cut:
        choices = [message for name, message in recorded if name == CHOICE]
        content.outputs = _sentry_choices(attributes) or choices
    if not content.outputs and plan.listed:
        content.history, content.outputs = _without_answer(content.history or [])
        content.is_from_text = False


def _system(attributes: Attributes) -> str | None:
    """Return the system's instructions that stand apart from the messages."""
    system = attributes.get(SYSTEM)
    # Laminar writes the system prompt in the older, flattened layout only.
    if attributes.get(OLD_ROLE) == "system":
        system = system or attributes.get("gen_ai.prompt.0.content")
    return system


def _input(content: _Content, system: str | None, memory: MessageMemory | None) -> list[Message]:
    """Return the input in its final form."""
    turns = content.turns
    if turns is None:
        # Only with the text that a history was read from it is remembered.
        turns = _turns(
            content.sent if content.is_from_text else None, content.history or [], memory
        )
        turns = turns if content.is_from_text else _answered_once(turns)
    if system is not None:
        turns = messages.with_system(messages.system_parts(system), turns, memory)
    return turns


def of_run(span: Span) -> list[Message] | None:
    """Return the messages that an agent's run sent, if its span states them (`OF_RUN`)."""
    turns = messages.conversation(listed(span.attributes.get(OF_RUN)) or [], span.memory)
    parts = messages.system_parts(span.attributes.get(SYSTEM))
    return messages.with_system(parts, turns, span.memory) if turns else None


def _fill_texts(call: LlmCall, attributes: Attributes) -> bool:
    """Set the messages of a call that sent one plain text and got one; return whether it did."""
    sent = one_message.one_text(json_text.parse(attributes[INPUT]))
    if sent is None or sent["parts"][0]["content"].startswith(ITEMS):
        return False
    answered = one_message.one_text(json_text.parse(attributes[OUTPUT]))
    if answered is None or answered["parts"][0]["content"].startswith(ITEMS):
        return False
    answered["role"] = "assistant"
    call.input_messages, call.output_messages = [sent], [answered]
    return True


def _turns(text: str | None, history: list[Any], memory: MessageMemory | None) -> list[Message]:
    """Return the messages of a history; remember those of a text, for texts that continue it."""
    turns = messages.conversation(_sent_items(history), memory)
    if text and memory and len(history) > 1:
        resumed.keep(text, [*turns], memory)
    return turns


def _answered_once(turns: list[Message]) -> list[Message]:
    """Drop a tool's response that its neighbour repeats.

    For Bedrock, botocore's instrumentation writes a tool's result as an event of its own, and again
    inside the event of the user's message.
    """
    kept: list[Message] = []
    answered: list[Message] = []
    for turn in turns:
        answered = [*answered, turn] if turn["role"] == "tool" else []
        if not (turn in answered[:-1] and turn["parts"][0].get("id")):
            kept.append(turn)
    return kept


def _other_input(text: str) -> list[Any] | None:
    """Return the messages of a request: a list of messages, one that holds them, or plain text."""
    value = json_text.parse(text)
    if isinstance(value, dict) and _MESSAGE.isdisjoint(value):
        return payloads.request_messages(value)
    # Several texts without roles, such as Spring AI's, may be of the system, user, model and tools.
    if isinstance(value, list) and len(value) > 1 and not all(map(_is_message, value)):
        return None
    return listed(text)


def _other_answer(text: str) -> list[Any] | None:
    """Return the messages of an answer without the conventions' form: messages, or its text.

    Objects of any other form hold more than the answer, so they are not read.
    """
    value = json_text.parse(text)
    items = value if isinstance(value, list) else [value]
    if all(isinstance(one, str) or _is_message(one) for one in items):
        return items or None
    if all(isinstance(one, dict) and TOOL_NAME in one for one in items):
        calls = [{"name": one[TOOL_NAME], "arguments": one.get(TOOL_ARGUMENTS)} for one in items]
        return [{"role": "assistant", "tool_calls": calls}]
    return [text] if text and not isinstance(value, dict | list) else None


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and not _MESSAGE.isdisjoint(value)


def _sentry_choices(attributes: Attributes) -> list[Any]:
    """Return the choices of an answer that has its texts under one key and tool calls in another.

    Sentry writes this form. The tool calls belong to the first choice. Among those of a streamed
    response are all its items, also its reasoning and its text.
    """
    text, items = attributes.get(SENTRY_TEXTS), reading.array(attributes, SENTRY_TOOL_CALLS) or []
    texts = reading.array(attributes, SENTRY_TEXTS) or [text]
    choices = [{"role": "assistant", "content": one or None} for one in texts]
    items = [item for item in items if isinstance(item, dict) and item.get("type") != "message"]
    thoughts = [item for item in items if item.get("type") == "reasoning"]
    calls = [item for item in items if item.get("type") != "reasoning"]
    answer = [{**choices[0], "tool_calls": calls}, *choices[1:]] if text or calls else []
    return [*thoughts, *answer]


def _without_answer(history: list[Any]) -> tuple[list[Any], list[Any]]:
    """Split off the final assistant messages, in which Logfire writes the answer."""
    is_answer = [isinstance(one, dict) and one.get("role") == "assistant" for one in history]
    end = len(history) - len(list(takewhile(bool, reversed(is_answer))))
    return history[:end], history[end:]


def _is_abandoned(attributes: Attributes, outputs: list[Any]) -> bool:
    """Return whether a stream was abandoned before its end: it has no finish reason.

    Then that is empty, null (and the span states none either) or `error`, as OpenTelemetry's own
    package for OpenAI writes it. Its package for LangChain writes `error` also of each response
    that was streamed to its end; OpenAI's token counts come with that end. Sentry states the reason
    of each stream that ended, and that of a response's first event, `in_progress`.
    """
    if "true" not in [attributes.get(key) for key in STREAMED]:
        return False
    if outputs and OUTPUT not in attributes and attributes.get(SENTRY_STREAMED) == "true":
        return {*(reading.array(attributes, REASONS) or ())} <= {IN_PROGRESS}
    stated = [one.get("finish_reason", 0) for one in outputs if isinstance(one, dict)]
    is_unstated = None in stated and REASONS not in attributes
    return is_unstated or "" in stated or ("error" in stated and not is_counted(attributes))


def is_counted(attributes: Attributes) -> bool:
    """Return whether a stream of OpenAI's models came to its end, where its token counts are."""
    return "openai" in attributes.get(PROVIDER, "") and OUTPUT_TOKENS in attributes


def _sent_items(history: list[Any]) -> list[Any]:
    """Return the items of a Responses request; Traceloop for JavaScript writes them as one text."""
    if len(history) != 1:
        return history
    try:
        (part,) = history[0]["parts"]
        items = json_text.parse(part["content"]) if part["content"].startswith(ITEMS) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return history
    known = isinstance(items, list) and all(
        isinstance(item, dict) and ("role" in item or str(item.get("type")).endswith(ITEM_TYPES))
        for item in items
    )
    return items if known and items else history


def _settle_response(call: LlmCall, scope_name: str | None) -> bool:
    """Read the provider's response that is the only text of an answer.

    Microsoft's distribution for JavaScript writes so what models behind chat completions answer to
    the OpenAI Agents SDK.

    Returns:
        Whether the input lacks the system's instructions.
    """
    text = _only_text(call.output_messages)
    whole = text.startswith(RESPONSE) and COMPLETION in text
    if whole and payloads.fill_from_response(call, without_made_up_id(json_text.parse(text))):
        if call.response_model == call.request_model:
            call.response_model = None  # the SDK built the response of a stream
    elif scope_name in OF_RESPONSES and call.output_messages:
        call.response_model, call.request_model = call.request_model, None
    is_sentrys = call.lost_ids and (scope_name or "").startswith(SENTRY)
    sent = call.input_messages
    return (scope_name in OF_RESPONSES or is_sentrys) and not (sent and sent[0]["role"] == "system")


def _only_text(answer: list[Message] | None) -> str:
    parts = answer[0]["parts"] if answer and len(answer) == 1 else []
    text = parts[0].get("content") if len(parts) == 1 and parts[0]["type"] == "text" else None
    return text if isinstance(text, str) else ""


def with_whole_output(logs: list[Attributes]) -> list[Attributes]:
    """Add the output of all details records, if several have one.

    EDOT for Node.js writes a record for each item of a streamed response.
    """
    texts = dict.fromkeys(log[OUTPUT] for log in logs if OUTPUT in log)
    found = [json_text.parse(one) for one in texts] if len(texts) > 1 else []
    if not found or not all(isinstance(one, list) for one in found):
        return logs
    return [*logs, {OUTPUT: json_text.dumps([one for some in found for one in some]).decode()}]


def _choices(outputs: list[Any], reasons: int, *, is_each: bool) -> list[Message]:
    """Return one message per choice; messages that share one finish reason are one turn.

    Args:
        outputs: The messages of the answer.
        reasons: Number of finish reasons.
        is_each: Whether the package writes each choice as one message, and equal reasons once.
    """
    # The Responses API answers with one item per tool call: several messages, one finish reason.
    if reasons < len(outputs) and not is_each and not _numbered(outputs):
        return messages.one_turn(_without_pieces(outputs))
    return [turn for output in outputs for turn in messages.one_turn([output])]


def _without_pieces(outputs: list[Any]) -> list[Any]:
    """Drop the pieces of a streamed answer if the last message has all of them together.

    Google ADK writes them so. Pieces have an empty finish reason, the whole answer has one.
    """
    reasons = [one.get("finish_reason") if isinstance(one, dict) else None for one in outputs]
    if any(reasons[:-1]) or not reasons[-1]:
        return outputs
    pieces, whole = (messages.one_turn(some) for some in (outputs[:-1], outputs[-1:]))
    return outputs[-1:] if _text_and_call_ids(pieces) == _text_and_call_ids(whole) else outputs


def _text_and_call_ids(turns: list[Message]) -> tuple[str, list[Any]]:
    """Return all text of an answer, and the different ids of its tool calls."""
    parts = [part for turn in turns for part in turn["parts"]]
    text = "".join(part["content"] for part in parts if part["type"] == "text")
    return text, [*dict.fromkeys(part["id"] for part in parts if part["type"] == "tool_call")]


def _numbered(outputs: list[Any]) -> bool:
    return all(isinstance(output, dict) and "index" in output for output in outputs)
