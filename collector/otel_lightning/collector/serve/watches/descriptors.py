"""File descriptors: raise the limit, keep a reserve, and close idle connections when many are open.

Anybody who reaches the ports can open connections without a token and leave them idle. Each takes a
descriptor. When none is left, no file and no connection can be opened. So the soft limit is raised
at start, and connections get only a part of the descriptors. When half of that part is in use, the
connections that have been idle longest are closed, so that new senders can connect at once.
"""

import logging
import resource
import socket
from contextlib import suppress

from otel_lightning.collector.process.background import BackgroundThread
from otel_lightning.collector.process.tcp_connections import (
    CLOSED,
    DESCRIPTORS,
    Connection,
    connection,
    connections,
    open_descriptors,
)

logger = logging.getLogger(__name__)

RESERVED = 256  # for the spool, DuckDB's files, SQL connections and libraries
MOST_DESCRIPTORS = 65_536  # where the hard limit is higher, or there is none
MOST_CONNECTIONS = 8192  # on all ports together
FULL, RELIEVED = 0.5, 0.25  # shares of the connections: above FULL, close idle ones to RELIEVED
CROWDED = 0.75  # above this share, connections that wait for an answer are closed too
LOOK_SECONDS = 0.25
LEAST_IDLE_SECONDS = 1.0
SILENT_SECONDS = 30.0  # timeout of a connection that never sent a byte
LOOKS_PER_SCAN = 20  # every 20th look (5 s) scans all connections, even if few are open


def raise_limit() -> int:
    """Raise the soft limit of open files as far as allowed, and return it.

    The soft limit is often 1,024 (on macOS 256) where the hard limit is far higher.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= raised:
        return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    with suppress(OSError, ValueError):  # macOS has a further limit of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    return soft


def connections_within(limit: int) -> int:
    """Return the highest number of open connections under a limit of open files.

    Raises:
        OSError: If the limit leaves no room for connections.
    """
    room = min(limit - RESERVED, MOST_CONNECTIONS)
    if room < RESERVED // 2:
        smallest = RESERVED + RESERVED // 2
        raise OSError(
            f"only {limit} files may be open at once, and {smallest} are needed. "
            f"Raise the limit, for example with: ulimit -n 4096"
        )
    return room


class IdleConnections(BackgroundThread):
    """A thread that closes the longest idle connections when many are open.

    It opens no descriptor for that, so it works even when none is left.
    """

    def __init__(self, ports: set[int], most: int) -> None:
        """Prepare the thread; `start()` runs it.

        Args:
            ports: The server's ports; only connections to them are closed.
            most: Highest number of open connections.
        """
        super().__init__("idle-connections", LOOK_SECONDS)
        self._ports, self._most = ports, most
        self._has_warned = False
        self._looks = 0

    def look_until_stopped(self) -> None:
        """Look where the system lists the open descriptors."""
        if DESCRIPTORS.exists():
            super().look_until_stopped()

    def look(self) -> None:
        """Close what is idle; most looks only count the open descriptors."""
        open_now = open_descriptors()
        self._looks += 1
        is_crowded = len(open_now) >= self._most * FULL
        if not is_crowded and self._looks % LOOKS_PER_SCAN:
            return
        # This process may have shut one down itself, and its server has not closed it yet.
        of_clients = [one for one in connections(open_now, self._ports) if one.state != CLOSED]
        for one in of_clients:
            if one.is_silent and one.received_seconds >= SILENT_SECONDS:
                _close(one, self._ports)
        if len(of_clients) < self._most * FULL:
            return
        may_close_all = len(of_clients) >= self._most * CROWDED
        idle = [one for one in of_clients if one.is_answered or may_close_all]
        idle.sort(key=lambda one: one.received_seconds, reverse=True)
        excess = len(of_clients) - int(self._most * RELIEVED)
        for one in idle[:excess]:
            _close(one, self._ports)
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%d connections are open; those that have been idle longest are closed. "
                "This is logged once.",
                len(of_clients),
            )


def _close(idle: Connection, ports: set[int]) -> None:
    """Shut down a connection that is still idle; its server then closes the descriptor."""
    # The server may have closed it since the scan, and a new connection may have its number.
    now = connection(idle.descriptor, ports)
    if now is None or now.received_seconds < LEAST_IDLE_SECONDS:
        return
    handle = socket.socket(fileno=idle.descriptor)
    with suppress(OSError):  # the client closed it first
        handle.shutdown(socket.SHUT_RDWR)
    handle.detach()
