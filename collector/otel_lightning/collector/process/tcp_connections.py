"""The TCP connections that this process has open, as Linux describes them (tcp(7), TCP_INFO)."""

import os
import resource
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

DESCRIPTORS = Path("/proc/self/fd")
TCP_INFO_BYTES = 192
STATE, LAST_DATA_SENT, LAST_DATA_RECEIVED, BYTES_RECEIVED = 0, 44, 52, 128
"""Offsets in Linux's `struct tcp_info`; the two times are in milliseconds."""
ESTABLISHED, CLOSED, LISTENING = 1, 7, 10


class Connection(NamedTuple):
    """An open connection of this process. All times are in seconds before now."""

    descriptor: int
    inode: int
    """Number of the socket; unlike a descriptor, it belongs to one connection only."""
    state: int
    """State of the connection, such as `ESTABLISHED`."""
    sent_seconds: float
    received_seconds: float
    received_bytes: int

    @property
    def is_silent(self) -> bool:
        """Whether nothing was ever received."""
        return self.received_bytes == 0

    @property
    def is_answered(self) -> bool:
        """Whether no request is in progress: nothing was received, or an answer was sent after it.

        The kernel counts in steps of some milliseconds. A request that was answered within one step
        counts as unanswered.
        """
        return self.is_silent or self.sent_seconds < self.received_seconds

    @property
    def has_left(self) -> bool:
        """Whether the peer or this process has closed the connection."""
        return self.state != ESTABLISHED


def open_descriptors() -> Sequence[int]:
    """List the open descriptors, or all possible numbers if listing fails for lack of one."""
    try:
        return [int(one.name) for one in DESCRIPTORS.iterdir()]
    except OSError:
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def connections(descriptors: Iterable[int], ports: set[int]) -> Iterator[Connection]:
    """Describe those descriptors that are TCP connections to one of our ports.

    It opens no descriptor.
    """
    for descriptor in descriptors:
        if one := connection(descriptor, ports):
            yield one


def connection(descriptor: int, ports: set[int]) -> Connection | None:
    """Describe a TCP connection to one of our ports; None for any other descriptor."""
    try:
        handle = socket.socket(fileno=descriptor)
    except OSError:  # not a socket, or closed in the meantime
        return None
    try:
        if handle.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        if handle.getsockname()[1] not in ports:
            return None
        info = handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        inode = os.fstat(descriptor).st_ino
    except OSError:
        return None
    finally:
        handle.detach()  # the descriptor belongs to a server: do not close it
    if info[STATE] == LISTENING:
        return None
    (sent,) = struct.unpack_from("I", info, LAST_DATA_SENT)
    (received,) = struct.unpack_from("I", info, LAST_DATA_RECEIVED)
    (size,) = struct.unpack_from("Q", info, BYTES_RECEIVED)
    return Connection(descriptor, inode, info[STATE], sent / 1000, received / 1000, size)
