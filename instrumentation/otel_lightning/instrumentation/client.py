"""The wrappers in the openai client: they read requests and answers.

They change a request only if a variable enables it: for token ids, or for the arm of a policy.
They must be the inner wrappers, inside those of the LLM instrumentor. So they are installed as soon
as openai is imported, before any instrumentor runs.
"""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache, partial
from types import ModuleType
from typing import Any, Final

import wrapt

from otel_lightning.instrumentation import (
    added_fields,
    iterables,
    model_call,
    policy,
    unrecorded,
    wire,
)
from otel_lightning.instrumentation.added_fields import Additions
from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.model_call import ModelCall
from otel_lightning.instrumentation.tools import InferredTools
from otel_lightning.instrumentation.unrecorded import End

ENDPOINTS: Final = {
    "openai.resources.chat.completions": ("chat", "Completions"),
    "openai.resources.completions": ("completions", "Completions"),
    "openai.resources.responses": ("responses", "Responses"),
}
"""Module of each resource of the client, its endpoint and its class."""

_REFUSALS: Final = (400, 422)  # HTTP status of a server that does not know our added fields
_READ_FROM_THE_WIRE: Final = ("APIResponse", "AsyncAPIResponse")
"""Classes of the answers of `with_streaming_response`."""

_on = threading.Event()
"""Set while the wrappers record."""

_refusing: set[str] = set()
"""Base URLs of the servers that refused our added fields."""

_inferred_tools: list[InferredTools] = []
"""The one receiver of tool requests and results; empty while recording is off."""


def switch_on(inferred_tools: InferredTools) -> None:
    """Start recording.

    Args:
        inferred_tools: Receives tool requests and results.
    """
    _inferred_tools[:] = [inferred_tools]
    _on.set()


def switch_off() -> None:
    """Stop recording."""
    _on.clear()
    _inferred_tools.clear()


@never_raise
@cache
def wrap_when_imported() -> None:
    """Install the wrappers when openai is imported, or now; they record after `switch_on`."""
    for module in ENDPOINTS:
        wrapt.register_post_import_hook(_wrap, module)


@never_raise
def _wrap(module: ModuleType) -> None:
    """Install the wrappers on one resource of the client.

    Args:
        module: A module of `ENDPOINTS`.
    """
    endpoint, name = ENDPOINTS[module.__name__]
    # Each resource has two classes, such as `Completions` and `AsyncCompletions`.
    for prefix, wrapper in (("", _create), ("Async", _acreate)):
        resource = getattr(module, prefix + name)
        for method in ("create", "parse"):
            if hasattr(resource, method):
                wrapt.wrap_object(
                    resource,
                    method,
                    wrapt.FunctionWrapper,
                    (partial(wrapper, endpoint),),
                    # wrapt asks this at each call: after `switch_off` the agent's call goes
                    # straight through.
                    {"enabled": _on.is_set},
                )


