"""Serve the support desk's model to any OpenAI client, token ids and logprobs included.

Requests that wait are sampled in one batch. Logprobs are those of the distribution that was
sampled from, temperature included; at temperature 0 they are 0.

    python server.py --model base-model --port 8000
"""

import argparse
import asyncio
import contextlib
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import torch
import uvicorn
from chat import prompt_ids
from chat_answer import Answer, make_choice
from chat_request import ApiError, ChatRequest, read_request
from sampling import Request, Sampler
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging


class Desk:
    """A model being served under a name."""

    def __init__(
        self, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        self.name = name
        self.created = int(time.time())
        self._tokenizer = tokenizer
        self._context = model.config.max_position_embeddings
        self._sampler = Sampler(model)

    async def answer(self, request: ChatRequest) -> Answer:
        """Sample the choices that a request asks for.

        Raises:
            ApiError: If the model is another, or the prompt does not fit.
        """
        if request.model != self.name:
            raise ApiError(f"Unknown model '{request.model}'. Known: {self.name}.", "model", 404)
        prompt = self._prompt(request)
        futures = [
            asyncio.wrap_future(self._sampler.submit(self._sampling(request, prompt, index)))
            for index in range(request.n)
        ]
        completions = await asyncio.gather(*futures)
        choices = (
            make_choice(index, completion, self._tokenizer)
            for index, completion in enumerate(completions)
        )
        return Answer(request, prompt, tuple(choices))

    def _prompt(self, request: ChatRequest) -> tuple[int, ...]:
        messages = [message.model_dump() for message in request.messages]
        tools = [tool.model_dump() for tool in request.tools]
        ids = prompt_ids(self._tokenizer, messages, tools)
        room = self._context - len(ids)
        if request.max_tokens > room:
            asked = f"{len(ids)} tokens of prompt and {request.max_tokens} to come"
            raise ApiError(f"{asked} are more than the model's {self._context}.", "messages")
        return tuple(ids)

    def _sampling(self, request: ChatRequest, prompt: tuple[int, ...], index: int) -> Request:
        seed = None if request.seed is None else f"{request.seed}:{index}"
        return Request(prompt, request.temperature, request.max_tokens, seed)


def make_app(desk: Desk) -> Starlette:
    """Make the HTTP application: OpenAI's two routes, and its shape for every error."""

    async def models(_: HttpRequest) -> Response:
        entry = {"id": desk.name, "object": "model", "created": desk.created}
        return JSONResponse({"object": "list", "data": [entry | {"owned_by": "support-desk"}]})

    async def chat(http: HttpRequest) -> Response:
        answer = await desk.answer(read_request(await _json(http)))
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
    # Completions here are a few tokens long: sampled whole, then sent piece by piece.
    for chunk in answer.chunks():
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


async def _error(http: HttpRequest, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        where = f"{http.method} {http.url.path}"
        error = ApiError(f"{error.detail}: {where}", status=error.status_code)
    if not isinstance(error, ApiError):
        raise error
    return JSONResponse(error.body(), error.status)


def load(folder: Path) -> Desk:
    """Load a model and its tokenizer; the folder's name is the model's.

    Raises:
        FileNotFoundError: If the folder holds no model.
    """
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"No model in '{folder}'. Make one with: python model.py --output {folder}"
        )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return Desk(folder.resolve().name, model, tokenizer)


def listen(host: str, port: int) -> socket.socket:
    """Open the port; 0 takes a free one.

    Raises:
        OSError: If the port is taken, or the host is not this machine's.
    """
    try:
        listener = socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        raise OSError(f"Cannot listen on {host}:{port}: {error}. Try --port 0.") from None
    # asyncio does this for sockets that it opens itself; without it each answer waits 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve(desk: Desk, listener: socket.socket, port_file: Path | None) -> None:
    """Answer requests until the process is told to stop."""
    host, port = listener.getsockname()[:2]
    if port_file:
        # A reader that waits for the file must never see it empty.
        partial = port_file.with_name(f"{port_file.name}.partial")
        partial.write_text(f"{port}\n", encoding="utf-8")
        partial.replace(port_file)
    print(f"'{desk.name}' answers on http://{host}:{port}/v1", flush=True)
    server = uvicorn.Server(uvicorn.Config(make_app(desk), log_level="warning"))
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def main() -> None:
    """Serve a model over HTTP."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", type=Path, required=True, help="the model's folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free port")
    parser.add_argument("--port-file", type=Path, help="write the port here once it answers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        listener = listen(options.host, options.port)
        serve(load(options.model), listener, options.port_file)
    except OSError as error:
        sys.exit(f"server.py: {error}")


if __name__ == "__main__":
    main()
