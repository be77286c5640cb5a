"""Parse OTLP's JSON encoding into the protobuf classes.

It is protobuf's JSON mapping with two differences: trace and span ids are hex, and enums are
numbers. Some SDKs and stores write protobuf's own JSON, so ids in base64 and names of enums are
read too. Unknown fields are ignored. A record that breaks these rules is replaced by one with the
reason; the other records stay. The field names come from OTLP's descriptors, so this module names
only the two kinds of record.

Source:
    OTLP specification 1.11, "JSON Protobuf Encoding".
"""

import base64
import binascii
import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

import orjson
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_lightning.instrumentation.attributes import REJECTED_RECORD

ID_BYTES = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
RECORDS: dict[str, type[Message]] = {kind.DESCRIPTOR.full_name: kind for kind in (Span, LogRecord)}
MAX_DEPTH = 90  # levels of nesting; protobuf's parsers stop at 100
SHOWN = 40  # characters of an invalid value that an error message repeats

M = TypeVar("M", bound=Message)
Reader = Callable[[Any, int, list[str]], Any]


class Read(NamedTuple, Generic[M]):
    """A parsed request, and the faults of its invalid records.

    Each invalid record is replaced by the result of `instead_of`, which carries the reason to the
    loader and so to the table `rejected`.
    """

    request: M
    broken: list[str]


class _Field(NamedTuple):
    name: str
    read: Reader


def parse_json(kind: type[M], body: bytes) -> M:
    """Parse one OTLP/JSON request, in which every record must be valid.

    Raises:
        ValueError: If it is not JSON, not an object, or not OTLP; the message names the place.
    """
    request, broken = read_json(kind, body)
    if broken:
        raise ValueError(broken[0])
    return request


def read_json(kind: type[M], body: bytes) -> Read[M]:
    """Parse one OTLP/JSON request; replace each invalid record and keep the others.

    Raises:
        ValueError: If it is not JSON, not an object, or invalid outside its records.
    """
    data = _loads(body)
    broken: list[str] = []
    return Read(kind(**_message(kind.DESCRIPTOR, data, 0, broken)), broken)


