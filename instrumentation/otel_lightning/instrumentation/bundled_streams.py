"""Keep the bundled instrumentation from changing what the agent gets.

- For a stream of legacy completions it returns a plain generator instead of openai's stream. So
  `with`, `response` and `close()` of an async stream fail, and a stream that fails or is not read
  to its end has no span.
- It consumes a stream of legacy completions of `with_raw_response` and `with_streaming_response`
  before the agent can read it.
- It calls, without awaiting it, the `parse` of an async client's `with_streaming_response`.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any, Final

import wrapt

from otel_lightning.instrumentation import replacing
from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.unrecorded import fail

_SHARED: Final = "opentelemetry.instrumentation.openai.shared"


def keep_streams(undo: ExitStack) -> None:
    """Replace functions of the instrumentation when it is imported.

    Args:
        undo: Receives the callback that reverts this.
    """
    replacing.replace_names(undo, f"{_SHARED}.completion_wrappers", _for_completions)
    replacing.replace_names(undo, f"{_SHARED}.chat_wrappers", _for_chat)


def _for_chat(module: ModuleType) -> dict[str, Any]:
    return {"_handle_response": _sparing_streams(vars(module)["_handle_response"])}


def _for_completions(module: ModuleType) -> dict[str, Any]:
    names = vars(module)
    return {
        "_handle_response": _sparing_streams(names["_handle_response"]),
        "_build_from_streaming_response": _following(
            names["_build_from_streaming_response"], _SyncStream
        ),
        "_abuild_from_streaming_response": _following(
            names["_abuild_from_streaming_response"], _AsyncStream
        ),
    }


def _sparing_streams(handle: Callable[..., Any]) -> Callable[..., Any]:
    def handle_unless_stream(response: Any, *args: Any, **kwargs: Any) -> Any:
        return response if _is_raw_stream(response) else handle(response, *args, **kwargs)

    return handle_unless_stream


@never_raise
def _is_raw_stream(response: Any) -> bool:
    if hasattr(response, "model_dump") or not hasattr(response, "parse"):
        return False
    # `parse` returns a coroutine in the class of `with_streaming_response` of an async client.
    return inspect.iscoroutinefunction(response.parse) or "_iterator" in vars(response.parse())


def _following(build: Callable[..., Any], kind: Callable[..., Any]) -> Callable[..., Any]:
    def follow(span: Any, request: Any, stream: Any) -> Any:
        return kind(stream, build(span, request, stream), span)

    return follow


class _Stream(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """openai's stream of a completion.

    Args:
        stream: The stream of the client.
        parts: The instrumentation's generator over its parts, which records them.
        span: The span of the call.
    """

    def __init__(self, stream: Any, parts: Any, span: Any) -> None:
        super().__init__(stream)
        self._self_parts = parts
        self._self_span = span

    @never_raise
    def _self_end(self, error: BaseException | None = None) -> None:
        if self._self_span.is_recording():
            if error is not None:
                fail(self._self_span, error)
            self._self_span.end()

    def __del__(self) -> None:
        self._self_end()


class _SyncStream(_Stream):
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._self_parts)
        except BaseException as error:
            self._self_end(None if isinstance(error, StopIteration) else error)
            raise

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the stream, and record what was read."""
        self._self_end()
        self.__wrapped__.close()


class _AsyncStream(_Stream):
    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return await anext(self._self_parts)
        except BaseException as error:
            self._self_end(None if isinstance(error, StopAsyncIteration) else error)
            raise

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the stream, and record what was read."""
        self._self_end()
        await self.__wrapped__.close()
