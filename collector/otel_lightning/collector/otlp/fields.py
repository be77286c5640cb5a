"""OTLP's message types, reduced to the stored fields, and their decoding into Arrow columns.

The message types below have OTLP's field numbers and only the fields that are stored. ptars decodes
requests into columns by them and builds no Python object for a span. Texts are declared as bytes,
because one invalid character would make the parser refuse the whole request. Nested values stay
serialised.

Source:
    opentelemetry-proto 1.11, trace.proto, logs.proto and common.proto.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from ptars import HandlerPool

# ptars raises it for some damaged lengths. It derives from BaseException and cannot be imported.
PANIC = "PanicException"


class Field(NamedTuple):
    """One field: its number in OTLP, the name of our column, and its wire type or message."""

    number: int
    name: str
    type: str
    repeated: bool = False


ANY_VALUE = (
    Field(1, "string_value", "bytes"),
    Field(2, "bool_value", "bool"),
    Field(3, "int_value", "int64"),
    Field(4, "double_value", "double"),
    Field(5, "array_value", "bytes"),
    Field(6, "kvlist_value", "bytes"),
    Field(7, "bytes_value", "bytes"),
)
MESSAGES: dict[str, tuple[Field, ...]] = {
    "AnyValue": ANY_VALUE,
    "KeyValue": (Field(1, "key", "bytes"), Field(2, "value", "AnyValue")),
    "Scope": (Field(1, "name", "bytes"), Field(2, "version", "bytes")),
    "Status": (Field(2, "message", "bytes"), Field(3, "code", "int32")),
    # OTLP's times are unsigned (fixed64). Declared as signed they have the same bytes, and are the
    # int64 that Arrow's timestamps need. A time above 63 bits becomes negative: unknown.
    "Event": (
        Field(1, "time", "sfixed64"),
        Field(2, "name", "bytes"),
        Field(3, "attributes", "KeyValue", repeated=True),
    ),
    "Link": (
        Field(1, "trace_id", "bytes"),
        Field(2, "span_id", "bytes"),
        Field(4, "attributes", "KeyValue", repeated=True),
    ),
    "Span": (
        Field(1, "trace_id", "bytes"),
        Field(2, "span_id", "bytes"),
        Field(3, "trace_state", "bytes"),
        Field(4, "parent_span_id", "bytes"),
        Field(5, "name", "bytes"),
        Field(6, "kind", "int32"),
        Field(7, "start_time", "sfixed64"),
        Field(8, "end_time", "sfixed64"),
        Field(9, "attributes", "KeyValue", repeated=True),
        Field(10, "dropped_attributes_count", "uint32"),
        Field(11, "events", "Event", repeated=True),
        Field(12, "dropped_events_count", "uint32"),
        Field(13, "links", "Link", repeated=True),
        Field(14, "dropped_links_count", "uint32"),
        Field(15, "status", "Status"),
        Field(16, "flags", "fixed32"),
    ),
    "LogRecord": (
        Field(1, "time", "sfixed64"),
        Field(2, "severity_number", "int32"),
        Field(3, "severity_text", "bytes"),
        Field(5, "body", "AnyValue"),
        Field(6, "attributes", "KeyValue", repeated=True),
        Field(9, "trace_id", "bytes"),
        Field(10, "span_id", "bytes"),
        Field(11, "observed_time", "sfixed64"),
        Field(12, "event_name", "bytes"),
    ),
    "ScopeSpans": (Field(1, "scope", "Scope"), Field(2, "records", "Span", repeated=True)),
    "ScopeLogs": (Field(1, "scope", "Scope"), Field(2, "records", "LogRecord", repeated=True)),
    # The same messages with each record as bytes: the id of a log record is the hash of its bytes.
    "ScopeBytes": (Field(1, "scope", "bytes"), Field(2, "records", "bytes", repeated=True)),
    "ResourceSpans": (
        Field(1, "resource", "bytes"),
        Field(2, "scopes", "ScopeSpans", repeated=True),
    ),
    "ResourceLogs": (Field(1, "resource", "bytes"), Field(2, "scopes", "ScopeLogs", repeated=True)),
    "ResourceBytes": (
        Field(1, "resource", "bytes"),
        Field(2, "scopes", "ScopeBytes", repeated=True),
    ),
    "Traces": (Field(1, "resources", "ResourceSpans", repeated=True),),
    "Logs": (Field(1, "resources", "ResourceLogs", repeated=True),),
    "Bytes": (Field(1, "resources", "ResourceBytes", repeated=True),),
}


def columns(message: str, bodies: Sequence[bytes]) -> pa.RecordBatch:
    """Decode requests into one batch, with one row for each request.

    Args:
        message: `Traces`, `Logs`, or `Bytes`, which decodes both signals but not their records.
        bodies: Serialised OTLP requests, shape [R].

    Returns:
        The batch; its only column, `resources`, has shape [R].

    Raises:
        ValueError: If a body is not such a protobuf message.
    """
    try:
        return _handler(message).list_to_record_batch(list(bodies))
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        raise ValueError(f"not a protobuf message of OTLP: {error}") from error


@cache
def _handler(message: str) -> Any:
    pool = DescriptorPool()
    pool.Add(_descriptor())
    file = pool.FindFileByName("otlp_trimmed.proto")
    return HandlerPool([file]).get_for_message(
        pool.FindMessageTypeByName(f"otlp_trimmed.{message}")
    )


def _descriptor() -> FileDescriptorProto:
    file = FileDescriptorProto(name="otlp_trimmed.proto", package="otlp_trimmed", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "AnyValue":
            # In proto3 only a field of a oneof tells whether it was set: an integer 0 is not a
            # missing value.
            message.oneof_decl.add(name="value")
        message.field.extend(_field(field, one_of=name == "AnyValue") for field in fields)
    return file


def _field(field: Field, *, one_of: bool) -> FieldDescriptorProto:
    kind = FieldDescriptorProto
    proto = kind(
        name=field.name,
        number=field.number,
        label=kind.LABEL_REPEATED if field.repeated else kind.LABEL_OPTIONAL,
    )
    if field.type in MESSAGES:
        proto.type, proto.type_name = kind.TYPE_MESSAGE, f".otlp_trimmed.{field.type}"
    else:
        proto.type = kind.Type.Value(f"TYPE_{field.type.upper()}")
    if one_of:
        proto.oneof_index = 0
    return proto
