"""Collect a model's answer from a whole response, or from the parts of a stream."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from opentelemetry.util.types import AttributeValue

from otel_lightning.instrumentation import attributes

_NONE: Final[Mapping[str, Any]] = {}
_Number = TypeVar("_Number", int, float)


@dataclass(slots=True, eq=False)
class ToolRequest:
    """A tool call that the model requested; while a stream is read, `arguments` grows."""

    call_id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class ChoiceTokens:
    """Token ids and logprobs of one choice."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """The part of an answer that was received so far. Each subclass reads one endpoint."""

    response_id: str = ""
    model: str = ""
    finish_reason: str = ""
    """Why the first choice ended, in OpenAI's words."""
    whole: Any = None
    """The last `Response` object that was received, on Responses."""
    prompt_token_ids: list[int] = field(default_factory=list)
    choices: dict[int, ChoiceTokens] = field(default_factory=dict)
    requests: dict[object, ToolRequest] = field(default_factory=dict)
    usage: tuple[int, int] | None = None
    text: list[str] = field(default_factory=list)

    def add(self, part: Any) -> None:
        """Add a whole response, or the next part of a stream.

        Args:
            part: A response object of the openai client, or a chunk or event of its stream.
        """
        raise NotImplementedError

    def choice(self, index: int) -> ChoiceTokens:
        """Return the tokens of one choice; create it empty on first use."""
        tokens = self.choices.get(index)
        if tokens is None:
            tokens = self.choices[index] = ChoiceTokens()
        return tokens

    def token_attributes(self) -> Iterator[tuple[str, tuple[int, ...] | tuple[float, ...]]]:
        """Yield the span attributes for the received token ids and logprobs."""
        if prompt := _numbers(self.prompt_token_ids, int):
            yield attributes.PROMPT_TOKEN_IDS, prompt
        for index, tokens in self.choices.items():
            # The first choice has the plain name, since nearly all answers have one choice.
            suffix = f".{index}" if index else ""
            if ids := _numbers(tokens.ids, int):
                yield attributes.COMPLETION_TOKEN_IDS + suffix, ids
            if logprobs := _numbers(tokens.logprobs, float):
                yield attributes.COMPLETION_LOGPROBS + suffix, logprobs

    def release(self) -> None:
        """Drop the received data, except the tool requests, whose results arrive later."""
        self.whole = None
        self.prompt_token_ids, self.choices, self.text = [], {}, []

    def usage_attributes(self) -> Iterator[tuple[str, AttributeValue]]:
        """Yield the span attributes for the token counts that the server sent."""
        if self.usage:
            yield "gen_ai.usage.input_tokens", self.usage[0]
            yield "gen_ai.usage.output_tokens", self.usage[1]


class ChatAnswer(Answer):
    """Reads a `ChatCompletion`, or the `ChatCompletionChunk`s of its stream."""

    def add(self, part: Any) -> None:
        """Add a whole response or a chunk; both have the same field names."""
        if not self.response_id:
            self.response_id, self.model = part.id or "", part.model or ""
        if ids := extra(part).get("prompt_token_ids"):
            self.prompt_token_ids = ids  # vLLM sends them once, with the first chunk
        if part.usage is not None:
            self.usage = (part.usage.prompt_tokens, part.usage.completion_tokens)
        for choice in part.choices or ():
            self._add_choice(choice)

    def _add_choice(self, choice: Any) -> None:
        if ids := extra(choice).get("token_ids"):
            self.choice(choice.index).ids.extend(ids)
        content = choice.logprobs.content if choice.logprobs is not None else None
        if content:
            self.choice(choice.index).logprobs.extend([token.logprob for token in content])
        # pydantic's attribute access is slow where a class lacks the attribute.
        held = choice.__dict__
        if choice.index == 0 and held.get("finish_reason"):
            self.finish_reason = held["finish_reason"]
        message = held.get("delta") or held.get("message")
        if message is None:
            return
        if message.tool_calls:
            for position, tool_call in enumerate(message.tool_calls):
                self._add_request((choice.index, getattr(tool_call, "index", position)), tool_call)
        if choice.index == 0 and message.content:
            self.text.append(message.content)

    def _add_request(self, key: object, tool_call: Any) -> None:
        # A custom tool has `custom` with `input` instead of `function` with `arguments`.
        function = getattr(tool_call, "function", None) or getattr(tool_call, "custom", None)
        text = getattr(function, "arguments", None) or getattr(function, "input", None) or ""
        request = self.requests.get(key)
        # The first chunk of a tool call has its id; later chunks have only more arguments.
        if request is None or (tool_call.id and tool_call.id != request.call_id):
            name = getattr(function, "name", None) or ""
            self.requests[key] = ToolRequest(tool_call.id or "", name, text)
        else:
            request.arguments += text


