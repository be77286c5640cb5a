"""A record that protobuf's readers refuse, such as one nested too deeply, and its neighbours.

One of them makes a reader give up the whole request. So the request is read once more with the
insides of its records left serialised, each record is read alone, and in place of one that cannot
be read stands why.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from otel_lightning.collector.otlp.json_encoding import RECORDS, instead_of
from otel_lightning.collector.otlp.utf8 import mended, with_dependencies

REASON = "it is nested deeper than 100 levels, or damaged"


def salvaged(kind: type[Message], body: bytes) -> bytes:
    """Write a request anew, each record that no reader takes replaced by why, its texts valid.

    Raises:
        DecodeError: If something around its records is wrong with it.
    """
    pool = _opaque(kind.DESCRIPTOR.file)
    request = GetMessageClass(pool.FindMessageTypeByName(kind.DESCRIPTOR.full_name))()
    request.ParseFromString(body)
    for record in _records(request):
        if not _can_be_read(record):
            name = getattr(record, "name", b"").decode(errors="replace")
            record.Clear()
            reason = instead_of(RECORDS[record.DESCRIPTOR.full_name], name, REASON)
            record.MergeFromString(reason.SerializeToString())
    return mended(kind, request.SerializeToString())


def _records(message: Any) -> Iterator[Any]:
    if message.DESCRIPTOR.full_name in RECORDS:
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for below in value if field.is_repeated else (value,):
                yield from _records(below)


def _can_be_read(record: Message) -> bool:
    try:
        mended(RECORDS[record.DESCRIPTOR.full_name], record.SerializeToString())
    except DecodeError:
        return False
    return True


@cache
def _opaque(file: FileDescriptor) -> DescriptorPool:
    """OTLP's own messages with all that is inside a record declared as bytes."""
    pool = DescriptorPool()
    for one in with_dependencies(file):
        copy = FileDescriptorProto()
        one.CopyToProto(copy)
        for message in copy.message_type:
            if f"{copy.package}.{message.name}" in RECORDS:
                _close(message.field)
        pool.Add(copy)
    return pool


def _close(fields: Any) -> None:
    for field in fields:
        if field.type in (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_STRING):
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")
