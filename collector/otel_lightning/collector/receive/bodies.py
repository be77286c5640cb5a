"""Bodies in memory: each within the limit once unpacked, all large ones within a budget."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import zstandard

from otel_lightning.collector.receive.refusals import RefusedError, too_large, unavailable

CHUNK = 1 << 20
GZIP = b"\x1f\x8b"
DEFLATE_RATIO = 1032
"""Deflate cannot shrink anything further than this."""


class Budget:
    """How many bytes of large bodies may be in memory at once; for one event loop."""

    def __init__(self, limit: int) -> None:
        self._free = limit

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Give a function that takes bytes from the budget, all given back at the end.

        It raises a temporary RefusedError once nothing is left.
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
    """Yield the contents of gzip's members, one after the other, or of one zlib stream."""
    if limit < _claimed_size(body) <= len(body) * DEFLATE_RATIO:
        raise too_large(limit)  # an honest bomb costs nothing
    rest = body
    while rest:
        decompressor = zlib.decompressobj(wbits=47)  # tells gzip and zlib apart by their header
        while not decompressor.eof:
            chunk = decompressor.decompress(rest, CHUNK)
            rest = decompressor.unconsumed_tail
            if not chunk and not rest and not decompressor.eof:
                raise EOFError("it is cut off")
            yield chunk
        rest = decompressor.unused_data


def _claimed_size(body: bytes) -> int:
    """What gzip's trailer says it holds, modulo 2^32; a damaged one may say anything."""
    return int.from_bytes(body[-4:], "little") if body.startswith(GZIP) else 0


def _unzstd(body: bytes) -> Iterator[bytes]:
    with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
        while chunk := reader.read(CHUNK):
            yield chunk
