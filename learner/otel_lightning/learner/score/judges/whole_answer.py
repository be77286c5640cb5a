"""Limits for a whole answer of an endpoint: httpx2's own time limit is for each read."""

import time
from collections.abc import Callable, Iterator

import httpx2

MAX_ANSWER_BYTES = 64 * 2**20
"""Bytes of the longest answer that is read."""


class Limited(httpx2.SyncByteStream):
    """The body of an answer, which must arrive in time and may not be too long."""

    def __init__(self, response: httpx2.Response, seconds: float) -> None:
        self._response, self._stream = response, response.stream
        self._seconds, self._begun = seconds, time.monotonic()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the parts of the body.

        Raises:
            ReadTimeout: If it has not arrived in time.
            DecodingError: If it is too long.
        """
        assert isinstance(self._stream, httpx2.SyncByteStream)  # noqa: S101
        size = 0
        for part in self._stream:
            yield part
            size += len(part)
            if time.monotonic() - self._begun > self._seconds:
                raise httpx2.ReadTimeout(
                    f"the whole answer had not come after {self._seconds:g} s",
                    request=self._response.request,
                )
            if size > MAX_ANSWER_BYTES:
                raise httpx2.DecodingError(
                    f"the answer has more than {MAX_ANSWER_BYTES // 2**20} MiB",
                    request=self._response.request,
                )

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()  # type: ignore[union-attr]


def limited(seconds: float) -> Callable[[httpx2.Response], None]:
    """Return a hook for responses that limits their bodies.

    Args:
        seconds: Longest time from the head of an answer to its end.
    """

    def limit(response: httpx2.Response) -> None:
        response.stream = Limited(response, seconds)

    return limit
