"""Live counts by Server-Sent Events: a signal that there is news, never the rows themselves.

The reader decides when a list moves, and nothing is sent twice. One question a second at most,
however many pages are open.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from granian._granian import RSGIProtocolClosed

from otel_lightning.collector.receive.metrics import Counts
from otel_lightning.collector.receive.refusals import RefusedError
from otel_lightning.collector.store import StoreError

EVENTS = "text/event-stream"
LOOK_SECONDS = 0.5
NEWS_SECONDS = 2.0
BEAT_SECONDS = 15.0  # keeps the connection open through proxies
RATE_SECONDS = 10.0
MOST_STREAMS = 20


class Live:
    """The live counts of one receiver."""

    def __init__(self, counts: Counts, latest: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """Create the source of live counts, without any stream.

        Args:
            counts: Counters of the receiver.
            latest: Asks the store for the counts of its tables.
        """
        self._counts, self._latest = counts, latest
        self._closed = False
        self._streams = 0
        self._asking = asyncio.Lock()
        self._news: dict[str, Any] = {}
        self._asked_at = float("-inf")
        self._samples: list[tuple[float, int]] = []

    def facts(self) -> dict[str, Any]:
        """Return spans and log records accepted since the start, and per second of late."""
        now, accepted = time.monotonic(), sum(self._counts["accepted_records"].values())
        self._samples.append((now, accepted))
        recent = [sample for sample in self._samples if now - sample[0] <= RATE_SECONDS]
        self._samples = recent
        seconds = now - recent[0][0]
        # Over the oldest sample of the last seconds; with one sample alone there is no time to
        # divide by.
        rate = (accepted - recent[0][1]) / seconds if seconds >= LOOK_SECONDS else None
        return {"accepted": accepted, "rate": rate}

    async def stream(self, protocol: Any, headers: tuple[tuple[str, str], ...]) -> None:
        """Send counts whenever they change, until the page is closed or this process stops.

        Raises:
            RefusedError: If too many pages are open.
        """
        if self._streams >= MOST_STREAMS:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open")
        self._streams += 1
        try:
            with suppress(RSGIProtocolClosed):
                await self._send_all(protocol, headers)
        finally:
            self._streams -= 1

    def close(self) -> None:
        """End all streams within `LOOK_SECONDS`."""
        self._closed = True

    async def _send_all(self, protocol: Any, headers: tuple[tuple[str, str], ...]) -> None:
        out = protocol.response_stream(int(HTTPStatus.OK), [("content-type", EVENTS), *headers])
        # Awaited between the looks, so that the stream also ends when the browser leaves while
        # there is nothing to send.
        disconnected = asyncio.ensure_future(protocol.client_disconnect())
        sent: dict[str, Any] = {}
        sent_at = time.monotonic()
        while not self._closed and not disconnected.done():
            news = await self._refreshed()
            if news != sent:
                await out.send_str(f"data: {json.dumps(news)}\n\n")
                sent, sent_at = news, time.monotonic()
            elif time.monotonic() - sent_at > BEAT_SECONDS:
                await out.send_str(": beat\n\n")
                sent_at = time.monotonic()
            await asyncio.wait([disconnected], timeout=LOOK_SECONDS)
        disconnected.cancel()

    async def _refreshed(self) -> dict[str, Any]:
        # One stream asks for all: those that wait here find the news fresh.
        async with self._asking:
            if time.monotonic() - self._asked_at >= NEWS_SECONDS and not self._closed:
                self._asked_at = time.monotonic()
                with suppress(StoreError, RefusedError):  # the next look tries again
                    self._news = {**await self._latest(), **self.facts()}
        return self._news
