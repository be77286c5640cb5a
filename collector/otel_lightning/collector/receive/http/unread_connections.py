"""Count the connections of which no request could be read: granian answers them and tells nobody.

It closes a connection whose TLS handshake fails, and answers 400 to what is no HTTP, 431 to too
many or too long headers, and 414 to a URL that is too long.
"""

import asyncio
import logging

from otel_lightning.collector.receive.metrics import Counts

logger = logging.getLogger(__name__)

MOST_CLIENTS = 100_000
"""Clients that are remembered, if the kernel does not tell that their connections have ended."""
ARRIVED_SECONDS = 1.0
"""Time after the end of a connection in which its request has come from granian's thread."""
WITHOUT_TLS = "it may speak TLS (https://), which is not switched on here (--tls-cert)"
WITH_TLS = "the TLS handshake failed, or it speaks no TLS (http://)"


class UnreadConnections:
    """Counts the connections that ended without a request, and logs the first one.

    All is called in the event loop.
    """

    def __init__(self, counts: Counts, port: int, *, tls: bool) -> None:
        """Begin without connections.

        Args:
            counts: Gets the count.
            port: The port for HTTP.
            tls: Whether it speaks TLS.
        """
        self._counts, self._port = counts, port
        self._cause = WITH_TLS if tls else WITHOUT_TLS
        self._heard: set[str] = set()

    def note_request(self, client: str) -> None:
        """Record that a client has sent a request.

        Args:
            client: Its IP address and port.
        """
        if len(self._heard) >= MOST_CLIENTS:
            self._heard.clear()
        self._heard.add(client)

    def note_end(self, client: str) -> None:
        """Count a connection that has ended, and that had sent something, if it had no request."""
        # Its request may be on the way from the thread that read it.
        asyncio.get_running_loop().call_later(ARRIVED_SECONDS, self._judge, client)

    def _judge(self, client: str) -> None:
        if client in self._heard:
            self._heard.discard(client)
        elif self._counts.unread_connection() == 1:
            logger.warning(
                "%s connected to port %d, and no request could be read from what it sent: %s; or it"
                " was no valid HTTP, had too long headers (431), or broke off before it was read."
                " Its log may say which. Only the first one is logged; /metrics counts all.",
                client, self._port, self._cause,
            )  # fmt: skip
