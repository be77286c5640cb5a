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

from otel_lightning.instrumentation.genai import attributes_of
from otel_lightning.instrumentation.guard import never_raise
from otel_lightning.instrumentation.replacing import replace_names

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
    replace_names(undo, _ENCODER, lambda module: {"_encode_key_value": _quickly(module)})
    replace_names(undo, _SPAN_ENCODER, _joining)


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


def _span(names: Mapping[str, Any], span: Any) -> bytes:
    """Return the bytes of OTLP's `Span`."""
    context = span.get_span_context()
    parts = [
        b"\x0a\x10",  # field 1: 16 bytes
        context.trace_id.to_bytes(16),
        b"\x12\x08",  # field 2: 8 bytes
        context.span_id.to_bytes(8),
    ]
    if context.trace_state:
        parts.append(_text(3, names["_encode_trace_state"](context.trace_state)))
    if span.parent:
        parts += [b"\x22\x08", span.parent.span_id.to_bytes(8)]  # field 4: 8 bytes
    parts.append(_text(5, span.name))
    parts.append(_count(6, names["_SPAN_KIND_MAP"][span.kind]))
    parts.append(_time(7, span.start_time) + _time(8, span.end_time))
    parts += _attributes(names, 9, span)
    parts.append(_count(10, span.dropped_attributes))
    parts += [_field(11, _event(names, event)) for event in span.events]
    parts.append(_count(12, span.dropped_events))
    for link in names["_encode_links"](span.links) or ():
        parts.append(_field(13, link.SerializeToString()))
    parts.append(_count(14, span.dropped_links))
    if span.status is not None:
        parts.append(_status(span.status.status_code.value, span.status.description))
    parts.append(b"\x85\x01" + struct.pack("<I", names["_span_flags"](span.parent)))  # field 16
    return b"".join(parts)


def _event(names: Mapping[str, Any], event: Any) -> bytes:
    """Return the bytes of OTLP's `Span.Event`."""
    parts = [_time(1, event.timestamp), _text(2, event.name), *_attributes(names, 3, event)]
    return b"".join([*parts, _count(4, event.dropped_attributes)])


def _status(code: int, description: str | None) -> bytes:
    return _field(15, _text(2, description or "") + _count(3, code))


def _text(number: int, text: str) -> bytes:
    # protobuf omits empty values. OpenTelemetry's encoder would lose the whole batch for half of a
    # surrogate pair in one name, or in the text of one error.
    return _field(number, text.encode(errors="replace")) if text else b""


def _count(number: int, value: int) -> bytes:
    return bytes([number << 3]) + _varint(value) if value else b""


def _time(number: int, nanoseconds: int | None) -> bytes:
    return struct.pack("<BQ", number << 3 | 1, nanoseconds) if nanoseconds else b""


def _attributes(names: Mapping[str, Any], number: int, holder: Any) -> list[bytes]:
    """Return the bytes of the attributes of a span or event, each with its field number."""
    fields = []
    for key, value in attributes_of(holder).items():
        try:
            if type(value) is str and len(value) <= _LONGEST:
                fields.append(_short_pair(number, key, value))
                continue
            encoded = _value(type(value), value)
            if encoded is not None:
                fields.append(_field(number, _text(1, key) + _field(2, encoded)))
                continue
        except UnicodeEncodeError:
            pass  # half of a surrogate pair: OpenTelemetry logs it and drops the attribute
        pairs = names["_encode_attributes"]({key: value})
        fields += [_field(number, pair.SerializeToString()) for pair in pairs]
    return fields


@functools.lru_cache(maxsize=1024)
def _short_pair(number: int, key: str, value: str) -> bytes:
    return _field(number, _text(1, key) + _field(2, _string(value)))


def _string(value: str) -> bytes:
    return _field(1, value.encode())


def _value(kind: type, value: Any) -> bytes | None:
    """Return the bytes of OTLP's `AnyValue`, or None for a value that OpenTelemetry encodes."""
    if kind is str:
        return _string(value)
    if kind is tuple and len(value) >= _SHORTEST:
        array = encode_numbers(value)
        return None if array is None else _field(5, array)
    if kind is bool:
        return b"\x10\x01" if value else b"\x10\x00"
    if kind is int:
        return _INTEGER + _varint(value) if 0 <= value < 1 << 63 else None
    if kind is float:
        return b"\x21" + struct.pack("<d", value)
    return None


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
    return _head(number, len(content)) + content


@functools.lru_cache(maxsize=1024)
def _head(number: int, length: int) -> bytes:
    return bytes([number << 3 | 2]) + _varint(length)


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
