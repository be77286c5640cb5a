"""Handle an agent that sets its own TracerProvider, after the launcher has set one from variables.

OpenTelemetry refuses to replace a provider, so the agent's provider would get no spans from
instrumentations. Here the agent's provider replaces the first one. Spans then go to the agent's
exporters and to the exporter that the variables configure.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import wrapt
from opentelemetry import trace
from opentelemetry.util._once import Once

from otel_lightning.instrumentation import delivery
from otel_lightning.instrumentation.guard import never_raise

_logger = logging.getLogger(__name__)


def allow_replacement(undo: ExitStack, provider: Any) -> None:
    """Allow a later `set_tracer_provider` to replace this provider.

    Args:
        undo: Receives the callback that reverts this.
        provider: The provider that OpenTelemetry's launcher set up from variables.
    """

    def set_provider(
        wrapped: Callable[..., None], _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        new_provider = args[0] if args else kwargs.get("tracer_provider")
        if (
            trace.get_tracer_provider() is provider
            and _is_sdk(new_provider)
            and new_provider is not provider
        ):
            never_raise(_hand_over)(provider, new_provider)
            names = vars(trace)
            # OpenTelemetry guards the provider by a flag that can be set once: a new flag opens it
            # again.
            names["_TRACER_PROVIDER"], names["_TRACER_PROVIDER_SET_ONCE"] = None, Once()
        wrapped(*args, **kwargs)
        never_raise(delivery.watch)()

    before = trace.set_tracer_provider
    wrapt.wrap_object(trace, "set_tracer_provider", wrapt.FunctionWrapper, (set_provider,))
    undo.callback(setattr, trace, "set_tracer_provider", before)


def _is_sdk(provider: Any) -> bool:
    return hasattr(provider, "_active_span_processor") and hasattr(provider, "add_span_processor")


def _hand_over(first: Any, second: Any) -> None:
    """Move the first provider's processors and tracers to the agent's provider."""
    target = second._active_span_processor  # noqa: SLF001 - the SDK has no public way to it
    agent_endpoints = set(_endpoints(target))
    for processor in first._active_span_processor._span_processors:  # noqa: SLF001
        # If the agent exports to the same endpoint itself, each span would arrive twice.
        if not agent_endpoints.intersection(_endpoint(processor)):
            target.add_span_processor(processor)
    # Our processor must be first: it changes a span at its end, before any exporter reads it.
    own, other_processors = _split(target._span_processors)  # noqa: SLF001
    target._span_processors = (*own, *other_processors)  # noqa: SLF001
    for tracer in first._tracers.values():  # noqa: SLF001
        # Instrumentations keep the tracers that they got at the start, so these are changed in
        # place.
        tracer.resource, tracer.sampler = second.resource, second.sampler
        tracer.id_generator, tracer.span_processor = second.id_generator, target
    _logger.debug("The agent set up a TracerProvider: spans go to its exporters too.")


def put_first(provider: Any, processor: Any) -> None:
    """Add a span processor before the existing processors of a provider.

    Args:
        provider: An SDK TracerProvider.
        processor: The processor that must see the end of a span before any exporter.
    """
    provider.add_span_processor(processor)
    holder = getattr(provider, "_active_span_processor", None)
    present = getattr(holder, "_span_processors", None)
    if isinstance(present, tuple):
        other_processors = tuple(other for other in present if other is not processor)
        vars(holder)["_span_processors"] = (processor, *other_processors)


def _split(processors: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    mine = [one for one in processors if type(one).__module__.startswith("otel_lightning.")]
    return mine, [one for one in processors if one not in mine]


def _endpoints(holder: Any) -> Iterator[str]:
    for processor in holder._span_processors:  # noqa: SLF001
        yield from _endpoint(processor)


def _endpoint(processor: Any) -> Iterator[str]:
    exporter = getattr(processor, "span_exporter", None)
    if endpoint := getattr(exporter, "_endpoint", None):
        yield str(endpoint)
