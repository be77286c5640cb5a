"""Encode attributes for OTLP with less CPU time; the bytes on the wire stay the same.

OpenTelemetry's encoder makes a protobuf object in Python for each number of an array, and copies
all of a span four times: into its scope, its resource and the request. For the token ids of a call,
this took more CPU time than the rest of our work. Here the bytes of arrays and of spans are joined,
and protobuf's C code parses the whole request at once. Short values that repeat, such as the
model's name, are encoded once and cached.
"""

import functools
import struct
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import ModuleType
from typing import Any, Final

import wrapt

from otel_lightning.instrumentation.guard import never_raise

_ENCODER: Final = "opentelemetry.exporter.otlp.proto.common._internal"
_SPAN_ENCODER: Final = f"{_ENCODER}.trace_encoder"
_SHORTEST: Final = 8
"""Arrays with fewer numbers are left to OpenTelemetry's encoder."""

_LONGEST: Final = 64
"""Longer texts are not cached: they seldom repeat."""

_ELEMENT: Final = b"\x0a"  # field 1 of `ArrayValue`, with a length
_INTEGER: Final = b"\x18"  # field 3 of `AnyValue`, a varint
_DOUBLE: Final = b"\x0a\x09\x21"  # an element of 9 bytes: field 4 of `AnyValue`, 8 bytes


def encode_quickly(undo: ExitStack) -> None:
    """Replace OpenTelemetry's encoders of attributes and of spans by quicker ones.

    Args:
        undo: Receives the callback that reverts this.
    """
    _replace(undo, _ENCODER, lambda module: {"_encode_key_value": _quickly(module)})
    _replace(undo, _SPAN_ENCODER, _joining)


def _replace(undo: ExitStack, name: str, make: Callable[[ModuleType], Mapping[str, Any]]) -> None:
    """Replace names of a module when it is imported."""

    @never_raise
    def replace(module: ModuleType) -> None:
        names = vars(module)
        made = make(module)
        undo.callback(names.update, {one: names[one] for one in made})
        names.update(made)

    wrapt.register_post_import_hook(replace, name)


def _joining(module: ModuleType) -> Mapping[str, Any]:
    """Return functions that build a request from joined bytes.

    OpenTelemetry's function calls the first one for the content of the request, and the second one
    to make the request from it. If the first one fails, both work as OpenTelemetry's.
    """
    names = vars(module)
    original, request = names["_encode_resource_spans"], names["PB2ExportTraceServiceRequest"]
    join = never_raise(_join_resources)
    if not hasattr(request, "FromString"):  # replaced already
        return {}

    def encode_resource_spans(spans: Any) -> Any:
        joined = join(names, spans)
        return original(spans) if joined is None else joined

    def make_request(resource_spans: Any) -> Any:
        if isinstance(resource_spans, bytes):
            return request.FromString(resource_spans)
        return request(resource_spans=resource_spans)

    return {
        "_encode_resource_spans": encode_resource_spans,
        "PB2ExportTraceServiceRequest": make_request,
    }


def _join_resources(names: Mapping[str, Any], spans: Any) -> bytes:
    """Return the bytes of OTLP's `ExportTraceServiceRequest`."""
    grouped: dict[Any, dict[Any, list[bytes]]] = {}
    for span in spans:
        scopes = grouped.setdefault(span.resource, {})
        scopes.setdefault(span.instrumentation_scope, []).append(_span(names, span))
    parts = []
    for resource, scopes in grouped.items():
        # Fields of one message may be encoded apart: protobuf joins them when it reads.
        head = names["PB2ResourceSpans"](
            resource=names["_encode_resource"](resource), schema_url=resource.schema_url
        )
        inner = [head.SerializeToString()]
        for scope, encoded in scopes.items():
            described = names["PB2ScopeSpans"](
                scope=names["_encode_instrumentation_scope"](scope),
                schema_url=scope.schema_url if scope else None,
            )
            fields = [described.SerializeToString(), *(_field(2, one) for one in encoded)]
            inner.append(_field(2, b"".join(fields)))
        parts.append(_field(1, b"".join(inner)))
    return b"".join(parts)


class _Without:
    """A span with fewer attributes."""

    def __init__(self, span: Any, attributes: Mapping[str, Any]) -> None:
        self._span = span
        self.attributes = attributes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._span, name)


def _span(names: Mapping[str, Any], span: Any) -> bytes:
    """Return the bytes of OTLP's `Span`, with the arrays of numbers after the other attributes."""
    arrays, others = [], {}
    for key, value in (span.attributes or {}).items():
        encoded = None
        if type(value) is tuple and len(value) >= _SHORTEST:
            encoded = encode_numbers(value)
        if encoded is None:
            others[key] = value
        else:
            arrays.append(_field(9, _key_value(key, encoded)))
    message = names["_encode_span"](_Without(span, others) if arrays else span)
    return b"".join([message.SerializeToString(), *arrays])


def _quickly(module: ModuleType) -> Callable[..., Any]:
    original, key_value = vars(module)["_encode_key_value"], vars(module)["PB2KeyValue"]
    # A message that becomes part of another is copied, so a cached one is never changed.
    cached = functools.lru_cache(maxsize=1024, typed=True)(original)

    def encode(key: str, value: Any) -> Any:
        kind = type(value)
        if (kind is str and len(value) <= _LONGEST) or kind is bool:
            return cached(key, value)
        if kind is tuple and len(value) >= _SHORTEST:
            encoded = encode_numbers(value)
            if encoded is not None:
                return key_value.FromString(_key_value(key, encoded))
        return original(key, value)

    return encode


def _key_value(key: str, array: bytes) -> bytes:
    """Return the bytes of OTLP's `KeyValue` with an array as its value."""
    return _field(1, key.encode()) + _field(2, _field(5, array))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def encode_numbers(values: tuple[Any, ...]) -> bytes | None:
    """Encode numbers as the bytes of OTLP's `ArrayValue`.

    Args:
        values: Attribute values.

    Returns:
        The bytes; None unless all values are integers of 64 bits, or all are floats.

    Example:
        >>> encode_numbers((1, 300)).hex(" ")
        '0a 02 18 01 0a 03 18 ac 02'
        >>> encode_numbers((1, True)) is None
        True
    """
    kinds = set(map(type, values))
    if kinds == {int}:
        if min(values) < 0 or max(values) >= 1 << 63:
            return None
        return b"".join(map(_encode_integer, values))
    if kinds == {float}:
        raw = struct.pack(f"<{len(values)}d", *values)
        return b"".join([_DOUBLE + raw[at : at + 8] for at in range(0, len(raw), 8)])
    return None


# Ids of frequent tokens repeat, and so do the ids of a conversation's earlier messages.
@functools.lru_cache(maxsize=1 << 15)
def _encode_integer(value: int) -> bytes:
    encoded = _INTEGER + _varint(value)
    return _ELEMENT + bytes([len(encoded)]) + encoded


def _varint(value: int) -> bytes:
    """Encode an integer as protobuf does: 7 bits per byte, the lowest first."""
    digits = []
    while value > 0x7F:  # noqa: PLR2004 - the largest value of 7 bits
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])
