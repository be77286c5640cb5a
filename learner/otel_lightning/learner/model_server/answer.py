"""Build responses in the form of OpenAI's chat completions, whole and streamed, without I/O.

Fields that OpenAI does not have carry vLLM's names: `prompt_token_ids` and `choices[].token_ids`.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from otel_lightning.learner.model_server.chat import ToolCall, decode, parse_reply
from otel_lightning.learner.model_server.request import ChatRequest
from otel_lightning.learner.model_server.sampling import Completion

if TYPE_CHECKING:  # only its type: importing it takes seconds
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Choice:
    """One sampled completion, as a message."""

    index: int
    message: dict[str, Any]
    finish_reason: str
    token_ids: tuple[int, ...]
    logprobs: tuple[dict[str, Any], ...]
    pieces: tuple[str, ...]
    """The text that each token adds."""


def make_choice(index: int, completion: Completion, tokenizer: "PreTrainedTokenizerBase") -> Choice:
    """Read a completion as a message: text, or calls of tools."""
    token_ids = completion.token_ids
    tokens = [str(tokenizer.decode([token])) for token in token_ids]
    # Each prefix as a whole: tokens cannot be decoded one by one, since a character may take
    # several.
    texts = [decode(tokenizer, token_ids[:end]) for end in range(1, len(token_ids) + 1)]
    reply = parse_reply(texts[-1])
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.calls:
        message["tool_calls"] = [_call(call) for call in reply.calls]
    is_call = bool(reply.calls) and completion.finish_reason == "stop"
    return Choice(
        index=index,
        message=message,
        # As OpenAI does; a call that was cut off by the limit stays "length".
        finish_reason="tool_calls" if is_call else completion.finish_reason,
        token_ids=token_ids,
        logprobs=tuple(map(_token_logprob, tokens, completion.logprobs)),
        pieces=tuple(_pieces(texts)),
    )


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}


def _token_logprob(token: str, logprob: float) -> dict[str, Any]:
    return {
        "token": token,
        "logprob": logprob,
        "bytes": list(token.encode()),
        "top_logprobs": [],
    }


def _pieces(texts: Sequence[str]) -> Iterator[str]:
    """Yield the text that each longer text adds to the one before."""
    sent = ""
    for text in texts[:-1]:
        # A character can take several tokens: until its last, it decodes to U+FFFD.
        piece = text.rstrip("\N{REPLACEMENT CHARACTER}").removeprefix(sent)
        sent += piece
        yield piece
    yield texts[-1].removeprefix(sent)


@dataclass(frozen=True, slots=True)
class Answer:
    """All that a response says, streamed or not."""

    request: ChatRequest
    prompt_ids: tuple[int, ...]
    choices: tuple[Choice, ...]
    response_id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def body(self) -> dict[str, Any]:
        """Shape the whole response."""
        choices = [
            {"index": choice.index, "message": choice.message}
            | self._tokens(choice, slice(None))
            | {"finish_reason": choice.finish_reason}
            for choice in self.choices
        ]
        body = self._envelope("chat.completion", choices) | self._prompt()
        return body | {"usage": self._usage()}

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Shape the response as the chunks of a stream."""
        for choice in self.choices:
            start, *deltas = self._choice_chunks(choice)
            yield self._envelope("chat.completion.chunk", [start]) | self._prompt()
            for chunk in deltas:
                yield self._envelope("chat.completion.chunk", [chunk])
        if self.request.stream_options.include_usage:
            yield self._envelope("chat.completion.chunk", []) | {"usage": self._usage()}

    def _choice_chunks(self, choice: Choice) -> Iterator[dict[str, Any]]:
        start = {"role": "assistant", "content": ""}
        yield {"index": choice.index, "delta": start, "finish_reason": None}
        for delta, tokens in _deltas(choice):
            chunk = {"index": choice.index, "delta": delta} | self._tokens(choice, tokens)
            yield chunk | {"finish_reason": None}
        yield {"index": choice.index, "delta": {}, "finish_reason": choice.finish_reason}

    def _tokens(self, choice: Choice, part: slice) -> dict[str, Any]:
        with_logprobs = self.request.logprobs
        logprobs = {"content": list(choice.logprobs[part])} if with_logprobs else None
        tokens: dict[str, Any] = {"logprobs": logprobs}
        if self.request.return_token_ids:
            tokens["token_ids"] = list(choice.token_ids[part])
        return tokens

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.response_id,
            "object": kind,
            "created": self.created,
            "model": self.request.model,
            "choices": choices,
        }

    def _prompt(self) -> dict[str, Any]:
        with_token_ids = self.request.return_token_ids
        return {"prompt_token_ids": list(self.prompt_ids)} if with_token_ids else {}

    def _usage(self) -> dict[str, int]:
        prompt = len(self.prompt_ids)
        completion = sum(len(choice.token_ids) for choice in self.choices)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }


def _deltas(choice: Choice) -> Iterator[tuple[dict[str, Any], slice]]:
    """Split a message into chunks: text token by token, each tool call as a whole."""
    calls = choice.message.get("tool_calls")
    if calls:
        numbered = [{"index": index} | call for index, call in enumerate(calls)]
        yield {"content": choice.message["content"], "tool_calls": numbered}, slice(None)
        return
    for number, piece in enumerate(choice.pieces):
        yield {"content": piece}, slice(number, number + 1)
