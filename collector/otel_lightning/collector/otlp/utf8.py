"""Text that is not UTF-8, which protobuf refuses with the whole request around it.

A name that was cut in the middle of a character must not cost its neighbours. The request is read
once more with every text declared as bytes, and what is no UTF-8 gets replacement characters, as
OpenTelemetry's SDKs do.
"""

from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


def mended(kind: type[Message], body: bytes) -> bytes:
    """Write a request anew, its texts valid.

    Raises:
        DecodeError: If something else is wrong with it.
    """
    pool, texts = _lenient(kind.DESCRIPTOR.file)
    message = GetMessageClass(pool.FindMessageTypeByName(kind.DESCRIPTOR.full_name))()
    message.ParseFromString(body)
    _mend(message, texts)
    return message.SerializeToString()


def _mend(message: Any, texts: frozenset[str]) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for below in value if field.is_repeated else (value,):
                _mend(below, texts)
        elif field.full_name in texts:
            if field.is_repeated:
                value[:] = [_valid(text) for text in value]
            else:
                setattr(message, field.name, _valid(value))


def _valid(text: bytes) -> bytes:
    return text.decode(errors="replace").encode()


class _Lenient(NamedTuple):
    pool: DescriptorPool
    texts: frozenset[str]
    """Full names of the fields that are text in OTLP."""


@cache
def _lenient(file: FileDescriptor) -> _Lenient:
    """OTLP's own messages with every text declared as bytes."""
    pool, texts = DescriptorPool(), set()
    for one in with_dependencies(file):
        copy = FileDescriptorProto()
        one.CopyToProto(copy)
        for message in copy.message_type:
            for field in message.field:
                if field.type == FieldDescriptorProto.TYPE_STRING:
                    field.type = FieldDescriptorProto.TYPE_BYTES
                    texts.add(f"{copy.package}.{message.name}.{field.name}")
        pool.Add(copy)
    return _Lenient(pool, frozenset(texts))


def with_dependencies(file: FileDescriptor) -> list[FileDescriptor]:
    """A file behind all that it needs."""
    files: dict[str, FileDescriptor] = {}
    for dependency in file.dependencies:
        files |= {one.name: one for one in with_dependencies(dependency)}
    return [*files.values(), file]