def _loads(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        # JavaScript can cut a text inside a surrogate pair. orjson refuses the half; json does not.
        try:
            text = json.dumps(json.loads(body), ensure_ascii=False)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        return orjson.loads(text.encode(errors="replace"))


def _message(kind: Any, data: Any, depth: int, broken: list[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object, got {type(data).__name__}")  # noqa: TRY004
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    fields = _fields(kind)
    return {
        field.name: field.read(value, depth + 1, broken)
        for key, value in data.items()
        # In protobuf's JSON mapping null stands for the default value.
        if value is not None and (field := fields.get(key)) is not None
    }


def _record(kind: Any, data: Any, depth: int, broken: list[str]) -> Message:
    try:
        return GetMessageClass(kind)(**_message(kind, data, depth, broken))
    except ValueError as error:
        named = data.get("name") or data.get("eventName") if isinstance(data, dict) else ""
        broken.append(f"{shown(named or '')}: {error}")
        return instead_of(RECORDS[kind.full_name], str(named or ""), str(error))


def instead_of(kind: type[Message], name: str, reason: str) -> Message:
    """Create the replacement for a record that cannot be stored: no id, and the reason as text."""
    text = f"{shown(name)}: {reason}"
    if kind is Span:
        return Span(name=text)
    return LogRecord(event_name=REJECTED_RECORD, body=AnyValue(string_value=text))


def _list(read: Reader, data: Any, depth: int, broken: list[str]) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"expected a JSON array, got {type(data).__name__}")  # noqa: TRY004
    return [read(item, depth, broken) for item in data]


@cache
def _fields(kind: Any) -> dict[str, _Field]:
    """Return the fields of a message by JSON name, `traceId` and `trace_id` alike."""
    fields = {field: _Field(field.name, _reader(field)) for field in kind.fields}
    return {
        name: reader for field, reader in fields.items() for name in (field.json_name, field.name)
    }


def _reader(field: FieldDescriptor) -> Reader:
    if field.message_type is not None:
        read: Reader = partial(
            _record if field.message_type.full_name in RECORDS else _message, field.message_type
        )
    elif field.json_name in ID_BYTES:
        read = _scalar(partial(_id, field.json_name))
    elif field.type == field.TYPE_ENUM:
        read = _scalar(partial(_enum, field))
    else:
        read = _scalar(partial(SCALARS[field.cpp_type, field.type == field.TYPE_BYTES], field))
    return partial(_list, read) if field.is_repeated else read


def _scalar(read: Callable[[Any], Any]) -> Reader:
    return lambda value, _depth, _broken: read(value)


def _id(name: str, value: Any) -> bytes:
    """Decode an id: hex or, if that is not of the right size, base64.

    The two cannot be confused: hex of 16 bytes is base64 of 24 bytes, and base64 of 16 bytes that
    has only hex digits is hex of 11 bytes.
    """
    size = ID_BYTES[name]
    try:
        read = binascii.unhexlify(value)
    except (binascii.Error, TypeError, ValueError):
        read = None
    if value and (read is None or len(read) != size):
        decoded = _base64(value)
        if decoded is not None and len(decoded) == size:
            return decoded
    if read is None:
        raise ValueError(f"{name} must be {2 * size} hex digits, got {shown(value)}")
    return read


def _enum(field: Any, value: Any) -> int:
    values = field.enum_type.values_by_name
    if isinstance(value, str) and value in values:
        return int(values[value].number)
    # Not isinstance: True is an int in Python, but no enum in JSON.
    if type(value) is not int:
        raise ValueError(f"{field.json_name} must be a number in OTLP/JSON, got {shown(value)}")
    return value


def _text(field: FieldDescriptor, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(field, "a string", value)
    return value


def _bool(field: FieldDescriptor, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(field, "true or false", value)
    return value


def _integer(field: FieldDescriptor, value: Any) -> int:
    try:
        # The mapping writes 64-bit integers as texts, because JavaScript's numbers are exact only
        # up to 2^53. It also allows a number with a fraction of zero, such as 3.0.
        number = int(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise _wrong(field, "an integer", value) from error
    if isinstance(value, bool) or (isinstance(value, float) and value != number):
        raise _wrong(field, "an integer", value)
    return number


def _double(field: FieldDescriptor, value: Any) -> float:
    try:
        # This also reads the texts "NaN", "Infinity" and "-Infinity" of the mapping.
        return float(value)
    except (ValueError, TypeError) as error:
        raise _wrong(field, "a number", value) from error


def _bytes(field: FieldDescriptor, value: Any) -> bytes:
    if (decoded := _base64(value)) is None:
        raise _wrong(field, "base64", value)
    return decoded


def _base64(value: Any) -> bytes | None:
    """Decode base64, standard or URL-safe, with or without padding; None if it is none."""
    if not isinstance(value, str):
        return None
    standard = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _wrong(field: FieldDescriptor, expected: str, value: Any) -> ValueError:
    return ValueError(f"{field.json_name} must be {expected}, got {shown(value)}")


def shown(value: Any) -> str:
    """Quote the beginning of an invalid value, for an error message."""
    return f"'{str(value)[:SHOWN]}'"


_INTEGERS = (
    FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64,
)  # fmt: skip
SCALARS: dict[tuple[int, bool], Callable[[FieldDescriptor, Any], Any]] = {
    (FieldDescriptor.CPPTYPE_STRING, False): _text,
    (FieldDescriptor.CPPTYPE_STRING, True): _bytes,
    (FieldDescriptor.CPPTYPE_BOOL, False): _bool,
    (FieldDescriptor.CPPTYPE_DOUBLE, False): _double,
    (FieldDescriptor.CPPTYPE_FLOAT, False): _double,
    **{(integer, False): _integer for integer in _INTEGERS},
}
