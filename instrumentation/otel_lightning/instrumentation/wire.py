"""Record an answer that the agent reads from the wire (`with_streaming_response`).

The agent gets each chunk of bytes as it arrives; we keep a copy of it. At the end, openai's own
classes read the answer from the copy.
"""

import importlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import ref

from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.model_call import ModelCall
from otel_lightning.instrumentation.unrecorded import End

_LARGEST: Final = 1 << 26
"""Bytes of an answer that are kept; the rest of a longer answer is not recorded."""

_WHOLE: Final = {
    "chat": ("openai.types.chat", "ChatCompletion"),
    "completions": ("openai.types", "Completion"),
    "responses": ("openai.types.responses", "Response"),
}
"""Module and name of the class of each endpoint's answer."""

_PARTS: Final = {
    "chat": ("openai.types.chat", "ChatCompletionChunk"),
    "completions": ("openai.types", "Completion"),
    "responses": ("openai.types.responses", "ResponseStreamEvent"),
}
"""Module and name of the class of the parts of each endpoint's stream."""


def watch(call: ModelCall, http: Any, note: Callable[[Any], object], end: End | None) -> None:
    """Copy the answer while the agent reads it.

    Args:
        call: The call that received the response.
        http: The response of httpx; two of its methods are replaced for this one object.
        note: Is called with each part of the answer, an object of the openai client.
        end: Is called once, after the answer was read or closed.
    """
    reading = _Reading(call, note, end)
    # Weak, so that an abandoned response is freed at once, and its connection with it.
    response, kind = ref(http), type(http)

    def iter_bytes(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        return reading.copied(kind.iter_bytes(response(), *args, **kwargs))

    def aiter_bytes(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
        return reading.acopied(kind.aiter_bytes(response(), *args, **kwargs))

    def close() -> None:
        kind.close(response())
        reading.close()

    async def aclose() -> None:
        await kind.aclose(response())
        reading.close()

    replaced = {"iter_bytes": iter_bytes, "aiter_bytes": aiter_bytes}
    vars(http).update(replaced, close=close, aclose=aclose)


class _Reading:
    """The copy of one answer."""

    def __init__(self, call: ModelCall, note: Callable[[Any], object], end: End | None) -> None:
        self._call = call
        self._note = note
        self._end = end
        self._streamed = call.request.get("stream") is True
        self._resource = call.resource
        self._chunks: list[bytes] = []
        self._size = 0
        self._running = self._finished = False

    def copied(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        with self._until_its_end():
            for chunk in chunks:
                self._keep(chunk)
                yield chunk

    async def acopied(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        with self._until_its_end():
            async for chunk in chunks:
                self._keep(chunk)
                yield chunk

    @contextmanager
    def _until_its_end(self) -> Iterator[None]:
        """Record the answer at the end of the block, with the error that ended it."""
        self._running = True
        try:
            yield
        except BaseException as error:
            self._finish(None if isinstance(error, GeneratorExit) else error)
            raise
        self._finish(None)

    def close(self) -> None:
        # httpx closes the response itself before it returns the last chunk.
        if not self._running:
            self._finish(None)

    def _keep(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size <= _LARGEST and not self._finished:
            self._chunks.append(chunk)

    @never_raise
    def _finish(self, error: BaseException | None) -> None:
        if self._finished:
            return
        self._finished = True
        body = b"".join(self._chunks)
        self._chunks.clear()
        try:
            for part in _parts(self._call.endpoint, self._resource, body, streamed=self._streamed):
                self._note(part)
        finally:  # also if the answer was cut and cannot be read: else its span would never end
            if self._end is not None:
                self._end(error)

    def __del__(self) -> None:
        self._finish(None)


def _parts(endpoint: str, resource: Any, body: bytes, *, streamed: bool) -> Iterator[Any]:
    """Yield the objects of the openai client in the body of an answer."""
    from openai._models import construct_type

    if not streamed:
        if body:
            yield construct_type(value=json.loads(body), type_=_class(*_WHOLE[endpoint]))
        return
    decoder = resource._client._make_sse_decoder()  # noqa: SLF001 - a resource has no public way
    for event in decoder.iter_bytes(iter([body])):
        if event.data.startswith("[DONE]"):
            return
        if event.data:
            yield construct_type(value=event.json(), type_=_class(*_PARTS[endpoint]))


def _class(module: str, name: str) -> Any:
    # Imported by name: older clients lack the module of Responses.
    return getattr(importlib.import_module(module), name)
