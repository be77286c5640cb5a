"""Convert OTLP's values (AnyValue) to the stored texts."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValueList

from otel_lightning.collector.load.decoding.columns import as_text, member


def value_texts(values: pa.StructArray) -> pa.Array:
    """Convert AnyValues to text: common types by column, the types in `RARE` value by value."""
    kinds = {name: member(values, name) for name in ("int_value", "bool_value", *RARE)}
    other_texts = [
        _each_once(column, RARE[name]) if name in RARE else column.cast(pa.string())
        for name, column in kinds.items()
        if column.null_count < len(column)
    ]
    texts = as_text(member(values, "string_value"))
    if not other_texts:
        return texts
    # if_else knows the size of its result before it copies. coalesce grows its buffer by doubling
    # and touches four times the memory, so it joins only the values that are not strings.
    other = pc.coalesce(*other_texts) if len(other_texts) > 1 else other_texts[0]
    return pc.if_else(pc.is_valid(texts), texts, other)


def _each_once(column: pa.Array, write: Callable[[Any], str | None]) -> pa.Array:
    """Convert each distinct value once: finish reasons and temperatures are often repeated."""
    distinct = column.dictionary_encode()
    texts = [write(value) for value in distinct.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(distinct.indices)


def text_of(value: AnyValue) -> str | None:
    """Convert one OTLP value to the stored text: a string is unchanged, others become JSON."""
    plain = _plain(value)
    if plain is None or isinstance(plain, str):
        return plain
    return as_json(plain)


def as_json(value: Any) -> str:
    """Write a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: _plain(item.value) for item in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind)


RARE: dict[str, Callable[[Any], str | None]] = {
    "double_value": json.dumps,
    "array_value": lambda raw: text_of(AnyValue(array_value=ArrayValue.FromString(raw))),
    "kvlist_value": lambda raw: text_of(AnyValue(kvlist_value=KeyValueList.FromString(raw))),
    "bytes_value": lambda raw: base64.b64encode(raw).decode(),
}
