"""Token ids and logprobs of the openai client's chat completions, on the current LLM span.

Our wrapper must run inside the span that the LLM instrumentor makes, so it has to be the inner
one: `capture_tokens` puts it in place before any instrumentor runs, as soon as openai is imported.
"""

import functools
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, Final

import wrapt
from opentelemetry import trace
from opentelemetry.trace import Span

from otel_lightning.instrumentation.genai import attributes_of, is_llm
from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.token_log import record

REQUEST_VARIABLE: Final = "LIGHTNING_REQUEST_TOKEN_IDS"
"""Set to `true`, it makes us ask the model server for token ids and logprobs."""

_REFUSALS: Final = (400, 422)
_on = threading.Event()
_refusing: set[str] = set()  # base URLs


@never_raise
@functools.cache
def capture_tokens() -> None:
    """Put the wrappers in place, now or when openai is imported; `switch` turns them on."""
    wrapt.register_post_import_hook(_wrap, "openai.resources.chat.completions")


def switch(*, on: bool) -> None:
    """Start or stop the recording.

    Args:
        on: Whether to record.
    """
    if on:
        _on.set()
    else:
        _on.clear()


@never_raise
def _wrap(module: ModuleType) -> None:
    for resource, wrapper in ((module.Completions, _create), (module.AsyncCompletions, _acreate)):
        for method in ("create", "parse"):
            if hasattr(resource, method):
                wrapt.wrap_object(
                    resource, method, wrapt.FunctionWrapper, (wrapper,), {"enabled": _on.is_set}
                )


def _create(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    span = _llm_span()
    asking = _asking(instance, kwargs)
    if asking is None:
        return record(span, wrapped(*args, **kwargs))
    try:
        return record(span, wrapped(*args, **asking))
    except Exception as error:
        if not _is_refusal(error):
            raise
    # Outside of `except`: should this fail too, the agent sees its own error and no other.
    response = wrapped(*args, **kwargs)
    _stop_asking(instance)
    return record(span, response)


async def _acreate(
    wrapped: Callable[..., Awaitable[Any]],
    instance: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    span = _llm_span()
    asking = _asking(instance, kwargs)
    if asking is None:
        return record(span, await wrapped(*args, **kwargs))
    try:
        return record(span, await wrapped(*args, **asking))
    except Exception as error:
        if not _is_refusal(error):
            raise
    response = await wrapped(*args, **kwargs)
    _stop_asking(instance)
    return record(span, response)


@never_raise
def _llm_span() -> Span | None:
    span = trace.get_current_span()
    return span if span.is_recording() and is_llm(attributes_of(span)) else None


@never_raise
def _asking(instance: Any, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Add our two fields to a request, as vLLM names them, where the agent left them open.

    Returns:
        The new arguments, or None where we are not to ask.
    """
    wanted = os.environ.get(REQUEST_VARIABLE, "").lower() == "true"
    if not wanted or _base_url(instance) in _refusing:
        return None
    body = {"return_token_ids": True, **(kwargs.get("extra_body") or {})}
    # Anything but a boolean is one of openai's markers for "not given".
    given = isinstance(kwargs.get("logprobs"), bool)
    return {**kwargs, "extra_body": body} | ({} if given else {"logprobs": True})


def _is_refusal(error: Exception) -> bool:
    return getattr(error, "status_code", None) in _REFUSALS


@never_raise
def _stop_asking(instance: Any) -> None:
    _refusing.add(_base_url(instance))


def _base_url(instance: Any) -> str:
    return str(instance._client.base_url)  # noqa: SLF001 - a resource has no public way to it
