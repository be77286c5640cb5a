"""The HTTP application: OpenAI's routes for one model, token ids and logprobs included.

Requests that wait are sampled in one batch. Logprobs are those of the distribution that was
sampled from, temperature included; at temperature 0 they are 0.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from otel_lightning.learner.model_server.answer import Answer, make_choice
from otel_lightning.learner.model_server.chat import prompt_ids
from otel_lightning.learner.model_server.request import ApiError, ChatRequest, read_request
from otel_lightning.learner.model_server.sampling import Request, Sampler


@dataclass(frozen=True, slots=True)
class Serving:
    """How a model is served."""

    names: tuple[str, ...]
    """Names that the model answers to; the first is the one that it gives itself."""
    temperature: float | None = None
    """Replaces the temperature of every request."""
    seed: int | None = None
    """Makes the answers to requests without a seed repeatable."""


class ServedModel:
    """A model that answers requests."""

    def __init__(
        self, serving: Serving, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        self.names = serving.names
        self.created = int(time.time())
        self._serving = serving
        self._tokenizer = tokenizer
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._context = int(limit or tokenizer.model_max_length)
        self._sampler = Sampler(model)
        self._asked: Counter[tuple[int, ...]] = Counter()

    async def answer(self, request: ChatRequest) -> Answer:
        """Sample the choices that a request asks for.

        Raises:
            ApiError: If the model is another, or the prompt does not fit.
        """
        if request.model not in self.names:
            known = ", ".join(self.names)
            raise ApiError(f"Unknown model '{request.model}'. Known: {known}.", "model", 404)
        prompt = self._prompt(request)
        seed = self._seed(request, prompt)
        futures = [
            asyncio.wrap_future(self._sampler.submit(self._sampling(request, prompt, seed, index)))
            for index in range(request.n)
        ]
        completions = await asyncio.gather(*futures)
        choices = (
            make_choice(index, completion, self._tokenizer)
            for index, completion in enumerate(completions)
        )
        return Answer(request, prompt, tuple(choices))

    def _prompt(self, request: ChatRequest) -> tuple[int, ...]:
        messages = [message.model_dump(exclude_none=True) for message in request.messages]
        tools = [tool.model_dump(exclude_none=True) for tool in request.tools]
        ids = prompt_ids(self._tokenizer, messages, tools)
        # At least one token of answer must fit.
        room = self._context - len(ids)
        completion = request.max_tokens or 1
        if completion > room:
            size = f"{len(ids)} tokens of prompt and {completion} of completion"
            raise ApiError(f"{size} are more than the model's {self._context}.", "messages")
        return tuple(ids)

    def _seed(self, request: ChatRequest, prompt: tuple[int, ...]) -> str | None:
        """Choose the seed of a request.

        The n-th request for a prompt always gets the same seed. So runs are repeatable, whatever
        the order in which parallel agents ask, as long as the prompt holds the agent's state.
        """
        if request.seed is not None or self._serving.seed is None:
            return None if request.seed is None else str(request.seed)
        # A counter of equal prompts: the second sample of a task draws other numbers than the
        # first.
        self._asked[prompt] += 1
        return f"{self._serving.seed}/{prompt}/{self._asked[prompt]}"

    def _sampling(
        self, request: ChatRequest, prompt: tuple[int, ...], seed: str | None, index: int
    ) -> Request:
        forced = self._serving.temperature
        temperature = request.temperature if forced is None else forced
        own_seed = None if seed is None else f"{seed}:{index}"
        max_tokens = request.max_tokens or self._context - len(prompt)
        return Request(prompt, temperature, max_tokens, own_seed)


def make_app(served: ServedModel) -> Starlette:
    """Make the HTTP application: OpenAI's two routes, and its form for every error."""

    async def models(_: HttpRequest) -> Response:
        common = {"object": "model", "created": served.created, "owned_by": "otel-lightning"}
        return JSONResponse(
            {"object": "list", "data": [{"id": name} | common for name in served.names]}
        )

    async def chat(http: HttpRequest) -> Response:
        answer = await served.answer(read_request(await _json(http)))
        if not answer.request.stream:
            return JSONResponse(answer.body())
        return StreamingResponse(_events(answer), media_type="text/event-stream")

    return Starlette(
        routes=[
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
        ],
        exception_handlers={ApiError: _error, HTTPException: _error},
    )


async def _json(http: HttpRequest) -> Any:
    try:
        return json.loads(await http.body())
    except ValueError as error:
        raise ApiError(f"The request body is not JSON ({error}).") from None


async def _events(answer: Answer) -> AsyncIterator[str]:
    # Completions of small models are short: each is sampled to its end, then sent in pieces.
    for chunk in answer.chunks():
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


async def _error(http: HttpRequest, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        route = f"{http.method} {http.url.path}"
        error = ApiError(f"{error.detail}: {route}", status=error.status_code)
    if not isinstance(error, ApiError):
        raise error
    return JSONResponse(error.body(), error.status)
