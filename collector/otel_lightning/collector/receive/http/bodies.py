"""Memory limits for request bodies: one for each body, decompressed, and one for all large ones."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import zstandard

from otel_lightning.collector.receive.refusals import RefusedError, too_large, unavailable

CHUNK = 1 << 20  # bytes decompressed at a time, before the size is checked again
ZSTD_CHUNK = 512
"""Bytes to decompress at a time: 4 of them may be a block of 128 KiB, so at most 16 MiB come."""
GZIP = b"\x1f\x8b"
DEFLATE_RATIO = 1032
"""Highest compression ratio of the deflate format."""


class Budget:
    """Limit on the bytes of large bodies in memory. Not thread-safe: for one event loop."""

    def __init__(self, limit: int) -> None:
        self._free = limit

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves bytes; all are released when the block ends.

        The function raises a temporary RefusedError if the budget has too few bytes left.
        """
        held = 0

        def take(size: int) -> None:
            nonlocal held
            if size > self._free:
                raise unavailable("too many large requests at once")
            self._free -= size
            held += size

        try:
            yield take
        finally:
            self._free += held


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Undo a Content-Encoding.

    Raises:
        RefusedError: If the encoding is unknown, the body is damaged, or it is too large.
    """
    if encoding in ("", "identity"):
        chunks = iter((body,))
    elif encoding in ("gzip", "deflate"):
        chunks = _inflated(body, limit)
    elif encoding == "zstd":
        chunks = _unzstd(body)
    else:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Encoding '{encoding}' is not supported. Use gzip, deflate, zstd or none.",
        )
    try:
        return _joined(chunks, limit)
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, f"the body is not valid {encoding}: {error}"
        ) from error


def _joined(chunks: Iterator[bytes], limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _inflated(body: bytes, limit: int) -> Iterator[bytes]:
    """Yield the decompressed chunks of all gzip members, or of one zlib stream."""
    # A body that states a size over the limit is refused before decompression. A size above the
    # highest possible ratio is not true, so it is ignored.
    if limit < _claimed_size(body) <= len(body) * DEFLATE_RATIO:
        raise too_large(limit)
    unread = body
    while unread:
        decompressor = zlib.decompressobj(wbits=47)  # detects gzip or zlib by the header
        while not decompressor.eof:
            chunk = decompressor.decompress(unread, CHUNK)
            unread = decompressor.unconsumed_tail
            if not chunk and not unread and not decompressor.eof:
                raise EOFError("it is cut off")
            yield chunk
        unread = decompressor.unused_data


def _claimed_size(body: bytes) -> int:
    """Return the size in gzip's trailer, modulo 2^32, or 0 without gzip; it may be wrong."""
    return int.from_bytes(body[-4:], "little") if body.startswith(GZIP) else 0


def _unzstd(body: bytes) -> Iterator[bytes]:
    """Yield the decompressed chunks of all zstd frames.

    Zstandard's reader ends without an error where a frame is cut off between two of its blocks.
    """
    frame = None
    for start in range(0, len(body), ZSTD_CHUNK):
        unread = body[start : start + ZSTD_CHUNK]
        while unread:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(unread)
            unread, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame:
        raise EOFError("it is cut off")