def _create(
    endpoint: str,
    wrapped: Callable[..., Any],
    instance: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    kwargs = iterables.as_lists(kwargs)
    call = _begin(endpoint, instance, kwargs)
    if call is None:
        return wrapped(*args, **kwargs)
    kwargs = _with_arms(call, kwargs) or kwargs
    try:
        added = _added(endpoint, instance, kwargs)
        if added is None:
            return _received(call, wrapped(*args, **kwargs))
        try:
            return _received(call, wrapped(*args, **added.arguments), added)
        except Exception as error:
            if not _is_refusal(error):
                raise
        # Retry without our fields. Do it outside of `except`, so that an error of the retry does
        # not have ours as its context: the agent sees only its own error.
        response = wrapped(*args, **kwargs)
        _stop_asking(instance)
        return _received(call, response)
    except BaseException as error:
        if not isinstance(error, Exception):
            unrecorded.give_up(call, error)
        raise
    finally:
        model_call.end(call)


async def _acreate(
    endpoint: str,
    wrapped: Callable[..., Awaitable[Any]],
    instance: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    kwargs = iterables.as_lists(kwargs)
    call = _begin(endpoint, instance, kwargs)
    if call is None:
        return await wrapped(*args, **kwargs)
    kwargs = _with_arms(call, kwargs) or kwargs
    try:
        added = _added(endpoint, instance, kwargs)
        if added is None:
            return _received(call, await wrapped(*args, **kwargs))
        try:
            return _received(call, await wrapped(*args, **added.arguments), added)
        except Exception as error:
            if not _is_refusal(error):
                raise
        response = await wrapped(*args, **kwargs)
        _stop_asking(instance)
        return _received(call, response)
    except BaseException as error:
        if not isinstance(error, Exception):
            unrecorded.give_up(call, error)
        raise
    finally:
        model_call.end(call)


@never_raise
def _begin(endpoint: str, instance: Any, kwargs: dict[str, Any]) -> ModelCall | None:
    call = model_call.begin(endpoint, kwargs)
    if call is not None:
        call.resource = instance
        _note_request(call)
    return call


@never_raise
def _note_request(call: ModelCall) -> None:
    for inferred_tools in _inferred_tools:
        inferred_tools.note_request(call)


@never_raise
def _with_arms(call: ModelCall, kwargs: dict[str, Any]) -> dict[str, Any]:
    changed = policy.apply(call, kwargs)
    call.request = changed
    return changed


@never_raise
def _added(endpoint: str, instance: Any, kwargs: dict[str, Any]) -> Additions | None:
    added = added_fields.additions(endpoint, kwargs)
    return None if added is not None and _refusing and _base_url(instance) in _refusing else added


def _is_refusal(error: Exception) -> bool:
    return getattr(error, "status_code", None) in _REFUSALS


@never_raise
def _stop_asking(instance: Any) -> None:
    _refusing.add(_base_url(instance))


def _base_url(instance: Any) -> str:
    return str(instance._client.base_url)  # noqa: SLF001 - a resource has no public way to it


def _received(call: ModelCall, response: Any, added: Additions | None = None) -> Any:
    _read(call, response, added)
    return response


@never_raise
def _read(call: ModelCall, response: Any, added: Additions | None) -> None:
    # `with_raw_response` returns this class; its `parse` caches the result for the agent.
    # `with_streaming_response` returns another class. Do not parse that one: it would consume the
    # body that the agent wants to read.
    kind = type(response).__name__
    raw = kind == "LegacyAPIResponse"
    body = response.parse() if raw else response
    # Not `hasattr`: on a response object, pydantic takes long to say that it has no such attribute.
    if "_iterator" in getattr(body, "__dict__", ()):
        # Wrap the iterator inside the stream, so that the agent gets openai's own stream object.
        end = unrecorded.follow(call) if raw else None
        body._iterator = _Chunks(body._iterator, call, added, end)  # noqa: SLF001
    elif hasattr(body, "usage"):
        _note(call, body)
        if added is not None:
            added_fields.strip(added, body)
            if raw:
                http = response.http_response
                http._content = added_fields.strip_body(added, http.content)  # noqa: SLF001
        unrecorded.note_whole(call, body)
    elif kind in _READ_FROM_THE_WIRE:
        # The instrumentation reads an answer that is no stream itself, but not each async one.
        unread = kind == "AsyncAPIResponse" and call.endpoint != "responses"
        streamed = call.request.get("stream") is True
        end = unrecorded.follow(call) if streamed or unread else None
        wire.watch(call, response.http_response, never_raise(partial(_note, call)), end)


def _note(call: ModelCall, part: Any) -> None:
    call.answer.add(part)
    if call.choices:
        policy.note_answer(call)
    if call.answer.requests:
        for inferred_tools in _inferred_tools:
            inferred_tools.note_answer(call)


class _Chunks(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """An iterator over the chunks of a stream, sync or async, that records each chunk.

    Args:
        chunks: The iterator of openai's stream.
        call: The call that received the stream.
        added: The fields that only we requested.
        end: Is called once, at the end of the stream or when the agent drops it.
    """

    def __init__(
        self, chunks: Any, call: ModelCall, added: Additions | None, end: End | None = None
    ) -> None:
        super().__init__(chunks)
        self._self_call = call
        self._self_note = never_raise(partial(_note, call))
        self._self_added = added
        self._self_end = end

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                chunk = self.__wrapped__.__next__()
            except BaseException as error:
                self._self_finish(error)
                raise
            self._self_note(chunk)
            if self._self_added is None or not _take_out(self._self_added, chunk):
                return chunk

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while True:
            try:
                chunk = await self.__wrapped__.__anext__()
            except BaseException as error:
                self._self_finish(error)
                raise
            self._self_note(chunk)
            if self._self_added is None or not _take_out(self._self_added, chunk):
                return chunk

    def _self_finish(self, error: BaseException | None) -> None:
        if isinstance(error, StopIteration | StopAsyncIteration):
            error = None
        if error is not None:
            _note_error(self._self_call, error)
        # Taken first, so that it is called once: `__del__` follows the end of the stream.
        end, self._self_end = self._self_end, None
        if end is not None:
            end(error)

    def __del__(self) -> None:
        self._self_finish(None)


@never_raise
def _note_error(call: ModelCall, error: BaseException) -> None:
    call.error = (type(error).__name__, str(error))


@never_raise
def _take_out(added: Additions, chunk: Any) -> bool:
    """Remove our additions from a chunk; return whether the agent should not see the chunk."""
    # A chunk that exists only because we asked for token counts: the agent reads the next one.
    if added.usage and added_fields.is_only_usage(added, chunk):
        return True
    added_fields.strip(added, chunk)
    return False
