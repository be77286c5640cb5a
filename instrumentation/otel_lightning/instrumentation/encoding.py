"""Encode attributes for OTLP with less CPU time; the bytes on the wire stay the same.

OpenTelemetry's encoder makes a protobuf object in Python for each number of an array. For the token
ids of a call, this took more CPU time than the rest of our work. Here the bytes of the whole array
are joined, and protobuf's C code parses them at once. Short values that repeat, such as the model's
name, are encoded once and cached.
"""

import functools
import struct
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any, Final

import wrapt

from otel_lightning.instrumentation.guard import never_raise

_ENCODER: Final = "opentelemetry.exporter.otlp.proto.common._internal"
_SHORTEST: Final = 8
"""Arrays with fewer numbers are left to OpenTelemetry's encoder."""

_LONGEST: Final = 64
"""Longer texts are not cached: they seldom repeat."""

_ELEMENT: Final = b"\x0a"  # field 1 of `ArrayValue`, with a length
_INTEGER: Final = b"\x18"  # field 3 of `AnyValue`, a varint
_DOUBLE: Final = b"\x0a\x09\x21"  # an element of 9 bytes: field 4 of `AnyValue`, 8 bytes


def encode_quickly(undo: ExitStack) -> None:
    """Replace OpenTelemetry's encoder of attributes for short texts and for arrays of numbers.

    Args:
        undo: Receives the callback that reverts this.
    """
    replaced: list[tuple[ModuleType, Any]] = []

    @never_raise
    def replace(module: ModuleType) -> None:
        original = vars(module)["_encode_key_value"]
        replaced.append((module, original))
        vars(module)["_encode_key_value"] = _quickly(original, module)

    def put_back() -> None:
        for module, original in replaced:
            vars(module)["_encode_key_value"] = original

    wrapt.register_post_import_hook(replace, _ENCODER)
    undo.callback(put_back)


def _quickly(original: Callable[..., Any], module: ModuleType) -> Callable[..., Any]:
    key_value = vars(module)["PB2KeyValue"]
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