class CompletionsAnswer(Answer):
    """Reads a `Completion`, or the chunks of its stream, which have the same type."""

    def add(self, part: Any) -> None:
        """Add a whole response or a chunk."""
        if not self.response_id:
            self.response_id, self.model = part.id or "", part.model or ""
        if part.usage is not None:
            self.usage = (part.usage.prompt_tokens, part.usage.completion_tokens)
        for choice in part.choices or ():
            fields = extra(choice)
            # vLLM sends the prompt's ids with each choice here, but with the response for chat.
            prompt = fields.get("prompt_token_ids") or extra(part).get("prompt_token_ids")
            if prompt and not self.prompt_token_ids:
                self.prompt_token_ids = prompt
            if ids := fields.get("token_ids"):
                self.choice(choice.index).ids.extend(ids)
            logprobs = choice.logprobs.token_logprobs if choice.logprobs is not None else None
            if logprobs:
                # With `echo`, the server repeats the prompt; its first token has no logprob.
                finite = [value for value in logprobs if value is not None]
                self.choice(choice.index).logprobs.extend(finite)
            if choice.index == 0:
                self.finish_reason = choice.finish_reason or self.finish_reason
                self.text.append(choice.text or "")


class ResponsesAnswer(Answer):
    """Reads a `Response`, or the events of its stream."""

    def add(self, part: Any) -> None:
        """Add a whole response or an event."""
        kind = getattr(part, "type", None)
        # A whole `Response` has no `type`; each event of a stream has one.
        if kind is None:
            self._add_whole(part)
        elif kind == "response.output_text.delta":
            if logprobs := getattr(part, "logprobs", None):
                self.choice(0).logprobs.extend(token.logprob for token in logprobs)
            self.text.append(part.delta)
        elif kind == "response.output_item.done":
            self._add_item(part.item)
        elif response := getattr(part, "response", None):
            self._add_whole(response)

    def _add_whole(self, response: Any) -> None:
        # Events repeat the whole response, each time further filled: the last one counts, except
        # for the id.
        self.response_id = self.response_id or response.id or ""
        self.whole = response
        if response.usage is not None:
            self.usage = (response.usage.input_tokens, response.usage.output_tokens)
        fields = extra(response)
        self.prompt_token_ids = fields.get("prompt_token_ids") or self.prompt_token_ids
        items = response.output or ()
        logprobs = [
            token.logprob
            for item in items
            for content in getattr(item, "content", None) or ()
            for token in getattr(content, "logprobs", None) or ()
        ]
        ids = fields.get("token_ids") or [
            i for one in items for i in extra(one).get("token_ids", ())
        ]
        if logprobs:
            self.choice(0).logprobs = logprobs
        if ids:
            self.choice(0).ids = list(ids)
        for item in items:
            self._add_item(item)

    def _add_item(self, item: Any) -> None:
        call_id, name = getattr(item, "call_id", None), getattr(item, "name", None)
        # The item may come twice: in its own event, and in the whole response at the end.
        if call_id and item.id not in self.requests:
            kind = str(item.type).removesuffix("_call")  # built-in tools (`shell_call`) lack a name
            text = getattr(item, "arguments", None) or getattr(item, "input", None) or ""
            self.requests[item.id or call_id] = ToolRequest(call_id, name or kind, text)


def _numbers(values: Any, kind: type[_Number]) -> tuple[_Number, ...]:
    """Return a list of numbers from a server; an empty one for any other value."""
    try:
        return tuple(map(kind, values))
    except (TypeError, ValueError):
        return ()


def extra(part: Any) -> Mapping[str, Any]:
    """Return the fields of a response object that the openai client's types do not declare."""
    fields: Mapping[str, Any] = getattr(part, "__pydantic_extra__", None) or _NONE
    return fields


ANSWERS: Final[Mapping[str, type[Answer]]] = {
    "chat": ChatAnswer,
    "completions": CompletionsAnswer,
    "responses": ResponsesAnswer,
}
"""The class that reads each endpoint's answers."""
