"""Messages between the process that holds the store and a worker: a kind, a length, bytes.

The first byte is the kind, the next eight are the number of bytes that follow. Arrow data is an IPC
stream; before a table's schema or rows comes a message with the table's name.
"""

import struct
from typing import IO

import pyarrow as pa

HEADER = struct.Struct("<BQ")
NAME, SCHEMA, BEGIN, LOGS, SPANS, END, TABLES = range(7)
"""To a worker: the name of a table and its schema; a new batch; the log records of some traces,
then their spans in parts, then the end of them; the request for the rows of the batch."""
READY, KEYS, ROWS, DONE, FAILED = range(10, 15)
"""From a worker: that it has started; the keys of the traces that were read; some rows of a table;
the end of the rows, with JSON about the batch; the text of an error."""


def write(stream: IO[bytes], kind: int, content: bytes | memoryview = b"") -> None:
    """Write one message."""
    stream.write(HEADER.pack(kind, len(content)))
    stream.write(content)
    stream.flush()


def read(stream: IO[bytes]) -> tuple[int, bytes]:
    """Read one message.

    Raises:
        EOFError: If the other process has closed the stream, or has ended.
    """
    kind, size = HEADER.unpack(_exactly(stream, HEADER.size))
    return kind, _exactly(stream, size)


def packed(rows: pa.Table) -> memoryview:
    """Write a table as an IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return memoryview(sink.getvalue())


def unpacked(content: bytes | memoryview) -> pa.Table:
    """Read a table from an IPC stream."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
        return reader.read_all()


def _exactly(stream: IO[bytes], size: int) -> bytes:
    # A buffered stream returns less only at its end.
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content
