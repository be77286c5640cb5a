"""Calls that end neither with an answer nor with an error: cancelled, interrupted, abandoned."""

import asyncio
import gc
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from support.late import Late

openai: Any = Late("openai")
REQUEST: Any = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
def test_a_cancelled_call_is_recorded_with_its_error_and_the_next_one_is_apart(
    traced: Any, model_server: Any, silent: socket.socket, endpoint: str
) -> None:
    def ask(client: Any) -> Any:
        if endpoint == "chat":
            return client.chat.completions.create(**REQUEST)
        return client.responses.create(model="small", input="Hi")

    async def cancel_one() -> str:
        port = silent.getsockname()[1]
        nowhere = f"http://127.0.0.1:{port}"
        async with (
            openai.AsyncOpenAI(api_key="none", base_url=nowhere, max_retries=0) as slow,
            openai.AsyncOpenAI(api_key="none", base_url=model_server.base_url("vllm")) as quick,
        ):
            call = asyncio.create_task(ask(slow))
            connection, _ = await asyncio.to_thread(silent.accept)
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call
            connection.close()
            answer = await ask(quick)
            return str(answer.id)

    answered = asyncio.run(cancel_one())
    cancelled, other = traced.exporter.get_finished_spans()
    assert cancelled.attributes["error.type"] == "CancelledError"
    assert not cancelled.status.is_ok
    assert not cancelled.attributes.get("gen_ai.response.id")
    assert cancelled.attributes["gen_ai.request.model"] == "small"
    assert "Hi" in cancelled.attributes["gen_ai.input.messages"]
    assert other.attributes["gen_ai.response.id"] == answered
    assert "error.type" not in other.attributes


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
def test_a_stream_whose_task_is_cancelled_keeps_what_was_read(
    traced: Any, model_server: Any, endpoint: str
) -> None:
    async def read_some(read: asyncio.Event) -> None:
        base_url = model_server.base_url("vllm")
        async with openai.AsyncOpenAI(api_key="none", base_url=base_url) as client:
            if endpoint == "chat":
                stream: Any = await client.chat.completions.create(**REQUEST, stream=True)
            else:
                stream = await client.responses.create(model="small", input="Hi", stream=True)
            async for _ in stream:
                read.set()
                await asyncio.Event().wait()

    async def main() -> None:
        read = asyncio.Event()
        task = asyncio.create_task(read_some(read))
        await read.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gc.collect()
    (span,) = traced.exporter.get_finished_spans()
    assert span.attributes["gen_ai.request.model"] == "small"


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
@pytest.mark.parametrize("client", ["sync", "async"])
def test_a_stream_that_fails_while_it_is_read_is_an_error(
    traced: Any, model_server: Any, endpoint: str, client: str
) -> None:
    request = {
        "chat": REQUEST,
        "completions": {"model": "small", "prompt": "Hi"},
        "responses": {"model": "small", "input": "Hi"},
    }[endpoint]

    def create(opened: Any) -> Any:
        resource = opened.chat.completions if endpoint == "chat" else getattr(opened, endpoint)
        return resource.create(**request, stream=True)

    async def read_async() -> None:
        async with openai.AsyncOpenAI(api_key="none", base_url=base_url) as opened:
            async for _ in await create(opened):
                pass

    def read() -> None:
        with openai.OpenAI(api_key="none", base_url=base_url) as opened:
            list(create(opened))

    base_url = model_server.base_url("quoting")
    with pytest.raises(openai.APIError):
        asyncio.run(read_async()) if client == "async" else read()
    gc.collect()
    (span,) = traced.exporter.get_finished_spans()
    assert span.attributes["error.type"] == "APIError"
    assert span.status.status_code.name == "ERROR"
    assert "invalid" in span.status.description


def test_a_call_that_control_c_interrupts_is_delivered(agent: Any) -> None:
    script = """
import signal, socket, threading
import openai

def interrupt():
    connections.append(server.accept())  # kept: a closed connection would be an error
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

connections, server = [], socket.create_server(("127.0.0.1", 0))
threading.Thread(target=interrupt, daemon=True).start()
client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.getsockname()[1]}", max_retries=0)
client.chat.completions.create(model="small", messages=[{"role": "user", "content": "Hi"}])
"""
    process = agent.finish(script)
    assert "KeyboardInterrupt" in process.stderr
    assert "Lost" not in process.stderr
    (span,) = agent.sink.llm_spans()
    assert span.attributes["error.type"] == "KeyboardInterrupt"
