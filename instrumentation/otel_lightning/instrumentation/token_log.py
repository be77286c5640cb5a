"""What a model server says about tokens, gathered from a response or over a stream's chunks."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import wrapt
from opentelemetry.trace import Span

from otel_lightning.instrumentation import attributes
from otel_lightning.instrumentation.guard import never_raise


@dataclass(slots=True)
class TokenLog:
    """Token ids and logprobs of one completion's first choice, as far as it has come."""

    prompt_token_ids: list[int] = field(default_factory=list)
    completion_token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, part: Any) -> None:
        """Take in a whole response, or the next chunk of a stream: they name things alike.

        Args:
            part: A `ChatCompletion` or `ChatCompletionChunk`, with vLLM's additional fields or not.
        """
        # vLLM sends the prompt's ids once, with the first chunk.
        self.prompt_token_ids.extend(getattr(part, "prompt_token_ids", None) or ())
        for choice in part.choices or ():
            if choice.index == 0:
                self._add_choice(choice)

    def _add_choice(self, choice: Any) -> None:
        self.completion_token_ids.extend(getattr(choice, "token_ids", None) or ())
        content = getattr(getattr(choice, "logprobs", None), "content", None)
        self.logprobs.extend(token.logprob for token in content or ())

    def write(self, span: Span) -> None:
        """Set the attributes that are known.

        Args:
            span: The LLM span of the call.
        """
        found: dict[str, list[int] | list[float]] = {
            attributes.PROMPT_TOKEN_IDS: self.prompt_token_ids,
            attributes.COMPLETION_TOKEN_IDS: self.completion_token_ids,
            attributes.COMPLETION_LOGPROBS: self.logprobs,
        }
        for name, values in found.items():
            if values and span.is_recording():
                span.set_attribute(name, values)


def record(span: Span | None, response: Any) -> Any:
    """Record what a response says about tokens, now or as its stream is read.

    Args:
        span: The LLM span of the call, if there is one.
        response: What the openai client returned.

    Returns:
        The same response.
    """
    if span is not None:
        _record(span, response)
    return response


@never_raise
def _record(span: Span, response: Any) -> None:
    body = _body(response)
    tokens = TokenLog()
    if hasattr(body, "_iterator"):
        # Inside of the stream, not around it: the agent keeps the very object that openai made.
        body._iterator = _Chunks(body._iterator, tokens)  # noqa: SLF001
        _write_at_end(span, tokens)
    elif hasattr(body, "choices"):
        tokens.add(body)
        tokens.write(span)


def _write_at_end(span: Span, tokens: TokenLog) -> None:
    """Write the tokens when `span` is about to end.

    An agent may stop reading a stream at any chunk, and whoever made the span then ends it before
    we hear of that. A span processor hears of it too late: the SDK calls it on an ended span.
    """
    end = span.end

    def write_and_end(end_time: int | None = None) -> None:
        vars(span).pop("end", None)  # or the span would hold itself in memory
        never_raise(tokens.write)(span)
        end(end_time)

    span.end = write_and_end  # type: ignore[method-assign]


def _body(response: Any) -> Any:
    # `with_raw_response` gives one of these; its `parse` keeps the result for the agent. That of
    # `with_streaming_response`, of another class, would read the body that the agent wants to read.
    raw = type(response).__name__ == "LegacyAPIResponse"
    return response.parse() if raw else response


class _Chunks(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """The chunks of a stream, sync or async, unchanged and noted in passing."""

    def __init__(self, chunks: Any, tokens: TokenLog) -> None:
        super().__init__(chunks)
        self._self_note = never_raise(tokens.add)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        chunk = self.__wrapped__.__next__()
        self._self_note(chunk)
        return chunk

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        chunk = await self.__wrapped__.__anext__()
        self._self_note(chunk)
        return chunk
