"""Repair a request that protobuf's parser refuses, so that one bad record costs no neighbour.

Two faults make the parser refuse a whole request: a text that is not UTF-8, and a record that is
nested too deeply or damaged. The request is parsed again with changed descriptors: all texts
declared as bytes for the first fault, all contents of a record, resource or scope declared as bytes
for the second. Bad texts get replacement characters, as OpenTelemetry's SDKs write them. A record
that still cannot be parsed is replaced by one that says why; so is each record of a resource or
scope that cannot be parsed.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from otel_lightning.collector.otlp.json_encoding import RECORDS, instead_of

Path = tuple[str, ...]
"""Names of the fields from a request down to a record."""
REASON = "it is nested deeper than 100 levels, or damaged"
OF_SHARED = "its {} is nested deeper than 100 levels, or damaged"
SHARED = (
    "opentelemetry.proto.resource.v1.Resource",
    "opentelemetry.proto.common.v1.InstrumentationScope",
)
"""Messages that several records share."""


def repair(kind: type[Message], body: bytes) -> bytes:
    """Rewrite a request with valid texts; replace each record that no parser accepts.

    Args:
        kind: The request's class, such as `ExportTraceServiceRequest`.
        body: Its protobuf bytes.

    Raises:
        DecodeError: If the bytes outside its records are damaged.
    """
    with suppress(DecodeError):  # mostly a text is at fault, and no record has to be looked at
        return repair_texts(kind, body)
    pool = _pool_with_opaque_records(kind.DESCRIPTOR.file)
    request = GetMessageClass(pool.FindMessageTypeByName(kind.DESCRIPTOR.full_name))()
    request.ParseFromString(body)
    # A list, because the loop changes the messages through which `_shared` walks.
    for path, part, field in [*_shared(request, ())]:
        if not _can_be_parsed(kind, type(request), path, part, kept_field=field):
            part.ClearField(field)
            for _, record in _records(part, ()):
                _replace_record(record, OF_SHARED.format(field))
    for path, record in _records(request, ()):
        if not _can_be_parsed(kind, type(request), path, record):
            _replace_record(record, REASON)
    return repair_texts(kind, request.SerializeToString())


def repair_texts(kind: type[Message], body: bytes) -> bytes:
    """Rewrite a message with replacement characters for bytes that are not UTF-8.

    Raises:
        DecodeError: If the message has another fault.
    """
    lenient = _pool_with_texts_as_bytes(kind.DESCRIPTOR.file)
    message = GetMessageClass(lenient.pool.FindMessageTypeByName(kind.DESCRIPTOR.full_name))()
    message.ParseFromString(body)
    _replace_invalid(message, lenient.texts)
    return message.SerializeToString()


def _records(message: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the spans or log records of a request, each with the fields that lead to it."""
    if message.DESCRIPTOR.full_name in RECORDS:
        yield path, message
        return
    for field, below in _messages_below(message):
        yield from _records(below, (*path, field))


def _shared(message: Any, path: Path) -> Iterator[tuple[Path, Any, str]]:
    """Yield each part of a request that has a resource or scope, and the field that holds it."""
    for field, below in _messages_below(message):
        if below.DESCRIPTOR.full_name in SHARED:
            yield path, message, field
        elif below.DESCRIPTOR.full_name not in RECORDS:
            yield from _shared(below, (*path, field))


def _replace_record(record: Any, reason: str) -> None:
    name = getattr(record, "name", b"").decode(errors="replace")
    record.Clear()
    replacement = instead_of(RECORDS[record.DESCRIPTOR.full_name], name, reason)
    record.MergeFromString(replacement.SerializeToString())


def _messages_below(message: Any) -> Iterator[tuple[str, Any]]:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for below in value if field.is_repeated else (value,):
                yield field.name, below


def _can_be_parsed(
    kind: type[Message], opaque: type[Message], path: Path, part: Any, kept_field: str | None = None
) -> bool:
    """Parse a request that holds a part alone: its depth counts from the request down.

    Args:
        kind: The request's class.
        opaque: The same class, with contents of records declared as bytes.
        path: Fields from the request down to the part.
        part: A record, or a part with a resource or scope.
        kept_field: The one field of the part to keep; None keeps all.
    """
    request: Any = opaque()
    message = request
    for field in path:
        message = getattr(message, field).add()
    if kept_field:
        getattr(message, kept_field).CopyFrom(getattr(part, kept_field))
    else:
        message.CopyFrom(part)
    try:
        repair_texts(kind, request.SerializeToString())
    except DecodeError:
        return False
    return True


def _replace_invalid(message: Any, texts: frozenset[str]) -> None:
    for _, below in _messages_below(message):
        _replace_invalid(below, texts)
    for field, value in message.ListFields():
        if field.full_name in texts:
            if field.is_repeated:
                value[:] = [_valid(text) for text in value]
            else:
                setattr(message, field.name, _valid(value))


def _valid(text: bytes) -> bytes:
    return text.decode(errors="replace").encode()


@cache
def _pool_with_opaque_records(file: FileDescriptor) -> DescriptorPool:
    """Copy OTLP's descriptors, but with records, resources and scopes as unparsed bytes."""
    pool = DescriptorPool()
    for one in _with_dependencies(file):
        copy = FileDescriptorProto()
        one.CopyToProto(copy)
        for message in copy.message_type:
            if f"{copy.package}.{message.name}" in (*RECORDS, *SHARED):
                _declare_as_bytes(message.field)
        pool.Add(copy)
    return pool


def _declare_as_bytes(fields: Any) -> None:
    for field in fields:
        if field.type in (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_STRING):
            # Texts, messages and bytes have one wire type (length-delimited). So the field takes
            # any content, and nothing inside is parsed.
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")


class _Lenient(NamedTuple):
    pool: DescriptorPool
    texts: frozenset[str]
    """Full names of the fields that are text in OTLP."""


@cache
def _pool_with_texts_as_bytes(file: FileDescriptor) -> _Lenient:
    """Copy OTLP's descriptors, with every text declared as bytes."""
    pool, texts = DescriptorPool(), set()
    for one in _with_dependencies(file):
        copy = FileDescriptorProto()
        one.CopyToProto(copy)
        for message in copy.message_type:
            for field in message.field:
                if field.type == FieldDescriptorProto.TYPE_STRING:
                    field.type = FieldDescriptorProto.TYPE_BYTES
                    texts.add(f"{copy.package}.{message.name}.{field.name}")
        pool.Add(copy)
    return _Lenient(pool, frozenset(texts))


def _with_dependencies(file: FileDescriptor) -> list[FileDescriptor]:
    """List a descriptor file after all files that it imports, as a pool needs them."""
    files: dict[str, FileDescriptor] = {}
    for dependency in file.dependencies:
        files |= {one.name: one for one in _with_dependencies(dependency)}
    return [*files.values(), file]
