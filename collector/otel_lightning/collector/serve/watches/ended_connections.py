"""Notice clients whose bytes no server of ours can read, such as OTLP over HTTP at the gRPC port.

`grpcio` and `granian` close such a connection themselves and report nothing. But Linux sends the
counters of each TCP connection that has ended to a netlink socket. A filter in the kernel passes on
connections to our port only, so that requests and other connections cost nothing here.

Source:
    Linux: sock_diag(7), `include/uapi/linux/inet_diag.h` and `tcp.h`; any user may listen. RFC 9113
    (HTTP/2), sections 3.4 and 6.5.3.
"""

import asyncio
import ctypes
import ipaddress
import logging
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

logger = logging.getLogger(__name__)

NETLINK_SOCK_DIAG = 4
ENDED_IPV4, ENDED_IPV6 = 1 << 0, 1 << 2  # groups SKNLGRP_INET_TCP_DESTROY and _INET6_TCP_DESTROY
SO_ATTACH_FILTER = 26
MESSAGE_BYTES = 4096
LOCAL_PORT, REMOTE_PORT, REMOTE_ADDRESS = 20, 22, 40
"""Offsets in the message: a 16-byte `nlmsghdr`, then `inet_diag_msg`."""
ATTRIBUTES, TCP_INFO = 88, 2
"""Offset of the attributes in the message, and the type of the one that is a `tcp_info`."""
BYTES_RECEIVED, DATA_SEGMENTS_SENT, KNOWN_BYTES = 128, 156, 160
"""Offsets in `struct tcp_info`, and the least size that has both."""
END_BYTES = 1  # TCP counts the end of a stream as one byte


class Ended(NamedTuple):
    """A TCP connection that has ended, whose client had sent something."""

    address: str
    """The client's IP address."""
    client: str
    """The client's IP address and port, as a server writes them."""
    segments: int
    """Segments with data that were sent to the client."""

    @property
    def is_not_grpc(self) -> bool:
        """Whether the client cannot have spoken gRPC.

        gRPC's server speaks first, in one segment. A client of HTTP/2 makes it speak again, because
        it must acknowledge the client's SETTINGS.
        """
        return self.segments <= 1


@contextmanager
def watched(port: int, report: Callable[[Ended], None]) -> Iterator[None]:
    """Report each connection to a port that ends, and whose client had sent something.

    A probe that only connects sends nothing. Must be called in a running event loop. Where the
    kernel does not tell, nothing is reported.

    Args:
        port: The port.
        report: Runs in the event loop.
    """
    with _subscribe(port) or nullcontext() as ended:
        if ended is None:
            yield
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(ended, _read, ended, report)
        try:
            yield
        finally:
            loop.remove_reader(ended)


def _subscribe(port: int) -> socket.socket | None:
    """Open a socket that gets a message for each ended connection to a port; None if impossible."""
    if sys.platform != "linux":
        return None
    try:
        ended = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG)
    except OSError as error:  # such as a sandbox without AF_NETLINK
        logger.debug("Clients that cannot be read are not noticed: %s", error)
        return None
    try:
        ended.setblocking(False)  # noqa: FBT003  its only argument
        _only_port(ended, port)
        ended.bind((0, ENDED_IPV4 | ENDED_IPV6))
    except OSError as error:
        logger.debug("Clients that cannot be read are not noticed: %s", error)
        ended.close()
        return None
    return ended


def _only_port(ended: socket.socket, port: int) -> None:
    """Attach a classic BPF program: pass a message whose local port is `port`, drop the others."""
    program = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (0x28, 0, 0, LOCAL_PORT),  # load two bytes
            (0x15, 0, 1, port),  # if they are not equal, skip one instruction
            (0x06, 0, 0, MESSAGE_BYTES),  # pass
            (0x06, 0, 0, 0),  # drop
        )
    )
    instructions = ctypes.create_string_buffer(program, len(program))
    count = len(program) // struct.calcsize("=HBBI")
    fprog = struct.pack("HP", count, ctypes.addressof(instructions))
    ended.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, fprog)


def _read(ended: socket.socket, report: Callable[[Ended], None]) -> None:
    try:
        message = ended.recv(MESSAGE_BYTES)
    except OSError:  # too many at once: the kernel dropped some
        return
    if one := _ended(message):
        report(one)


def _ended(message: bytes) -> Ended | None:
    """Read a message of the kernel; None if the client has sent nothing."""
    info = _attribute(message, TCP_INFO)
    if len(info) < KNOWN_BYTES:
        return None
    (received,) = struct.unpack_from("=Q", info, BYTES_RECEIVED)
    (segments,) = struct.unpack_from("=I", info, DATA_SEGMENTS_SENT)
    if received <= END_BYTES:
        return None
    (port,) = struct.unpack_from("!H", message, REMOTE_PORT)
    if message[16] == socket.AF_INET:
        address = str(ipaddress.IPv4Address(message[REMOTE_ADDRESS : REMOTE_ADDRESS + 4]))
        return Ended(address, f"{address}:{port}", segments)
    ipv6 = ipaddress.IPv6Address(message[REMOTE_ADDRESS : REMOTE_ADDRESS + 16])
    if mapped := ipv6.ipv4_mapped:  # of a socket for both
        return Ended(str(mapped), f"[::ffff:{mapped}]:{port}", segments)
    return Ended(str(ipv6), f"[{ipv6}]:{port}", segments)


def _attribute(message: bytes, kind: int) -> bytes:
    """Return the value of a netlink attribute; empty if the message has none of this kind."""
    at = ATTRIBUTES
    while at + 4 <= len(message):
        length, own_kind = struct.unpack_from("=HH", message, at)
        if own_kind == kind:
            return message[at + 4 : at + length]
        at += max((length + 3) & ~3, 4)
    return b""
